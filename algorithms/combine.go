package algorithms

// Combine is the decision of several rules about one request, which passes if all of them let it
// pass, and which of the decisions rules: the refusal with the longest wait or, when it passes, the
// one that leaves the fewest units. Limit is that of the ruling one; Remaining, Delay and the waits
// are as they are for all together. There must be at least one decision.
func Combine(decisions []Decision) (combined Decision, ruling int) {
	combined = decisions[0]
	for i, d := range decisions[1:] {
		rules := d.Remaining < decisions[ruling].Remaining
		if !combined.Allowed || !d.Allowed {
			rules = d.RetryAfter > combined.RetryAfter || combined.Allowed
		}
		if rules {
			ruling = i + 1
		}
		combined.Allowed = combined.Allowed && d.Allowed
		combined.Granted = min(combined.Granted, d.Granted)
		combined.Remaining = min(combined.Remaining, d.Remaining)
		combined.RetryAfter = max(combined.RetryAfter, d.RetryAfter)
		combined.ResetAfter = max(combined.ResetAfter, d.ResetAfter)
		combined.Delay = max(combined.Delay, d.Delay)
	}
	if !combined.Allowed {
		combined.Granted, combined.Delay = 0, 0
	}
	combined.Limit = decisions[ruling].Limit
	return combined, ruling
}
