package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Changes lists differing fields, such as "outflow 20/s → 50/s".
type Changes []string

func (c Changes) String() string { return strings.Join(c, ", ") }

// Diff lists the differing fields of policies with defaults, or of overrides. "none" is a missing
// field, and "the policy's" one of an override.
func Diff[T Policy | Override](before, after T) Changes {
	was, is := flatten(before), flatten(after)
	var changes Changes
	value := func(fields []leaf, place string) (text string, found bool) {
		for _, f := range fields {
			if f.place == place {
				return f.text, true
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
		if old, _ := value(was, f.place); old != f.text {
			changes = append(changes, fmt.Sprintf("%s %s → %s", f.place, old, f.text))
		}
	}
	for _, f := range was {
		if now, found := value(is, f.place); !found {
			changes = append(changes, fmt.Sprintf("%s %s → %s", f.place, f.text, now))
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
