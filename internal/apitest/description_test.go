// Package apitest validates the answers of a running server against the description of its API,
// admission/httpapi/openapi.yaml. It is a separate module, because users of the packages should not
// depend on OpenAPI validators.
package apitest

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
)

type description struct {
	model     *v3.Document
	validator validator.Validator
	paths     []path
}

type path struct {
	template string
	pattern  *regexp.Regexp
	item     *v3.PathItem
}

// braces matches parameters; a key is the rest of the path.
var braces = regexp.MustCompile(`\\\{[a-z]+\\\}`)

func open(t *testing.T) *description {
	t.Helper()
	text, err := os.ReadFile("../../admission/httpapi/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	document, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	model, err := document.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(document, strictly...)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, errs := v.ValidateDocument(); !ok {
		t.Fatalf("openapi.yaml is no OpenAPI 3.1: %s", explain(errs))
	}
	d := &description{model: &model.Model, validator: v}
	for template, item := range model.Model.Paths.PathItems.FromOldest() {
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

func (d *description) find(method, escaped string) (template string, o *v3.Operation) {
	for _, p := range d.paths {
		if !p.pattern.MatchString(escaped) {
			continue
		}
		template = p.template
		if o := p.item.GetOperations().GetOrZero(strings.ToLower(method)); o != nil {
			return template, o
		}
	}
	return template, nil
}

func response(o *v3.Operation, status int) (as string, r *v3.Response) {
	code := strconv.Itoa(status)
	for _, as := range []string{code, code[:1] + "XX"} {
		if r := o.Responses.Codes.GetOrZero(as); r != nil {
			return as, r
		}
	}
	return "", nil
}

var transport = []string{"Date", "Content-Length", "Content-Type", "Connection",
	"Transfer-Encoding", "Vary"}

func (d *description) hold(t *testing.T, template string, o *v3.Operation, r *http.Response,
	body []byte) string {

	t.Helper()
	as, described := response(o, r.StatusCode)
	if described == nil {
		t.Errorf("openapi.yaml: %s does not say that it answers %d: %s", o.OperationId,
			r.StatusCode, body)
		return ""
	}
	for name := range r.Header {
		known := slices.Contains(transport, name)
		if described.Headers != nil {
			for declared := range described.Headers.KeysFromOldest() {
				known = known || strings.EqualFold(declared, name)
			}
		}
		if !known {
			t.Errorf("openapi.yaml: %s does not say that its %s has the header %s", o.OperationId,
				as, name)
		}
	}
	if (described.Content == nil || described.Content.Len() == 0) && len(body) > 0 {
		t.Errorf("openapi.yaml: %s does not say that its %s has a body: %s", o.OperationId, as,
			body)
	}
	bodies := [][]byte{body}
	if r.Header.Get("Content-Type") == "application/x-ndjson" {
		bodies = slices.Collect(bytes.Lines(body)) // the schema is of a line
	}
	for _, body := range bodies {
		r.Body = io.NopCloser(bytes.NewReader(body))
		if ok, errs := d.validator.ValidateHttpResponse(request(t, r.Request.Method, template),
			r); !ok {
			t.Errorf("openapi.yaml: %s answers %d otherwise: %s\n%s", o.OperationId, r.StatusCode,
				explain(errs), body)
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

func explain(errs []*errors.ValidationError) string {
	var text strings.Builder
	for _, e := range errs {
		text.WriteString("\n  " + e.Message + ": " + e.Reason)
		for _, s := range e.SchemaValidationErrors {
			text.WriteString("\n    " + s.FieldPath + ": " + s.Reason)
		}
	}
	return text.String()
}

// strictly rejects members that are not described. Objects with arbitrary names must be listed.
var strictly = []config.Option{config.WithStrictMode(), config.WithFormatAssertions(),
	config.WithStrictIgnorePaths("$.body.header.*", "$.body.reply.header.*",
		"$.body.drainers[*].policies.*",
		"$.body.unanswered.*", "$.body.depths.*", "$.body.late_ms.*",
		"$.body.buckets[*].late_ms.*")}

func strict() schema_validation.SchemaValidator {
	return schema_validation.NewSchemaValidator(strictly...)
}

func TestExamplesAreOfTheirSchemas(t *testing.T) {
	d := open(t)
	schemas := strict()
	n := 0
	check := func(where string, schema *base.SchemaProxy,
		example interface{ Decode(any) error }) {

		t.Helper()
		var value any
		if err := example.Decode(&value); err != nil {
			t.Fatal(err)
		}
		n++
		if ok, errs := schemas.ValidateSchemaObject(schema.Schema(), value); !ok {
			t.Errorf("an example of %s: %s", where, explain(errs))
		}
	}
	media := func(where string, kind string, m *v3.MediaType) {
		if m.Examples == nil {
			return
		}
		for name, e := range m.Examples.FromOldest() {
			check(where+" "+kind+" "+name, m.Schema, e.Value)
		}
	}
	for _, p := range d.paths {
		for method, o := range p.item.GetOperations().FromOldest() {
			if o.RequestBody != nil {
				for kind, m := range o.RequestBody.Content.FromOldest() {
					media(method+" "+p.template, kind, m)
				}
			}
			for code, r := range o.Responses.Codes.FromOldest() {
				if r.Content == nil {
					continue
				}
				for kind, m := range r.Content.FromOldest() {
					media(method+" "+p.template+" "+code, kind, m)
				}
			}
		}
	}
	for name, schema := range d.model.Components.Schemas.FromOldest() {
		for _, e := range schema.Schema().Examples {
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

// complete requires each answer of the description except for 5XX, because some operations do not
// need NATS.
func (s *seen) complete(t *testing.T, d *description) {
	t.Helper()
	for _, p := range d.paths {
		for _, o := range p.item.GetOperations().FromOldest() {
			var never []string
			for code := range o.Responses.Codes.KeysFromOldest() {
				if !s.answers[o.OperationId][code] && code != "5XX" {
					never = append(never, code)
				}
			}
			if len(never) > 0 {
				t.Errorf("no request made %s answer %v (only %v): add one to the test",
					o.OperationId, never, slices.Sorted(maps.Keys(s.answers[o.OperationId])))
			}
		}
	}
}
