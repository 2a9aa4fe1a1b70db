package httpapi

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
)

type operation struct {
	Right       string `yaml:"x-right"`
	OperationID string `yaml:"operationId"`
	Parameters  []struct {
		Name, In string
		Ref      string `yaml:"$ref"`
	}
}

// TestTheDescriptionHasTheRoutes compares methods, paths, rights and query parameters.
// internal/apitest checks the rest of openapi.yaml.
func TestTheDescriptionHasTheRoutes(t *testing.T) {
	var described struct {
		Paths      map[string]map[string]yaml.Node
		Components struct {
			Parameters map[string]struct{ Name, In string }
		}
	}
	if err := yaml.Unmarshal(description, &described); err != nil {
		t.Fatal(err)
	}
	queries := func(o operation) (names []string) {
		for _, p := range o.Parameters {
			if _, name, isRef := strings.Cut(p.Ref, "#/components/parameters/"); isRef {
				p.Name, p.In = described.Components.Parameters[name].Name,
					described.Components.Parameters[name].In
			}
			if p.In == "query" {
				names = append(names, p.Name)
			}
		}
		return names
	}
	known := map[string]bool{}
	for _, rt := range allRoutes() {
		path, query, _ := strings.Cut(rt.path, "?")
		name := rt.method + " " + strings.Replace(path, "{key...}", "{key}", 1)
		if slices.Contains(untold, rt.method+" "+path) {
			continue
		}
		known[name] = true
		_, path, _ = strings.Cut(name, " ")
		item := described.Paths[path]
		own, found := item[strings.ToLower(rt.method)]
		if !found {
			t.Errorf("openapi.yaml lacks %s: add it below paths:, beside one that is like it, "+
				"and a request for it to internal/apitest", name)
			continue
		}
		var all, o operation
		shared := item["parameters"]
		if err := errors.Join(own.Decode(&o), decodeIf(shared, &all.Parameters)); err != nil {
			t.Fatal(err)
		}
		if right := rt.right.String(); rt.right != 0 && o.Right != right ||
			rt.right == 0 && o.Right != "" {
			t.Errorf("openapi.yaml: %s has x-right: %q, and needs the right %s", name, o.Right,
				right)
		}
		want := strings.FieldsFunc(query, func(c rune) bool { return c == '&' })
		for i := range want {
			want[i], _, _ = strings.Cut(want[i], "=")
		}
		got := append(queries(all), queries(o)...)
		slices.Sort(want)
		slices.Sort(got)
		if rt.managed() && !slices.Equal(got, want) {
			t.Errorf("openapi.yaml: %s has the parameters %q in its query, and takes %q", name, got,
				want)
		}
	}
	for path, item := range described.Paths {
		for method := range item {
			name := strings.ToUpper(method) + " " + path
			if method != "parameters" && !known[name] {
				t.Errorf("openapi.yaml describes %s, which is not served", name)
			}
		}
	}
}

func decodeIf(node yaml.Node, into any) error {
	if node.IsZero() {
		return nil
	}
	return node.Decode(into)
}

// TestTheDescriptionHasTheFields compares schemas with the types of answers, because no request
// returns all of their fields.
func TestTheDescriptionHasTheFields(t *testing.T) {
	var described struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := yaml.Unmarshal(description, &described); err != nil {
		t.Fatal(err)
	}
	schemas := described.Components.Schemas
	for name, of := range map[string]reflect.Type{
		"Policy":           reflect.TypeFor[policy.Policy](),
		"PolicyDocument":   reflect.TypeFor[manage.Policy](),
		"Override":         reflect.TypeFor[policy.Override](),
		"OverrideDocument": reflect.TypeFor[manage.Override](),
		"Job":              reflect.TypeFor[api.Job](),
		"Jobs":             reflect.TypeFor[api.Jobs](),
		"EndedJob":         reflect.TypeFor[api.EndedJob](),
		"Bucket":           reflect.TypeFor[manage.Bucket](),
		"DeadPolicy":       reflect.TypeFor[api.DeadPolicy](),
		"DeadLetter":       reflect.TypeFor[api.DeadLetter](),
		"Day":              reflect.TypeFor[api.Day](),
		"Replayed":         reflect.TypeFor[api.Replayed](),
		"Drainer":          reflect.TypeFor[api.Drainer](),
		"Event":            reflect.TypeFor[api.Event](),
		"Stats":            reflect.TypeFor[api.Stats](),
		"Readiness":        reflect.TypeFor[api.Readiness](),
	} {
		compareFields(t, name, schemas[name], of, schemas)
	}
}

type schema struct {
	Ref        string   `yaml:"$ref"`
	AllOf      []schema `yaml:"allOf"`
	AnyOf      []schema `yaml:"anyOf"`
	Properties map[string]schema
	Items      *schema
}

func (s schema) flat(all map[string]schema) map[string]schema {
	properties := map[string]schema{}
	if _, name, isRef := strings.Cut(s.Ref, "#/components/schemas/"); isRef {
		maps.Copy(properties, all[name].flat(all))
	}
	for _, part := range slices.Concat(s.AllOf, s.AnyOf) {
		maps.Copy(properties, part.flat(all))
	}
	maps.Copy(properties, s.Properties)
	return properties
}

func compareFields(t *testing.T, where string, s schema, of reflect.Type,
	all map[string]schema) {

	t.Helper()
	fields, properties := jsonFields(of), s.flat(all)
	for name := range properties {
		if fields[name] == nil {
			t.Errorf("openapi.yaml: %s has %s, which no answer has", where, name)
		}
	}
	for name, field := range fields {
		property, found := properties[name]
		if !found {
			t.Errorf("openapi.yaml: %s lacks %s", where, name)
			continue
		}
		for field.Kind() == reflect.Pointer || field.Kind() == reflect.Slice {
			if field.Kind() == reflect.Slice && property.Items != nil {
				property = *property.Items
			}
			field = field.Elem()
		}
		if inside := property.flat(all); field.Kind() == reflect.Struct && len(inside) > 0 {
			compareFields(t, where+"."+name, property, field, all)
		}
	}
}

func jsonFields(of reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		embedded := field.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case field.Anonymous && name == "":
			for inner, kind := range jsonFields(embedded) {
				if fields[inner] == nil {
					fields[inner] = kind
				}
			}
		case name != "" && name != "-":
			fields[name] = field.Type
		}
	}
	return fields
}

func TestTheDescriptionIsForEverybody(t *testing.T) {
	h := New(&fakeService{}, Options{Clients: clientsOf(t, "ci rights: [check], policies: [p]")})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.yaml", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), "# The HTTP API") {
		t.Errorf("%d %.40q", w.Code, w.Body)
	}
}
