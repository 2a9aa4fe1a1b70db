package apitest

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// schemas are generated from structs and their comments.
type schemas struct {
	reflector *jsonschema.Reflector
	types     map[string]reflect.Type // by the names of schemas
	all       map[string]*jsonschema.Schema
}

// names are those of schemas that differ from their type's. Orval names a parameter after the
// schema of a body, so that must not be the name of one in the path.
var names = map[reflect.Type]string{
	reflect.TypeFor[policy.Policy]():   "PolicySettings",
	reflect.TypeFor[manage.Policy]():   "PolicyDocument",
	reflect.TypeFor[manage.Override](): "OverrideDocument",
	reflect.TypeFor[manage.Bucket]():   "BucketDetail",
	reflect.TypeFor[audit.Standing]():  "Audit",
	reflect.TypeFor[audit.Window]():    "AuditedWindow",
	reflect.TypeFor[policy.Dead]():     "DeadSettings",
}

// texts are types of policies that are text on the wire.
var texts = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[algorithms.Rate](): {Description: "a number per s, m, h, d, w or duration",
		Examples: []any{"96/s", "3/10s"}},
	reflect.TypeFor[policy.Duration](): {Description: "with a unit up to days and weeks",
		Examples: []any{"30s", "1d"}},
	reflect.TypeFor[policy.Size](): {Description: "a number with a unit", Examples: []any{"1GiB"}},
}

func words[T ~string](all ...T) (values []any) {
	for _, word := range all {
		values = append(values, string(word))
	}
	return values
}

// enums are the values of types.
var enums = map[reflect.Type][]any{
	reflect.TypeFor[policy.Algorithm](): words("token_bucket", "leaking_bucket", "fixed_window",
		"sliding_log", "sliding_counter"),
	reflect.TypeFor[policy.Count](): words(policy.CountAll, policy.CountAccepted),
	reflect.TypeFor[policy.CountFrom](): words(policy.CountFromStart, policy.CountFromAnswer,
		policy.CountFromEnd),
	reflect.TypeFor[policy.OnStoreError](): words(policy.Open, policy.Closed, policy.Local),
	reflect.TypeFor[policy.AnswerMeans](): words(policy.MeansThrottled, policy.MeansRetry,
		policy.MeansPermanent, policy.MeansDone),
}

// values are those of fields of type string, or of its items.
var values = map[string][]any{
	"Accepted.verdict":      words("allowed", "queued"),
	"Accepted.no_result":    words("time", "repeat", "busy", "stopping"),
	"Outcome.end":           words(queue.EndDone, queue.EndDead, queue.EndCancelled),
	"Rejected.verdict":      words("rejected"),
	"Rejected.reason":       words("queue-full", "rate-limited", "deadline-unreachable"),
	"Job.state":             words(append(manage.JobStates, manage.JobCancelled)...),
	"EndedJob.state":        words(ends...),
	"Event.type":            words(queue.EventTypes...),
	"PolicyDocument.source": words(inforce.SourceFile, inforce.SourceAPI),
	"PolicyDocument.state":  words(inforce.StateLive, inforce.StateDraining),
	"Settlement.answer":     words(job.SettledAnswered, job.SettledUnanswered, job.SettledUnsent),
	"AnswerWait.unit":       words(policy.AnswerUnits...),
	"Grant.rights":          words("submit", "check", "read", "operate", "admin"),
	"ScheduleRun.outcome": append(words("missed", "unknown", "stored", job.Waiting, job.Delayed,
		job.Running, job.Finishing), words(ends...)...),
}

var ends = []queue.End{queue.EndDead, queue.EndReplayed, queue.EndCancelled, queue.EndPurged,
	queue.EndDone}

// optional are fields that a request may leave out although an answer has them.
var optional = []string{"PolicySettings.name", "Limit.key"}

// always are fields that are never missing or null, although their type permits it.
var always = []string{"BatchJob.key", "AuditEntry.id", "AuditEntry.at", "Rejected.detail",
	"Rejected.reason", "Rejected.violated-policies", "Refused.detail",
	"Refused.violated-policies"}

func reflectAll(t *testing.T) *schemas {
	t.Helper()
	s := &schemas{types: map[string]reflect.Type{}, all: map[string]*jsonschema.Schema{}}
	s.reflector = &jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: true,
		Mapper: s.mapped, Namer: s.named}
	for _, dir := range []string{"api", "policy", "internal/queue/inforce",
		"internal/admission/manage", "internal/server/audit"} {
		err := s.reflector.AddGoComments("github.com/penstock-mq/penstock/internal/apitest",
			"../../"+dir, jsonschema.WithFullComment())
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *schemas) named(of reflect.Type) string {
	name := of.Name()
	if other := names[of]; other != "" {
		name = other
	}
	if name != "" {
		s.types[name] = of
	}
	return name
}

func (s *schemas) mapped(of reflect.Type) *jsonschema.Schema {
	switch text := texts[of]; {
	case text != nil:
		text.Type = "string"
		s.all[of.Name()] = text
		return &jsonschema.Schema{Ref: component + of.Name()}
	case enums[of] != nil:
		return &jsonschema.Schema{Type: "string", Enum: enums[of]}
	case of == reflect.TypeFor[json.Number]():
		return &jsonschema.Schema{Type: "integer"}
	case of == reflect.TypeFor[policy.Queue]():
		capacity := jsonschema.NewProperties()
		capacity.Set("capacity", &jsonschema.Schema{Type: "integer"})
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "boolean"},
			{Type: "object", Properties: capacity}}}
	}
	return nil
}

