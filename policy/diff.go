package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-mq/penstock/internal/strict"
)

// Changes are the differences of two documents, one for each field, in the documents' order and
// words such as "outflow 20/s → 50/s".
type Changes []string

// String joins the changes to one line, for a log.
func (c Changes) String() string { return strings.Join(c, ", ") }

// Diff returns what is different in after, field by field; nothing when both are the same. A field
// that only one of them has is "none" in the other. Policies are compared with their defaults, so
// it makes no difference whether [Policy.WithDefaults] was applied before. Documents whose numbers
// no policy can have may compare as the same.
func Diff[T Policy | Override](before, after T) Changes {
	was, is := flatten(before), flatten(after)
	var changes Changes
	value := func(fields []strict.Leaf, place string) string {
		for _, f := range fields {
			if f.Place == place {
				return f.Text
			}
		}
		return "none"
	}
	for _, f := range is {
		if old := value(was, f.Place); old != f.Text {
			changes = append(changes, fmt.Sprintf("%s %s → %s", f.Place, old, f.Text))
		}
	}
	for _, f := range was {
		if value(is, f.Place) == "none" {
			changes = append(changes, fmt.Sprintf("%s %s → none", f.Place, f.Text))
		}
	}
	return changes
}

// flatten lists the fields of a policy or an override, those inside others as in "retry.backoff"
// and "limits[1].key", with text as it is read by people.
func flatten(document any) []strict.Leaf {
	if p, ok := document.(Policy); ok {
		document = p.WithDefaults()
	}
	data, err := json.Marshal(document)
	if err != nil {
		return nil // a rate that cannot be written, which nothing valid has
	}
	leaves, _ := strict.Leaves(data) // it has just been encoded
	return leaves
}
