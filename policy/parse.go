package policy

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/nearest"
)

// Parse reads one policy from JSON. It is strict: unknown, misspelt and repeated fields, wrong
// types, durations without a unit, explicit zeros where zero would silently mean the default, and
// anything after the object are refused. All that is wrong is reported at once in an
// [*InvalidError]. Parse neither fills in defaults nor checks ranges: see [Policy.WithDefaults] and
// [Policy.Validate].
func Parse(data []byte) (Policy, error) {
	p, problems := parse(data)
	if err := Invalid(problems); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// Read is [Parse], [Policy.WithDefaults] and [Policy.Validate] in one: a policy that is ready for
// use, or an [*InvalidError] with everything that is wrong with it. A field that cannot be read is
// not also reported as missing.
func Read(data []byte) (Policy, error) {
	p, problems := parse(data)
	p = p.WithDefaults()
	unread := len(problems)
	for _, found := range p.Validate() {
		if !slices.ContainsFunc(problems[:unread], func(p Problem) bool {
			return within(found.Field, p.Field)
		}) {
			problems = append(problems, found)
		}
	}
	if err := Invalid(problems); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// within reports whether field is other or one of the fields inside it, or the other way round.
func within(field, other string) bool {
	return field == other || other == "" || strings.HasPrefix(field, other+".") ||
		strings.HasPrefix(other, field+".")
}

// parse reads what can be read and reports the rest.
func parse(data []byte) (Policy, []Problem) {
	var p Policy
	problems := decode(data, "", fieldsOf(&p))
	return p, problems
}

// fields says where each field of a JSON object goes: a pointer, another fields for an object,
// [zeroable], or a function that makes one of these when the field is given. encoding/json alone
// stops at the first error, does not say in which field a text was bad, and takes "NAME" for
// "name".
type fields map[string]any

// zeroable marks a field in which an explicit zero means something.
type zeroable struct{ into any }

// fieldsOf is where the fields of a struct go, by their names in JSON. Those tagged zero:"meant"
// are [zeroable].
func fieldsOf(document any) fields {
	fs := fields{}
	for field, value := range reflect.ValueOf(document).Elem().Fields() {
		if field.Anonymous {
			maps.Copy(fs, fieldsOf(value.Addr().Interface()))
		} else if name := jsonName(field); name != "-" {
			fs[name] = place(field, value)
		}
	}
	return fs
}

// place is where a field goes. What a pointer points at is allocated when the field is given and
// not null.
func place(field reflect.StructField, value reflect.Value) any {
	if value.Kind() == reflect.Pointer {
		return func() any {
			value.Set(reflect.New(value.Type().Elem()))
			return place(field, value.Elem())
		}
	}
	into := value.Addr().Interface()
	switch into.(type) {
	case json.Unmarshaler, encoding.TextUnmarshaler:
		return into
	}
	switch {
	case value.Kind() == reflect.Struct:
		return fieldsOf(into)
	case field.Tag.Get("zero") == "meant":
		return zeroable{into}
	}
	return into
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// given returns which fields of a struct are set, by their names in JSON.
func given(document any) map[string]bool {
	names := map[string]bool{}
	for field, value := range reflect.ValueOf(document).Fields() {
		if field.Anonymous {
			maps.Copy(names, given(value.Interface()))
		} else {
			names[jsonName(field)] = !value.IsZero()
		}
	}
	return names
}

// decode reads the object in data into fs and reports what it could not read, prefixing each
// field's name with at.
func decode(data []byte, at string, fs fields) []Problem {
	object, problems := split(data, at)
	for _, f := range object {
		into, known := fs[f.name]
		if !known {
			problems = append(problems,
				Problem{at + f.name,
					"unknown field" + nearest.Hint(f.name, slices.Sorted(maps.Keys(fs)))})
			continue
		}
		if bytes.Equal(f.value, []byte("null")) {
			continue
		}
		if allocate, ok := into.(func() any); ok {
			into = allocate()
		}
		if nested, ok := into.(fields); ok {
			problems = append(problems, decode(f.value, at+f.name+".", nested)...)
			continue
		}
		zero, mayBeZero := into.(zeroable)
		if mayBeZero {
			into = zero.into
		}
		if err := json.Unmarshal(f.value, into); err != nil {
			problems = append(problems, unreadable(at+f.name, f.value, into, err)...)
		} else if !mayBeZero && isZero(into) {
			problems = append(problems,
				Problem{at + f.name, fmt.Sprintf("must not be %s: leave it out for the default",
					f.value)})
		}
	}
	return problems
}

// isZero reports whether a number or a duration was read as zero. Empty text is left to Validate.
func isZero(into any) bool {
	switch v := into.(type) {
	case *int:
		return *v == 0
	case *int64:
		return *v == 0
	case *Duration:
		return *v == 0
	case *Size:
		return *v == 0
	}
	return false
}

type member struct {
	name  string
	value json.RawMessage
}

// split cuts a JSON object into its members, in order.
func split(data []byte, at string) ([]member, []Problem) {
	place := strings.TrimSuffix(at, ".")
	in := json.NewDecoder(bytes.NewReader(data))
	if opening, err := in.Token(); err != nil {
		return nil, []Problem{{place, "is not JSON: " + err.Error()}}
	} else if opening != json.Delim('{') {
		return nil, []Problem{{place, fmt.Sprintf("want fields, not %s", kind(data))}}
	}
	var members []member
	var problems []Problem
	for in.More() {
		name, err := in.Token()
		var value json.RawMessage
		if err == nil {
			err = in.Decode(&value)
		}
		if err != nil {
			return members, append(problems, Problem{place, "is not JSON: " + err.Error()})
		}
		field := name.(string) // the decoder accepts nothing else as a member's name
		if slices.ContainsFunc(members, func(m member) bool { return m.name == field }) {
			problems = append(problems, Problem{at + field, "is given twice"})
			continue
		}
		members = append(members, member{field, value})
	}
	if _, err := in.Token(); err != nil {
		problems = append(problems, Problem{place, "is not JSON: " + err.Error()})
	} else if rest := bytes.TrimSpace(data[in.InputOffset():]); len(rest) > 0 {
		problems = append(problems, Problem{place, "something follows the object"})
	}
	return members, problems
}

// unreadable turns an error of encoding/json into words about the field.
func unreadable(field string, value json.RawMessage, into any, err error) []Problem {
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		var problems []Problem
		for _, p := range invalid.Problems {
			inner := strings.TrimSuffix("."+p.Field, ".")
			problems = append(problems,
				Problem{field + strings.Replace(inner, ".[", "[", 1), p.Reason})
		}
		return problems
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
		return []Problem{{field, err.Error()}}
	}
	wanted := "text"
	switch into.(type) {
	case *Duration:
		wanted = "a duration with a unit, such as 30s or 1d"
	case *algorithms.Rate:
		wanted = "a rate such as 96/s or 3/10s"
	case *bool, **bool:
		wanted = "true or false"
	case *Forward, *[]string:
		wanted = "a list of names"
	case *int64, *int:
		wanted = "a whole number"
		if kind(value) == "a number" && !bytes.ContainsAny(value, ".eE") {
			return []Problem{{field, shorten(value) + ": is too large"}}
		}
	}
	return []Problem{{field, fmt.Sprintf("%s: want %s", shorten(value), wanted)}}
}

// kind names the kind of a JSON value for a message.
func kind(value []byte) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return "nothing"
	}
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "text"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// shorten keeps a message readable whatever was in the file.
func shorten(value []byte) string {
	const most = 60
	if len(value) <= most {
		return string(value)
	}
	return strings.ToValidUTF8(string(value[:most]), "") + "…"
}
