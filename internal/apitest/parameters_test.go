package apitest

import (
	"maps"
	"slices"

	"github.com/penstock-mq/penstock/internal/admission/httpapi"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

func (g *generator) query(p httpapi.Parameter, s section) members {
	text := s.items[p.Name]
	if text == "" {
		text = g.texts[parametersSection].items[p.Name]
	}
	if text == "" {
		g.t.Errorf("testdata/operations.txt does not describe the parameter %s", p.Name)
	}
	q := members{"name", p.Name, "in", "query", "description", text}
	for name, is := range requiredParameters {
		if name == p.Name && (is == nil || slices.Contains(is, s.summary)) {
			q = append(q, "required", true)
		}
	}
	schema, typed := querySchemas[p.Name]
	switch {
	case p.Number && p.Least == 0 && p.Most == 1:
		schema = members{"type", "integer", "enum", []any{0, 1}}
	case p.Number && p.Least == p.Most:
		schema = members{"type", "integer", "enum", []any{p.Most}}
	case p.Number:
		schema = members{"type", "integer", "minimum", p.Least}
		if p.Most < 1<<62 {
			schema = append(schema, "maximum", p.Most)
		}
		if p.Unset > 0 {
			schema = append(schema, "default", p.Unset)
		}
	case !typed:
		schema = members{"type", "string"}
	}
	return append(q, "schema", schema)
}

// parameters are those of paths and headers.
func (g *generator) parameters() (all members) {
	of := g.texts[parametersSection].items
	for _, p := range pathParameters {
		name := p[0].(string)
		all = append(all, p[1], members{"name", name, "in", "path", "required", true,
			"description", of[name], "schema", p[2]}.with("example", p[3]))
	}
	for _, name := range slices.Sorted(maps.Keys(g.headers)) {
		if of[name] == "" {
			g.t.Errorf("testdata/operations.txt does not describe the header %s", name)
		}
		schema, typed := headerSchemas[name]
		if !typed {
			schema = members{"type", "string"}
		}
		p := members{"name", name, "in", "header"}
		if name == "Penstock-Schedule" {
			p = append(p, "required", true)
		}
		all = append(all, name, append(p, "description", of[name], "schema", schema))
	}
	return all
}

var name = members{"type", "string", "default", "default", "pattern", "^[a-z0-9-]{1,32}$"}

var pathParameters = [][4]any{
	{"policy", "PolicyName", members{"type", "string", "pattern", "^[a-z0-9-]{1,32}$"}, "stripe"},
	{"key", "Key", members{"type", "string", "maxLength", 256}, "acme"},
	{"job", "JobID", members{"type", "string", "pattern", "^[a-z0-9-]{1,32}:[1-9][0-9]*$"},
		"stripe:42"},
	{"id", "Letter", members{"type", "integer", "minimum", 0}, ""},
}

// requiredParameters by the operations' summaries; nil: of all.
var requiredParameters = map[string][]string{"permit": nil, "paused": nil, "tag": {
	"Cancel a policy's jobs by tag, permanently and without dead letters.",
	"Cancel a bucket's jobs by tag, permanently and without dead letters."}}

var querySchemas = map[string]members{
	"state":    {"type", "string", "enum", manage.JobStates},
	"by":       {"type", "string", "enum", job.BucketOrders, "default", job.ByDepth},
	"tag":      {"type", "string", "pattern", `^[!-+\--~]{1,64}$`},
	"reason":   {"type", "string", "enum", job.Reasons},
	"wait":     {"type", "string", "examples", []any{"30s"}},
	"for":      {"type", "string", "examples", []any{"1h"}},
	"because":  {"type", "string", "maxLength", inforce.MaxBecause},
	"set":      name,
	"name":     name,
	"paused":   {"type", "integer", "enum", []any{0, 1}},
	"priority": {"type", "integer", "minimum", job.MinPriority, "maximum", job.MaxPriority},
	"cost":     {"type", "integer", "minimum", 1, "default", 1},
	"permit":   {"type", "string", "pattern", "^[A-Za-z0-9]{1,64}$"},
	"policy":   {"type", "string", "minLength", 1},
	"type":     {"type", "string", "minLength", 1},
}

var headerSchemas = map[string]members{
	"Idempotency-Key":        {"type", "string", "minLength", 1, "maxLength", 256},
	"Penstock-Max-Attempts":  {"type", "integer", "minimum", 1, "maximum", 1000},
	"Penstock-Priority":      {"type", "integer", "minimum", -9, "maximum", 9, "default", 0},
	"Penstock-Cost":          {"type", "integer", "minimum", 1, "maximum", 1000000, "default", 1},
	"Penstock-Path":          {"type", "string", "pattern", "^/"},
	"Penstock-Callback":      {"type", "string", "format", "uri"},
	"Penstock-Schedule-Name": name,
	"Penstock-Deadline":      {"type", "string", "examples", []any{"90s"}},
	"Penstock-Timeout":       {"type", "string", "examples", []any{"90s"}},
	"Penstock-Retention":     {"type", "string", "examples", []any{"1h"}},
	"Penstock-Unique":        {"type", "string", "examples", []any{"reindex"}},
}

// responseHeaders are components. Each one is of its own: generators name a type after it.
var responseHeaders = members{
	"Location", header("the job's URL", "string"),
	"Idempotent-Replayed", header("the job was accepted before", "string", "const", "true"),
	"X-Ratelimit-Limit", header("the limit of one key", "integer"),
	"X-Ratelimit-Remaining", header("units left; missing if none were counted", "integer"),
	"X-Ratelimit-Retry-After", header("as Retry-After", "integer", "minimum", 1),
	"RateLimit-Policy", header("draft-ietf-httpapi-ratelimit-headers, a structured field", "string",
		"examples", []any{`"signup";q=10;w=86400`}),
	"RateLimit", header("draft-ietf-httpapi-ratelimit-headers", "string", "examples",
		[]any{`"signup";r=3;t=60`}),
	"Retry-After", header("seconds to wait before retrying", "integer", "minimum", 1),
	"Retry-After-Ms", header("milliseconds to wait before retrying", "integer", "minimum", 1),
	"ETag", header("the revision", "string", "pattern", `^"[0-9]+"$`),
	"WWW-Authenticate", header("how to authenticate", "string"),
	"Accept-Patch", header("the content type to use", "string", "const",
		"application/merge-patch+json"),
	"Cache-Control", header("the stream is not stored", "string"),
	"X-Accel-Buffering", header("the stream is not buffered", "string"),
}

func header(text, kind string, more ...any) members {
	return members{"description", text, "schema", append(members{"type", kind}, more...)}
}
