package inforce

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/policy"
)

// Changes lists differing fields, such as "outflow 20/s → 50/s".
type Changes []string

func (c Changes) String() string { return strings.Join(c, ", ") }

// Diff lists the differing fields of policies with defaults, or of overrides. "none" is a missing
// field, and "the policy's" one of an override.
func Diff[T policy.Policy | Override](before, after T) (changes Changes) {
	was, is := flatten(before), flatten(after)
	missing := "none"
	if _, own := any(before).(Override); own {
		missing = "the policy's"
	}
	for _, f := range slices.Concat(is, was) {
		old, now := textAt(f.place, was, missing), textAt(f.place, is, missing)
		change := fmt.Sprintf("%s %s → %s", f.place, old, now)
		if old != now && !slices.Contains(changes, change) {
			changes = append(changes, change)
		}
	}
	return changes
}

// Fields lists the fields of a policy, such as "outflow 20/s".
func Fields(p policy.Policy) (fields Changes) {
	for _, f := range flatten(p) {
		fields = append(fields, f.place+" "+f.text)
	}
	return fields
}

type leaf struct{ place, text string }

func textAt(place string, fields []leaf, missing string) string {
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

// flatten lists fields such as "limits[1].key" as text, in the order of the structs.
func flatten(document any) (leaves []leaf) {
	if p, ok := document.(policy.Policy); ok {
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

// Keeping returns the policy with the partitions of before, which cannot change, unless it names
// its own.
func Keeping(p, before policy.Policy) policy.Policy {
	if p.HasQueue() && !together(p) {
		p.Partitions = cmp.Or(p.Partitions, before.Partitions)
	}
	return p
}

// CheckChange returns why a live policy cannot become another, as an [*policy.InvalidError].
// Algorithm, partitions, having a queue and posting callbacks are fixed: other partitions would
// split keys, and jobs without a queue, or callbacks without their target, never start.
func CheckChange(before, after policy.Policy) error {
	before, after = before.WithDefaults(), after.WithDefaults()
	var problems []policy.Problem
	fixed := func(field string, was, is any) {
		reason := fmt.Sprintf("cannot change from %v to %v: give the policy a new name", was, is)
		problems = append(problems, policy.Problem{Field: field, Reason: reason})
	}
	if decider(before) != decider(after) {
		fixed("algorithm", decider(before), decider(after))
	}
	switch {
	case before.HasQueue() && !after.HasQueue():
		problems = append(problems,
			policy.Problem{Field: "queue",
				Reason: "cannot be removed because jobs may wait in it: " +
					"keep it, or give the policy a new name"})
	case before.HasQueue() && before.Partitions != after.Partitions:
		fixed("partitions", before.Partitions, after.Partitions)
		if before.OutflowTotal.IsZero() && after.Partitions == 1 && !after.OutflowTotal.IsZero() {
			problems[len(problems)-
				1].Reason += "; outflow_total requires a policy created with one partition"
		}
	}
	if before.Target.Calls() && !after.Target.Calls() {
		problems = append(problems, policy.Problem{Field: "target.http.url",
			Reason: "cannot change from " + policy.CallbackURL +
				" because callbacks may wait for it: give the policy a new name"})
	}
	return policy.Invalid(problems)
}

// Patch applies a JSON merge patch (RFC 7396) as strictly as [policy.Parse], and returns the policy
// with its defaults; null restores a default.
func Patch(p policy.Policy, patch []byte) (policy.Policy, error) {
	if _, err := policy.Parse(patch); err != nil {
		return policy.Policy{}, err
	}
	return patched(withoutDerived(p.WithDefaults()), patch, policy.Parse)
}

// withoutDerived returns the policy without the defaults that its limits imply: those of other
// limits may differ.
func withoutDerived(p policy.Policy) policy.Policy {
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