const component = "#/components/schemas/"

// of returns a reference to the schema of a struct.
func (s *schemas) of(document any) *jsonschema.Schema {
	root := s.reflector.ReflectFromType(reflect.TypeOf(document))
	for name, definition := range root.Definitions {
		if s.all[name] == nil {
			s.all[name] = definition
			s.finish(name, definition, s.types[name], false)
		}
	}
	return &jsonschema.Schema{Ref: component + strings.TrimPrefix(root.Ref, "#/$defs/")}
}

// finish adds to a schema what its fields do not say.
func (s *schemas) finish(name string, schema *jsonschema.Schema, of reflect.Type, maybe bool) {
	schema.Description = prose(schema.Description)
	if schema.Properties == nil {
		return
	}
	for field := range of.Fields() {
		member, omit, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && member == "" {
			inner, pointer := field.Type, field.Type.Kind() == reflect.Pointer
			if pointer {
				inner = inner.Elem()
			}
			s.finish(name, schema, inner, maybe || pointer)
			continue
		}
		property, ok := schema.Properties.Get(member)
		if !ok {
			continue
		}
		place := name + "." + member
		if maybe || slices.Contains(optional, place) {
			schema.Required = slices.DeleteFunc(schema.Required,
				func(n string) bool { return n == member })
		}
		if slices.Contains(always, place) && !slices.Contains(schema.Required, member) {
			schema.Required = append(schema.Required, member)
		}
		if field.Type.Kind() == reflect.Pointer && omit == "" && property.Type != "" &&
			!slices.Contains(always, place) {
			property.Extras = map[string]any{"type": []string{property.Type, "null"}}
			property.Type = ""
		}
		property.Description = prose(s.jsonNames(of, property.Description))
		if place == name+".type" && strings.HasPrefix(of.Name(), "Problem") {
			property.Format = "uri"
		}
		to := property
		if property.Items != nil {
			to = property.Items
		}
		if found := values[place]; found != nil {
			to.Enum = found
		}
	}
	if name == "Settlement" {
		status, _ := schema.Properties.Get("status")
		status.OneOf = []*jsonschema.Schema{
			{Type: "string", Enum: words(job.OpProgress, job.OpAnswered, job.SettledDone,
				job.SettledFailed, job.SettledUnavailable, job.SettledUnreached,
				job.SettledThrottled, job.SettledReturned)},
			{Type: "integer", Minimum: "100", Maximum: "599"}}
	}
}

var goName = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`)

// jsonNames replaces the names of fields in comments of the packages of policies by their names on
// the wire.
func (s *schemas) jsonNames(of reflect.Type, text string) string {
	switch of.PkgPath() {
	case reflect.TypeFor[policy.Policy]().PkgPath(), reflect.TypeFor[inforce.Override]().PkgPath():
	default:
		return text
	}
	return goName.ReplaceAllStringFunc(text, func(word string) string {
		if field, ok := of.FieldByName(word); ok {
			if member, _, _ := strings.Cut(field.Tag.Get("json"), ","); member != "" {
				return "`" + member + "`"
			}
		}
		return word
	})
}

var link = regexp.MustCompile(`\[([A-Z]\w*(\.\w+)?)\]`)

// prose joins the lines of the paragraphs and list items of a comment.
func prose(text string) string {
	var joined []string
	for paragraph := range strings.SplitSeq(link.ReplaceAllString(text, "$1"), "\n\n") {
		items := strings.Split(strings.TrimSpace(paragraph), "\n")
		for i := len(items) - 1; i > 0; i-- {
			if next := strings.TrimSpace(items[i]); !strings.HasPrefix(next, "- ") {
				items[i-1] = strings.TrimSpace(items[i-1]) + " " + next
				items = slices.Delete(items, i, i+1)
			} else {
				items[i] = next
			}
		}
		joined = append(joined, strings.Join(items, "\n"))
	}
	return strings.Join(joined, "\n\n")
}

// components returns all schemas in order. Named lists and maps are written where they are used.
func (s *schemas) components(t *testing.T) members {
	t.Helper()
	var all members
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		schema := s.all[name]
		if schema.Type == "object" && schema.Properties != nil || schema.Type == "string" {
			all = append(all, name, schema)
		}
	}
	return all
}

// inline returns a schema's JSON with references to components, and what they stand for in place of
// those to named lists and maps.
func (s *schemas) inline(text []byte) []byte {
	return reference.ReplaceAllFunc(text, func(found []byte) []byte {
		name := string(reference.FindSubmatch(found)[1])
		schema := s.all[name]
		if schema == nil || schema.Properties != nil || schema.Type == "string" {
			return []byte(`"$ref":"` + component + name + `"`)
		}
		used := *schema
		used.Description = "" // its place may have one
		inner, err := json.Marshal(&used)
		if err != nil {
			panic(err)
		}
		return s.inline(inner[1 : len(inner)-1])
	})
}

var reference = regexp.MustCompile(`"\$ref":"#/\$defs/(\w+)"`)

func TestStructsAreReadable(t *testing.T) {
	s := reflectAll(t)
	s.of(api.Bucket{})
	if got := s.all["Bucket"]; !slices.Equal(got.Required, []string{"key", "partition", "depth"}) {
		t.Errorf("a bucket requires %v", got.Required)
	}
}
