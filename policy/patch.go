package policy

import "encoding/json"

// Patch applies a JSON merge patch (RFC 7396) as strictly as [Parse], and returns the policy with
// its defaults; null restores a default.
func (p Policy) Patch(patch []byte) (Policy, error) {
	if _, err := Parse(patch); err != nil {
		return Policy{}, err
	}
	return patched(p.WithDefaults().withoutDerived(), patch, Parse)
}

// withoutDerived returns the policy without the defaults that its limits imply: those of other
// limits may differ.
func (p Policy) withoutDerived() Policy {
	derived := p
	derived.WindowMargin, derived.MaxDelay = 0, 0
	derived = derived.WithDefaults()
	if p.WindowMargin == derived.WindowMargin {
		p.WindowMargin = 0
	}
	if p.MaxDelay == derived.MaxDelay {
		p.MaxDelay = 0
	}
	return p
}

// Patch applies a JSON merge patch (RFC 7396); null restores the policy's value.
func (o Override) Patch(patch []byte) (Override, error) {
	if _, err := ParseOverride(patch); err != nil {
		return Override{}, err
	}
	return patched(o, patch, ParseOverride)
}

// Overrides reports whether a merge patch of a policy has only fields of an [Override].
func Overrides(patch []byte) bool {
	_, err := ParseOverride(patch)
	return err == nil
}

func patched[T any](document T, patch []byte, parse func([]byte) (T, error)) (T, error) {
	before, err := json.Marshal(document)
	if err != nil {
		var none T
		return none, err
	}
	return parse(merge(before, patch))
}

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
		panic(err)
	}
	return merged
}
