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

// description returns where a kind is described: in which file of which module, and at which place.
func description(apiVersion, kind string) (module, file, place string) {
	group, version, ok := strings.Cut(apiVersion, "/")
	of := "apis__" + group + "__" + version
	switch {
	case !ok:
		of, group, version = "api__"+apiVersion, "core", apiVersion
	case group == "keda.sh":
		return kedaModule, "config/crd/bases/keda.sh_" + strings.ToLower(kind) + "s.yaml",
			"/spec/versions/0/schema/openAPIV3Schema"
	}
	return kubernetesModule, "api/openapi-spec/v3/" + of + "_openapi.json", "/components/schemas/" +
		"io.k8s.api." + strings.TrimSuffix(group, ".k8s.io") + "." + version + "." + kind
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

func schemaOf(t *testing.T, apiVersion, kind string) *jsonschema.Schema {
	t.Helper()
	module, file, place := description(apiVersion, kind)
	text, err := os.ReadFile(filepath.Join(directoryOf(t, module), file))
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil { // JSON is YAML
		t.Fatal(err)
	}
	refuseUnknown(document)
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("mem:///"+file, document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("mem:///" + file + "#" + place)
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
		version, kind := object["apiVersion"].(string), object["kind"].(string)
		if schemas[kind] == nil {
			schemas[kind] = schemaOf(t, version, kind)
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
	schema := schemaOf(t, "v1", "Service")
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
