package policy

import "encoding/json"

// Patch returns the policy, with its defaults, after a JSON merge patch (RFC 7396): fields that the
// patch names get its values, null is the default, and what is inside target, queue and retry is
// merged in the same way. It is as strict as [Parse], with the patch too. Whether the result can be
// used is for [Policy.Validate] to say.
func (p Policy) Patch(patch []byte) (Policy, error) {
	if _, err := Parse(patch); err != nil {
		return Policy{}, err
	}
	return patched(p.WithDefaults(), patch, Parse)
}

// Patch returns the override after a JSON merge patch (RFC 7396): fields that the patch names get
// its values, and null is what the policy says. It is as strict as [ParseOverride]. Whether the
// result suits a policy is for [Override.Validate] to say.
func (o Override) Patch(patch []byte) (Override, error) {
	if _, err := ParseOverride(patch); err != nil {
		return Override{}, err
	}
	return patched(o, patch, ParseOverride)
}

func patched[T any](document T, patch []byte, parse func([]byte) (T, error)) (T, error) {
	before, err := json.Marshal(document)
	if err != nil {
		var none T
		return none, err
	}
	return parse(merge(before, patch))
}

// merge returns the merge patch of two JSON values, as RFC 7396 spells it out.
func merge(document, patch json.RawMessage) json.RawMessage {
	var changes, members map[string]json.RawMessage
	if json.Unmarshal(patch, &changes) != nil || changes == nil {
		return patch
	}
	if json.Unmarshal(document, &members) != nil || members == nil {
		members = map[string]json.RawMessage{}
	}
	for name, value := range changes {
		if string(value) == "null" {
			delete(members, name)
		} else {
			members[name] = merge(members[name], value)
		}
	}
	merged, err := json.Marshal(members)
	if err != nil {
		panic(err) // values that were just read
	}
	return merged
}
