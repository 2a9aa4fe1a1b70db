package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-mq/penstock/internal/strict"
)

// Changes lists differing fields, such as "outflow 20/s → 50/s".
type Changes []string

func (c Changes) String() string { return strings.Join(c, ", ") }

// Diff lists the differing fields of policies with defaults, or of overrides. "none" is a missing
// field, and "the policy's" one of an override.
func Diff[T Policy | Override](before, after T) Changes {
	was, is := flatten(before), flatten(after)
	var changes Changes
	value := func(fields []strict.Leaf, place string) (text string, found bool) {
		for _, f := range fields {
			if f.Place == place {
				return f.Text, true
			}
		}
		if place == "paused" {
			return "false", false
		}
		if _, own := any(before).(Override); own {
			return "the policy's", false
		}
		return "none", false
	}
	for _, f := range is {
		if old, _ := value(was, f.Place); old != f.Text {
			changes = append(changes, fmt.Sprintf("%s %s → %s", f.Place, old, f.Text))
		}
	}
	for _, f := range was {
		if now, found := value(is, f.Place); !found {
			changes = append(changes, fmt.Sprintf("%s %s → %s", f.Place, f.Text, now))
		}
	}
	return changes
}

// Fields lists the fields of a policy, such as "outflow 20/s".
func Fields(p Policy) (fields Changes) {
	for _, f := range flatten(p) {
		fields = append(fields, f.Place+" "+f.Text)
	}
	return fields
}

// flatten lists fields such as "limits[1].key" as text.
func flatten(document any) []strict.Leaf {
	if p, ok := document.(Policy); ok {
		document = p.WithDefaults()
	}
	data, err := json.Marshal(document)
	if err != nil {
		return nil
	}
	leaves, _ := strict.Leaves(data)
	return leaves
}
