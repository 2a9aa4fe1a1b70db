package job

// A call is a request for a start. Its caller waits in its bucket like a job, is not stored, and
// makes the request itself: see docs/workers-protocol.md.

// Call is a caller's part of a [Question] of OpCall or OpSettle.
type Call struct {
	ID string `json:"id"` // of the permit, unique; the caller chooses it
	// N numbers the caller's messages. Older ones have no effect.
	N int `json:"n"`
	// OpCall: the policy's partitions, how long the caller has asked, and will wait.
	Partitions int   `json:"partitions,omitempty"`
	AgeMS      int64 `json:"age_ms,omitempty"`
	WaitMS     int64 `json:"wait_ms,omitempty"`

	// OpSettle: a Call… status, its cause, the pause that the target requests, and the costs.
	Status       string           `json:"status,omitempty"`
	Error        string           `json:"error,omitempty"`
	RetryAfterMS int64            `json:"retry_after_ms,omitempty"`
	Used         map[string]int64 `json:"used,omitempty"`
}

// Values of [Call.Status].
const (
	CallProgress    = "progress" // renews the lease
	CallPause       = "pause"    // CallThrottled of a call that continues
	CallDone        = "done"
	CallFailed      = "fail"        // perhaps the call's own fault
	CallUnavailable = "unavailable" // the target is down
	CallUnreached   = "unreached"   // the target is down and did not get the call: no cost
	CallThrottled   = "retry-after" // the target asked for a pause
	CallReturned    = "returned"    // not begun
	CallWithdrawn   = "withdraw"    // the caller waits no more
)

// Turn is the answer to a call. A question may get several.
type Turn struct {
	State string `json:"state"`
	// TurnWaiting: until the expected turn; nil: unknown.
	StartMS *int64 `json:"start_ms,omitempty"`
	// TurnGo: time to the next message about the call; 0: no message is needed.
	LeaseMS int64 `json:"lease_ms,omitempty"`
	// TurnRefused: a Refused… reason, and when to ask again. TurnWaiting: RefusedDown, or empty.
	Reason  string `json:"reason,omitempty"`
	RetryMS int64  `json:"retry_ms,omitempty"`
	// TurnMoved: the policy's.
	Partitions int `json:"partitions,omitempty"`
}

// Values of [Turn.State].
const (
	TurnGo      = "go"      // begin now
	TurnOffer   = "offer"   // near: ask again now
	TurnWaiting = "waiting" // for an offer
	TurnRefused = "no"
	TurnMoved   = "moved" // ask the partition's new owner
	TurnSettled = "ok"    // to OpSettle
	TurnGone    = "gone"  // to CallProgress: the lease has ended
)

// Values of [Turn.Reason].
const (
	RefusedFull   = "full"   // too many calls wait
	RefusedLate   = "late"   // not within the wait
	RefusedDown   = "down"   // the target is down, and a probe runs
	RefusedPaused = "paused" // by an operator
	RefusedNever  = "never"  // a limit never allows it: see Answer.Error
)

// CallID is the job ID in events of a policy's calls.
func CallID(policy string) string { return policy + ":call" }
