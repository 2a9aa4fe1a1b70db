package policy

import (
	"reflect"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/internal/base/decode"
	"github.com/penstock-mq/penstock/internal/base/strict"
)

// Parse reads a policy from JSON. It rejects unknown and repeated fields, wrong types, durations
// without a unit, zeros that would mean the default, and trailing text, in an [*InvalidError]. See
// [Policy.WithDefaults] and [Policy.Validate].
func Parse(data []byte) (Policy, error) { return parse[Policy](data) }

func parse[T any](data []byte) (document T, err error) {
	if unread := read(data, &document); len(unread) > 0 {
		var none T
		return none, Invalid(unread)
	}
	return document, nil
}

func read(data []byte, into any) (problems []Problem) {
	for _, p := range strict.JSON(data, into) {
		problems = append(problems, Problem{p.Place, p.Reason})
	}
	return problems
}

// Read is [Parse], [Policy.WithDefaults] and [Policy.Validate]. It does not report an unreadable
// field as missing, too.
func Read(data []byte) (Policy, error) {
	var p Policy
	unread := read(data, &p)
	p = p.WithDefaults()
	found := slices.DeleteFunc(p.Validate(), func(found Problem) bool {
		return slices.ContainsFunc(unread, func(u Problem) bool {
			return within(found.Field, u.Field)
		})
	})
	if err := Invalid(append(unread, found...)); err != nil {
		return Policy{}, err
	}
	return p, nil
}

func given(document any) map[string]bool {
	names, value := map[string]bool{}, reflect.ValueOf(document)
	for _, field := range decode.Fields(value.Type()) {
		if !value.FieldByIndex(field.Index).IsZero() {
			names[field.Name] = true
		}
	}
	return names
}

// within reports whether a place is, or is inside, outer.
func within(place, outer string) bool {
	rest, ok := strings.CutPrefix(place, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}
