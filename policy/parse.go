package policy

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/internal/strict"
)

// Parse reads one policy from JSON. It is strict: unknown, misspelt and repeated fields, wrong
// types, durations without a unit, explicit zeros where zero would silently mean the default, and
// anything after the object are refused. All that is wrong is reported at once in an
// [*InvalidError]. Parse neither fills in defaults nor checks ranges: see [Policy.WithDefaults] and
// [Policy.Validate].
func Parse(data []byte) (Policy, error) { return parse[Policy](data) }

// parse returns a document, or an [*InvalidError].
func parse[T any](data []byte) (document T, err error) {
	if unread := read(data, &document); len(unread) > 0 {
		var none T
		return none, Invalid(unread)
	}
	return document, nil
}

// read reads what can be read and reports the rest.
func read(data []byte, into any) (problems []Problem) {
	for _, p := range strict.JSON(data, into) {
		problems = append(problems, Problem{p.Place, p.Reason})
	}
	return problems
}

// Read is [Parse], [Policy.WithDefaults] and [Policy.Validate] in one: a policy that is ready for
// use, or an [*InvalidError] with everything that is wrong with it. A field that cannot be read is
// not also reported as missing.
func Read(data []byte) (Policy, error) {
	var p Policy
	unread := read(data, &p)
	p = p.WithDefaults()
	found := slices.DeleteFunc(p.Validate(), func(found Problem) bool {
		return slices.ContainsFunc(unread, func(u Problem) bool {
			return strict.Within(found.Field, u.Field)
		})
	})
	if err := Invalid(append(unread, found...)); err != nil {
		return Policy{}, err
	}
	return p, nil
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

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}
