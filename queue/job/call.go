package job

// A call is a caller's request for a start: the caller waits in its bucket like a job, but nothing
// is stored, and it makes the request itself: see docs/workers-protocol.md.

// Call is a caller's part of a [Question] of OpCall or OpSettle.
type Call struct {
	ID string `json:"id"` // of the permit: unique, of the caller's choice
	// N numbers the caller's messages about it. An older one that comes later has no effect.
	N int `json:"n"`
	// OpCall: the number of the policy's partitions from which the caller chose this one; how long
	// it has asked already, and how long it will wait.
	Partitions int   `json:"partitions,omitempty"`
	AgeMS      int64 `json:"age_ms,omitempty"`
	WaitMS     int64 `json:"wait_ms,omitempty"`

	// OpSettle: one of the Call… statuses, and why it failed; for how long the target asked for
	// no more requests; what the call cost.
	Status       string           `json:"status,omitempty"`
	Error        string           `json:"error,omitempty"`
	RetryAfterMS int64            `json:"retry_after_ms,omitempty"`
	Used         map[string]int64 `json:"used,omitempty"`
}

// Values of [Call.Status].
const (
	CallProgress    = "progress"    // it goes on: its lease begins again
	CallPause       = "pause"       // the target asked for a pause, and the call goes on
	CallDone        = "done"        // the target answered
	CallFailed      = "fail"        // it did not, for a cause that may be the call's own
	CallUnavailable = "unavailable" // the target is down
	CallUnreached   = "unreached"   // the target is down, and did not get the call: it took nothing
	CallThrottled   = "retry-after" // the target asked for a pause
	CallReturned    = "returned"    // it was not begun
	CallWithdrawn   = "withdraw"    // the caller does not wait any more
)

// Turn is the owner's answer to a call. There may be several to one question.
type Turn struct {
	State string `json:"state"` // one of the Turn… states
	// TurnWaiting: milliseconds until its expected turn; nil: unknown.
	StartMS *int64 `json:"start_ms,omitempty"`
	// TurnGo: milliseconds within which the owner must hear of the call again; 0: it need not.
	LeaseMS int64 `json:"lease_ms,omitempty"`
	// TurnRefused: why, one of the Refused… reasons, and after how long to ask again. TurnWaiting:
	// RefusedDown, if that is why it waits.
	Reason  string `json:"reason,omitempty"`
	RetryMS int64  `json:"retry_ms,omitempty"`
	// TurnMoved: the number of the policy's partitions.
	Partitions int `json:"partitions,omitempty"`
}

// Values of [Turn.State].
const (
	TurnGo      = "go"      // begin now
	TurnOffer   = "offer"   // the turn is near: ask again, at once
	TurnWaiting = "waiting" // wait for an offer
	TurnRefused = "no"
	TurnMoved   = "moved" // another process owns, or will own, the call's partition: ask again
	TurnSettled = "ok"    // to OpSettle
	TurnGone    = "gone"  // to CallProgress: the lease ended before
)

// Values of [Turn.Reason].
const (
	RefusedFull   = "full"   // too many calls wait
	RefusedLate   = "late"   // the turn would come after the wait
	RefusedDown   = "down"   // the target is down, and another call is the breaker's probe
	RefusedPaused = "paused" // an operator paused the bucket or its policy
	RefusedNever  = "never"  // a limit never lets so much pass: see the answer's error
)

// CallID stands for the ID of a stored job in the events of a policy's calls.
func CallID(policy string) string { return policy + ":call" }
