// Package apitest validates the answers of a running server against the description of its API,
// api/openapi.yaml. It is a separate module, because users of the packages should not
// depend on OpenAPI validators.
package apitest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"go.yaml.in/yaml/v3"
)

type description struct {
	model *openapi3.T
	paths []path
}

type path struct {
	template string
	pattern  *regexp.Regexp
	item     *openapi3.PathItem
}

// braces matches parameters; a key is the rest of the path.
var braces = regexp.MustCompile(`\\\{[a-z]+\\\}`)

func source(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// load reads and validates the description.
func load(t *testing.T) *openapi3.T {
	t.Helper()
	model, err := parse(source(t))
	if err != nil {
		t.Fatalf("openapi.yaml is no OpenAPI 3.1: %v", err)
	}
	return model
}

var codes = regexp.MustCompile(`^([1-5]([0-9]{2}|XX)|default)$`)

// parse replaces aliases by what they stand for, so that inOrder knows the place of each member.
func parse(text []byte) (*openapi3.T, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	expand(&document)
	text, err := yaml.Marshal(&document)
	if err != nil {
		return nil, err
	}
	loader := openapi3.NewLoader()
	loader.IncludeOrigin = true
	model, err := loader.LoadFromData(text)
	if err != nil {
		return nil, err
	}
	for template, item := range model.Paths.Map() {
		for method, o := range item.Operations() {
			for code := range o.Responses.Map() {
				if !codes.MatchString(code) {
					return nil, fmt.Errorf("%s %s answers %q", method, template, code)
				}
			}
		}
	}
	return model, model.Validate(loader.Context, openapi3.EnableSchemaFormatValidation())
}

func expand(n *yaml.Node) {
	for i, c := range n.Content {
		if c.Kind == yaml.AliasNode {
			c = c.Alias
		}
		c.Anchor = ""
		n.Content[i] = c
		expand(c)
	}
}

// inOrder iterates in the order of the document. Values are pointers to structs with an Origin.
func inOrder[V any](all map[string]V) iter.Seq2[string, V] {
	place := func(name string) *openapi3.Location {
		v := reflect.ValueOf(all[name]).Elem().FieldByName("Origin")
		return v.Interface().(*openapi3.Origin).Key
	}
	return func(yield func(string, V) bool) {
		for _, name := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
			p, q := place(a), place(b)
			return cmp.Or(p.Line-q.Line, p.Column-q.Column)
		}) {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}

func open(t *testing.T) *description {
	t.Helper()
	model := load(t)
	shut(model)
	d := &description{model: model}
	for template, item := range inOrder(model.Paths.Map()) {
		pattern := braces.ReplaceAllStringFunc(regexp.QuoteMeta(template), func(b string) string {
			if b == `\{key\}` {
				return `.*`
			}
			return `[^/]+`
		})
		d.paths = append(d.paths, path{template, regexp.MustCompile("^" + pattern + "$"), item})
	}
	slices.SortStableFunc(d.paths, func(a, b path) int {
		return strings.Count(a.template, "{") - strings.Count(b.template, "{")
	})
	return d
}

func (d *description) find(method, escaped string) *openapi3.Operation {
	for _, p := range d.paths {
		if o := p.item.GetOperation(method); o != nil && p.pattern.MatchString(escaped) {
			return o
		}
	}
	return nil
}

func response(o *openapi3.Operation, status int) (as string, r *openapi3.Response) {
	if r := o.Responses.Status(status); r != nil {
		return strconv.Itoa(status), r.Value
	}
	return "", nil
}

var transport = []string{"Date", "Content-Length", "Content-Type", "Connection",
	"Transfer-Encoding", "Vary"}

// hold reports how an answer differs from the description. It returns the status that describes the
// answer.
func (d *description) hold(o *openapi3.Operation, r *http.Response, body []byte,
	report func(format string, args ...any)) string {

	as, described := response(o, r.StatusCode)
	if described == nil {
		report("openapi.yaml: %s does not say that it answers %d: %s", o.OperationID,
			r.StatusCode, body)
		return ""
	}
	for name := range r.Header {
		known := slices.Contains(transport, name)
		for declared := range described.Headers {
			known = known || strings.EqualFold(declared, name)
		}
		if !known {
			report("openapi.yaml: %s does not say that its %s has the header %s", o.OperationID,
				as, name)
		}
	}
	if len(described.Content) == 0 && len(body) > 0 {
		report("openapi.yaml: %s does not say that its %s has a body: %s", o.OperationID, as,
			body)
	}
	bodies := [][]byte{body}
	if r.Header.Get("Content-Type") == "application/x-ndjson" {
		bodies = slices.Collect(bytes.Lines(body)) // the schema is of a line
	}
	// A 304 would not be validated, so the status is always 200.
	only := &openapi3.Operation{Responses: openapi3.NewResponses(
		openapi3.WithStatus(http.StatusOK, &openapi3.ResponseRef{Value: described}))}
	for _, body := range bodies {
		if err := openapi3filter.ValidateResponse(context.Background(),
			&openapi3filter.ResponseValidationInput{
				RequestValidationInput: &openapi3filter.RequestValidationInput{
					Request: r.Request, Route: &routers.Route{Spec: d.model, Operation: only}},
				Status: http.StatusOK, Header: r.Header,
				Body: io.NopCloser(bytes.NewReader(body)),
			}); err != nil {
			report("openapi.yaml: %s answers %d otherwise: %v\n%s", o.OperationID, r.StatusCode,
				err, body)
		}
	}
	return as
}

func request(t *testing.T, method, template string) *http.Request {
	t.Helper()
	url := "http://localhost:8080" + strings.NewReplacer("{id}", "1", "{job}", "p:1", "{", "",
		"}", "").Replace(template)
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shut rejects members that are not described, wherever a schema is used. Schemas that others
// combine stay open themselves.
func shut(model *openapi3.T) {
	var all []*openapi3.Schema
	_ = model.WalkSchemas(func(_ string, s *openapi3.SchemaRef) error {
		all = append(all, s.Value)
		return nil
	})
	for _, s := range all {
		for name := range s.Properties {
			s.Properties[name] = closed(s.Properties[name])
		}
		s.Items = closed(s.Items)
		s.AdditionalProperties.Schema = closed(s.AdditionalProperties.Schema)
	}
	contents := func(r *openapi3.ResponseRef) {
		for _, m := range r.Value.Content {
			m.Schema = closed(m.Schema)
		}
	}
	for _, r := range model.Components.Responses {
		contents(r)
	}
	for _, item := range model.Paths.Map() {
		for _, o := range item.Operations() {
			for _, r := range o.Responses.Map() {
				if r.Ref == "" {
					contents(r)
				}
			}
		}
	}
}

func closed(s *openapi3.SchemaRef) *openapi3.SchemaRef {
	if s == nil || s.Value.Type == nil && s.Value.AllOf == nil && s.Value.OneOf == nil {
		return s // such as any JSON
	}
	return openapi3.NewSchemaRef("", &openapi3.Schema{AllOf: openapi3.SchemaRefs{s},
		UnevaluatedProperties: openapi3.BoolSchema{Has: new(false)}})
}

func fits(s *openapi3.SchemaRef, value any) error {
	return closed(s).Value.VisitJSON(value, openapi3.EnableJSONSchema2020())
}

func init() {
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.JSONBodyDecoder)
	openapi3filter.RegisterBodyDecoder("application/yaml", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.PlainBodyDecoder)
	openapi3.DefineStringFormatValidator("uri", openapi3.NewCallbackValidator(
		func(text string) error {
			if u, err := url.Parse(text); err != nil || !u.IsAbs() {
				return fmt.Errorf("%q is no absolute URI", text)
			}
			return nil
		}))
}

func TestExamplesAreOfTheirSchemas(t *testing.T) {
	d := open(t)
	n := 0
	check := func(where string, schema *openapi3.SchemaRef, value any) {
		t.Helper()
		n++
		if err := fits(schema, value); err != nil {
			t.Errorf("an example of %s: %v", where, err)
		}
	}
	content := func(where string, all openapi3.Content) {
		for kind, m := range all {
			for name, e := range m.Examples {
				check(where+" "+kind+" "+name, m.Schema, e.Value.Value)
			}
		}
	}
	for _, p := range d.paths {
		for method, o := range p.item.Operations() {
			if o.RequestBody != nil {
				content(method+" "+p.template, o.RequestBody.Value.Content)
			}
			for code, r := range o.Responses.Map() {
				content(method+" "+p.template+" "+code, r.Value.Content)
			}
		}
	}
	for name, schema := range d.model.Components.Schemas {
		for _, e := range schema.Value.Examples {
			check(name, schema, e)
		}
	}
	if n < 60 {
		t.Errorf("only %d examples", n)
	}
}

type seen struct {
	mu      sync.Mutex
	answers map[string]map[string]bool
}

func (s *seen) add(operation, code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers[operation] == nil {
		s.answers[operation] = map[string]bool{}
	}
	s.answers[operation][code] = true
}

// complete requires each answer of the description except for 503, because some operations do not
// need NATS.
func (s *seen) complete(t *testing.T, d *description) {
	t.Helper()
	for _, p := range d.paths {
		for _, o := range p.item.Operations() {
			var never []string
			for code := range o.Responses.Map() {
				if !s.answers[o.OperationID][code] && code != "503" {
					never = append(never, code)
				}
			}
			if len(never) > 0 {
				t.Errorf("no request made %s answer %v (only %v): add one to the test",
					o.OperationID, never, slices.Sorted(maps.Keys(s.answers[o.OperationID])))
			}
		}
	}
}
