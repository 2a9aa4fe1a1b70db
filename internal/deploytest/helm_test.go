package deploytest

import (
	"os"
	"regexp"
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

func render(t *testing.T, release string, values map[string]any) []string {
	t.Helper()
	chart, err := loader.Load("../../deploy/helm/penstock")
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: release}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(files["penstock/templates/penstock.yaml"], "\n---\n")
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

func TestTheChartFollowsItsValues(t *testing.T) {
	documents := render(t, "other", map[string]any{"networkPolicy": false, "secret": "keys",
		"image":   map[string]any{"repository": "example.com/p", "tag": "v2"},
		"drainer": map[string]any{"replicas": 5}, "config": map[string]any{"grace": "5s"}})
	text := strings.Join(documents, "\n")
	if n := len(byName(t, documents...)); n != 6 || strings.Contains(text, "name: penstock") {
		t.Errorf("%d objects:\n%s", n, text)
	}
	for what, times := range map[string]int{"image: example.com/p:v2": 2, "replicas: 5": 1,
		"name: keys": 2, "secretName: keys": 2, "grace: 5s": 1, "lame_duck: 10s": 1} {
		if n := strings.Count(text, what); n != times {
			t.Errorf("%q is there %d times, want %d", what, n, times)
		}
	}
}
