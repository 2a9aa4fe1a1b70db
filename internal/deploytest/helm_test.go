package deploytest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// hashed matches kustomize's names of the ConfigMap, whose hash replaces pods after a change. The
// chart has an annotation instead.
var hashed = regexp.MustCompile(`penstock-[a-z0-9]{10}$`)

func nameOf(entry any) string {
	object, _ := entry.(map[string]any)
	name, _ := object["name"].(string)
	return name
}

// byName decodes YAML documents by kind and name, without intended differences.
func byName(t *testing.T, documents ...string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, document := range documents {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if len(object) == 0 {
			continue
		}
		var clean func(any) any
		clean = func(node any) any {
			switch node := node.(type) {
			case string:
				return hashed.ReplaceAllString(node, "penstock")
			case []any:
				for i := range node {
					node[i] = clean(node[i])
				}
				// Kubernetes identifies ports, volumes and their mounts by name, in any order.
				slices.SortStableFunc(node, func(a, b any) int {
					return strings.Compare(nameOf(a), nameOf(b))
				})
			case map[string]any:
				delete(node, "annotations")
				for name := range node {
					node[name] = clean(node[name])
				}
				if text, ok := node["penstock.yaml"].(string); ok {
					var config any
					if err := yaml.Unmarshal([]byte(text), &config); err != nil {
						t.Fatal(err)
					}
					node["penstock.yaml"] = config
				}
			}
			return node
		}
		object = clean(object).(map[string]any)
		name, _ := object["metadata"].(map[string]any)["name"].(string)
		found[object["kind"].(string)+" "+name] = object
	}
	return found
}

func rendered(t *testing.T, release string, values map[string]any) ([]string, error) {
	t.Helper()
	name, namespace, _ := strings.Cut(release, ".")
	chart, err := loader.Load("../../deploy/helm/penstock")
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, values,
		common.ReleaseOptions{Name: name, Namespace: namespace}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var documents []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		documents = append(documents, strings.Split(files[name], "\n---\n")...)
	}
	return documents, nil
}

// render returns the chart's documents, which an API server accepts.
func render(t *testing.T, release string, values map[string]any) []string {
	t.Helper()
	documents, err := rendered(t, release, values)
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, documents...)
	return documents
}

func parsed(t *testing.T, text string) (values map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func TestTheChartIsTheBase(t *testing.T) {
	base, err := build(t).AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	monitor, err := os.ReadFile("../../deploy/kubernetes/podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := byName(t, append(strings.Split(string(base), "\n---\n"), string(monitor))...)
	got := byName(t, render(t, "penstock", map[string]any{"podMonitor": true})...)
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 9 {
		t.Errorf("%d objects; the base is -, the chart +:\n%s", len(got), diff)
	}
}

func TestTheChartWithTheExampleIsTheOverlay(t *testing.T) {
	overlay, err := built(t, "kubernetes-example").AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../deploy/helm/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := byName(t, strings.Split(string(overlay), "\n---\n")...)
	got := byName(t, render(t, "penstock", parsed(t, string(example)))...)
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 12 {
		t.Errorf("%d objects; the overlay is -, the chart +:\n%s", len(got), diff)
	}
}

func TestTheChartFollowsItsValues(t *testing.T) {
	documents := render(t, "other.jobs", map[string]any{"networkPolicy": false, "secret": "keys",
		"image":   map[string]any{"repository": "example.com/p", "tag": "v2"},
		"drainer": map[string]any{"replicas": 5}, "config": map[string]any{"grace": "5s"}})
	text := strings.Join(documents, "\n")
	if n := len(byName(t, documents...)); n != 6 || strings.Contains(text, "name: penstock") {
		t.Errorf("%d objects:\n%s", n, text)
	}
	for what, times := range map[string]int{"image: example.com/p:v2": 2, "replicas: 5": 1,
		"name: keys": 2, "secretName: keys": 2, "grace: 5s": 1, "lame_duck: 10s": 1,
		"- other\n": 1, "- other.jobs\n": 1, "- other.jobs.svc\n": 1} { // among http.hosts
		if n := strings.Count(text, what); n != times {
			t.Errorf("%q is there %d times, want %d", what, n, times)
		}
	}
}

func TestFieldsOfAllPodsMayDifferForOnePart(t *testing.T) {
	objects := byName(t, render(t, "p", parsed(t, `
imagePullSecrets: [{name: registry}]
serviceAccountName: penstock
nodeSelector: {disk: fast}
tolerations: [{key: spot, operator: Exists}]
priorityClassName: high
podAnnotations: {example.com/a: b}
podLabels: {team: payments}
extraEnv: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://collector:4318"}]
drainer: {nodeSelector: {disk: slow}, priorityClassName: higher, extraEnv: [{name: ONLY, value: here}]}
backup: {claim: backups}
extraEgress: [{ports: [{port: 443}]}]
service: {type: LoadBalancer, annotations: {example.com/internal: "true"}}
config: {envoy: {listen: "0.0.0.0:8081", files: [/etc/limits]}}
`))...)
	pod := func(kind string, path ...string) map[string]any {
		node := objects[kind].(map[string]any)["spec"].(map[string]any)
		for _, name := range path {
			node = node[name].(map[string]any)
		}
		return node
	}
	variable := func(pod map[string]any) string {
		env := pod["containers"].([]any)[0].(map[string]any)["env"].([]any)
		return nameOf(env[0]) // before PENSTOCK_NATS_URL
	}
	for _, c := range []struct {
		pod                      map[string]any
		disk, priority, variable string
	}{
		{pod("Deployment p-admitter", "template", "spec"), "fast", "high",
			"OTEL_EXPORTER_OTLP_ENDPOINT"},
		{pod("Deployment p-drainer", "template", "spec"), "slow", "higher", "ONLY"},
		{pod("CronJob p-backup-daily", "jobTemplate", "spec", "template", "spec"), "fast", "high",
			"OTEL_EXPORTER_OTLP_ENDPOINT"},
	} {
		if c.pod["nodeSelector"].(map[string]any)["disk"] != c.disk ||
			c.pod["priorityClassName"] != c.priority || variable(c.pod) != c.variable ||
			c.pod["serviceAccountName"] != "penstock" || c.pod["imagePullSecrets"] == nil ||
			c.pod["tolerations"] == nil {
			t.Errorf("want a %s disk, priority %s and %s in %v", c.disk, c.priority, c.variable,
				c.pod)
		}
	}
	if ports := pod("Service p")["ports"].([]any); len(ports) != 2 ||
		ports[0].(map[string]any)["port"] != 8081.0 || pod("Service p")["type"] != "LoadBalancer" {
		t.Errorf("the gateways' port is not in %v", pod("Service p"))
	}
	if egress := pod("NetworkPolicy p-admitter")["egress"].([]any); len(egress) != 2 {
		t.Errorf("egress %v, want the ports and 443", egress)
	}
}

func TestTheChartRefusesValuesThatItDoesNotKnow(t *testing.T) {
	for values, want := range map[string]string{
		`drainer: {replicaz: 5}`:                      "replicaz",
		`replicas: 5`:                                 "replicas",
		`drainer: {replicas: "5"}`:                    "replicas",
		`ingress: {enabled: true}`:                    "host",
		`config: {outbound: [{listen: local}]}`:       "listen",
		`config: {outbond: []}`:                       "outbond",
		`extraVolumes: {name: stripe}`:                "extraVolumes",
		`backup: {schedules: {Every_Day: 0 1 * * *}}`: "Every_Day",
	} {
		_, err := rendered(t, "penstock", parsed(t, values))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", values, err, want)
		}
	}
}
