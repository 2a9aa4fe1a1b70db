package deploytest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// Modules whose files describe what an API server accepts. They are only read: none of their code
// is compiled. After the first download the tests need no network.
const (
	kubernetesModule = "k8s.io/kubernetes@v1.37.2"
	kedaModule       = "github.com/kedacore/keda/v2@v2.21.0"
)

// described says where a module describes a kind: in which file, and at which place in it.
type described struct{ module, file, place string }

var kinds = map[string]described{
	"v1 ConfigMap":                       openAPI("api__v1", "core.v1.ConfigMap"),
	"v1 Service":                         openAPI("api__v1", "core.v1.Service"),
	"apps/v1 Deployment":                 openAPI("apis__apps__v1", "apps.v1.Deployment"),
	"batch/v1 CronJob":                   openAPI("apis__batch__v1", "batch.v1.CronJob"),
	"policy/v1 PodDisruptionBudget":      openAPI("apis__policy__v1", "policy.v1.PodDisruptionBudget"),
	"networking.k8s.io/v1 Ingress":       networking("Ingress"),
	"networking.k8s.io/v1 NetworkPolicy": networking("NetworkPolicy"),
	"keda.sh/v1alpha1 ScaledObject":      keda("scaledobjects"),

	"keda.sh/v1alpha1 TriggerAuthentication": keda("triggerauthentications"),
}

func openAPI(group, kind string) described {
	return described{kubernetesModule, "api/openapi-spec/v3/" + group + "_openapi.json",
		"/components/schemas/io.k8s.api." + kind}
}

func networking(kind string) described {
	return openAPI("apis__networking.k8s.io__v1", "networking.v1."+kind)
}

func keda(plural string) described {
	return described{kedaModule, "config/crd/bases/keda.sh_" + plural + ".yaml",
		"/spec/versions/0/schema/openAPIV3Schema"}
}

func directoryOf(t *testing.T, module string) string {
	t.Helper()
	command := exec.Command("go", "mod", "download", "-json", module)
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		t.Fatalf("go mod download %s: %v\n%s", module, err, text)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return found.Dir
}

// refuseUnknown makes a schema refuse fields that it does not list. API servers drop them, so that
// a misspelled field has no effect.
func refuseUnknown(node any) {
	switch node := node.(type) {
	case []any:
		for _, of := range node {
			refuseUnknown(of)
		}
	case map[string]any:
		_, listed := node["properties"].(map[string]any)
		_, others := node["additionalProperties"]
		if kept := node["x-kubernetes-preserve-unknown-fields"]; listed && !others && kept != true {
			node["additionalProperties"] = false
		}
		for _, of := range node {
			refuseUnknown(of)
		}
	}
}

func schemaOf(t *testing.T, kind string) *jsonschema.Schema {
	t.Helper()
	at, ok := kinds[kind]
	if !ok {
		t.Fatalf("no schema of %s is known", kind)
	}
	text, err := os.ReadFile(filepath.Join(directoryOf(t, at.module), at.file))
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil { // JSON is YAML
		t.Fatal(err)
	}
	refuseUnknown(document)
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("mem:///"+at.file, document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("mem:///" + at.file + "#" + at.place)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// accepted checks documents with the schemas of their kinds.
func accepted(t *testing.T, documents ...string) {
	t.Helper()
	schemas := map[string]*jsonschema.Schema{}
	for _, document := range documents {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if len(object) == 0 || object["kind"] == "PodMonitor" { // TestEveryPodIsScraped checks it
			continue
		}
		kind := object["apiVersion"].(string) + " " + object["kind"].(string)
		if schemas[kind] == nil {
			schemas[kind] = schemaOf(t, kind)
		}
		if err := schemas[kind].Validate(object); err != nil {
			t.Errorf("%s: %v\n%s", kind, err, document)
		}
	}
}

// Without this, a schema that accepts everything would go unnoticed.
func TestSchemasRefuseMisspelledMissingAndMistypedFields(t *testing.T) {
	const good = `{apiVersion: v1, kind: Service, metadata: {name: a},
		spec: {ports: [{port: 80, targetPort: http}]}}`
	accepted(t, good)
	schema := schemaOf(t, "v1 Service")
	for _, change := range [][2]string{{"targetPort", "targetPorts"}, {"port: 80, ", ""},
		{"80", `"80"`}, {"metadata: {name: a}", "metadata: {names: a}"}} {
		var object any
		bad := strings.Replace(good, change[0], change[1], 1)
		if err := yaml.Unmarshal([]byte(bad), &object); err != nil {
			t.Fatal(err)
		}
		if bad == good || schema.Validate(object) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	accepted(t, `{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: a},
		spec: {scaleTargetRef: {name: a}, triggers: [{type: cron, metadata: {start: a}}]}}`)
}
