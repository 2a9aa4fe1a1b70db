package algorithms

// Combine merges the decisions of several rules about one request: it passes only if every rule
// allows it. ruling is the index of the refusal with the longest wait or, if the request passes, of
// the decision with the fewest remaining units; Limit comes from that decision. decisions must not
// be empty.
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
