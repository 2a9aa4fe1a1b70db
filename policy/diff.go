package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Changes lists differing fields, such as "outflow 20/s → 50/s".
type Changes []string

func (c Changes) String() string { return strings.Join(c, ", ") }

// Diff lists the differing fields of policies with defaults, or of overrides. "none" is a missing
// field, and "the policy's" one of an override.
func Diff[T Policy | Override](before, after T) (changes Changes) {
	was, is := flatten(before), flatten(after)
	missing := "none"
	if _, own := any(before).(Override); own {
		missing = "the policy's"
	}
	text := func(fields []leaf, place string) string {
		for _, f := range fields {
			if f.place == place {
				return f.text
			}
		}
		if place == "paused" {
			return "false"
		}
		return missing
	}
	for _, f := range slices.Concat(is, was) {
		old, now := text(was, f.place), text(is, f.place)
		change := fmt.Sprintf("%s %s → %s", f.place, old, now)
		if old != now && !slices.Contains(changes, change) {
			changes = append(changes, change)
		}
	}
	return changes
}

// Fields lists the fields of a policy, such as "outflow 20/s".
func Fields(p Policy) (fields Changes) {
	for _, f := range flatten(p) {
		fields = append(fields, f.place+" "+f.text)
	}
	return fields
}

type leaf struct{ place, text string }

// flatten lists fields such as "limits[1].key" as text, in the order of the structs.
func flatten(document any) (leaves []leaf) {
	if p, ok := document.(Policy); ok {
		document = p.WithDefaults()
	}
	data, err := json.Marshal(document)
	if err != nil {
		return nil
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	var walk func(at string)
	walk = func(at string) {
		switch token, _ := in.Token(); token { // encoding/json wrote it
		case json.Delim('{'):
			for in.More() {
				name, _ := in.Token()
				walk(strings.TrimPrefix(fmt.Sprintf("%s.%v", at, name), "."))
			}
			_, _ = in.Token()
		case json.Delim('['):
			for i := 0; in.More(); i++ {
				walk(fmt.Sprintf("%s[%d]", at, i))
			}
			_, _ = in.Token()
		case nil:
			leaves = append(leaves, leaf{at, "null"})
		default:
			leaves = append(leaves, leaf{at, fmt.Sprint(token)})
		}
	}
	walk("")
	return leaves
}
