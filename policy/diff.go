package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	value := func(fields []member, name string) string {
		if i := slices.IndexFunc(fields, func(m member) bool { return m.name == name }); i >= 0 {
			return string(fields[i].value)
		}
		return "none"
	}
	for _, f := range is {
		if old := value(was, f.name); old != string(f.value) {
			changes = append(changes, fmt.Sprintf("%s %s → %s", f.name, old, f.value))
		}
	}
	for _, f := range was {
		if value(is, f.name) == "none" {
			changes = append(changes, fmt.Sprintf("%s %s → none", f.name, f.value))
		}
	}
	return changes
}

// flatten lists the fields of a policy or an override, those inside others as in "retry.backoff"
// and "limits[1].key", with text as it is read by people.
func flatten(document any) []member {
	if p, ok := document.(Policy); ok {
		document = p.WithDefaults()
	}
	data, err := json.Marshal(document)
	if err != nil {
		return nil // a rate that cannot be written, which nothing valid has
	}
	var flat []member
	var walk func(name string, value json.RawMessage)
	walk = func(name string, value json.RawMessage) {
		switch value[0] {
		case '{':
			members, _ := split(value, "") // it has just been encoded
			for _, m := range members {
				walk(strings.TrimPrefix(name+"."+m.name, "."), m.value)
			}
		case '[':
			var list []json.RawMessage
			_ = json.Unmarshal(value, &list)
			for i, v := range list {
				walk(fmt.Sprintf("%s[%d]", name, i), v)
			}
		case '"':
			var text string
			_ = json.Unmarshal(value, &text)
			flat = append(flat, member{name, json.RawMessage(text)})
		default:
			flat = append(flat, member{name, value})
		}
	}
	walk("", data)
	return flat
}
