package job

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// A claimant is whatever may begin: a caller that makes a request of its own, or a worker of
// another process that asks for a job. Both exchange a [Claim] and a [Turn] with a valve, in JSON;
// see docs/workers-protocol.md.

// ClaimWindow is the life of a claim: for the valve from its offer, for the claimant by its own
// monotonic clock, which it reads before it sends the claim. After that, another owner may have
// started others instead.
const ClaimWindow = 50 * time.Millisecond

// Claim is a claimant's message to a valve.
type Claim struct {
	V  int    `json:"v"`
	Op string `json:"op"`
	ID string `json:"id"` // of the permit or run, unique; the claimant chooses it
	// N numbers the claimant's messages. Older ones have no effect.
	N   int       `json:"n,omitempty"`
	Key queue.Key `json:"key,omitempty"` // the permit's bucket

	Want string `json:"want,omitempty"` // OpClaim

	// WantPermit, as for a job; a Cost of 0 is 1
	Cost     int64            `json:"cost,omitempty"`
	Costs    map[string]int64 `json:"costs,omitempty"`
	Priority int              `json:"priority,omitempty"`
	// WantPermit: the policy's partitions, how long the caller has asked, and will wait
	Partitions int   `json:"partitions,omitempty"`
	AgeMS      int64 `json:"age_ms,omitempty"`
	WaitMS     int64 `json:"wait_ms,omitempty"`

	// WantJob: the worker's free places, 0 if it is busy, and buckets whose jobs it takes no more
	Slots  int         `json:"slots,omitempty"`
	Except []queue.Key `json:"except,omitempty"`

	Settlement
}

// Values of [Claim.Op].
const (
	OpClaim    = "claim"    // may it begin now?
	OpProgress = "progress" // it continues: renews the lease
	OpAnswered = "answered" // the same, and its answer has begun
	OpSettle   = "settle"   // it has ended, or will not begin
)

// Values of [Claim.Want].
const (
	WantPermit = "permit"
	WantJob    = "job"
)

// Settlement says how a call or run ended, or with OpProgress how it goes.
type Settlement struct {
	Status string `json:"status,omitempty"`
	Error  string `json:"error,omitempty"` // one line
	// RetryAfterMS pauses the bucket; 0 with SettledThrottled: for the policy's backoff.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Used has actual costs, by name; omitted ones stay as estimated.
	Used map[string]int64 `json:"used,omitempty"`
	// Answer is a Settled… value; empty: it has begun by the end, but not of a call or run that
	// failed or is returned. OpAnswered counts before it.
	Answer string `json:"answer,omitempty"`

	// Of jobs: SettledThrottled may be the job's own fault; a duration or RFC 3339, before which a
	// failed or returned job does not start again; what OpProgress shows with the job; the reply,
	// whose body is the message's payload.
	Doubtful bool         `json:"doubtful,omitempty"`
	Again    string       `json:"again,omitempty"`
	Progress string       `json:"progress,omitempty"`
	Reply    *queue.Reply `json:"reply,omitempty"`
}

// Values of [Settlement.Status].
const (
	SettledDone        = "done"
	SettledFailed      = "fail"        // perhaps its own fault
	SettledUnavailable = "unavailable" // the target is down
	SettledUnreached   = "unreached"   // the target is down and did not get the call: no cost
	SettledPermanent   = "permanent"   // no attempt can succeed
	SettledThrottled   = "retry-after" // the target asked for a pause
	SettledReturned    = "returned"    // it did not begin, or must run elsewhere
	SettledUnable      = "unable"      // returned through a fault of the worker's own
)

// Values of [Settlement.Answer].
const (
	SettledAnswered   = "seen"
	SettledUnanswered = "none"   // the target gave none, so the request may still arrive
	SettledUnsent     = "unsent" // the target did not get a request
)

// ReadClaim decodes a claim; [ErrVersion] for another format.
func ReadClaim(text []byte) (c Claim, err error) {
	if err = json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("claim is not JSON: %w", err)
	}
	switch {
	case c.V != FormatVersion:
		err = fmt.Errorf("%w: claim in format %d, this valve knows %d", ErrVersion, c.V,
			FormatVersion)
	case c.Op != OpClaim && c.Op != OpProgress && c.Op != OpAnswered && c.Op != OpSettle:
		err = fmt.Errorf("op %.20q: want %s, %s, %s or %s", c.Op, OpClaim, OpProgress, OpAnswered,
			OpSettle)
	}
	return c, err
}

// Turn is a valve's message to a claimant. A claim may get several.
type Turn struct {
	V     int    `json:"v"`
	State string `json:"state"`
	Error string `json:"error,omitempty"` // TurnError, or RefusedNever
	// TurnWaiting: until the expected turn; nil: unknown.
	StartMS *int64 `json:"start_ms,omitempty"`
	// TurnGo: time to the next message about the call; 0: no message is needed.
	LeaseMS int64 `json:"lease_ms,omitempty"`
	// TurnGo: limits count from the answer, so OpAnswered is to be sent when it begins; a request
	// without one counts this long after its end. 0: no limit does.
	MaxDelayMS int64 `json:"max_delay_ms,omitempty"`
	// TurnRefused: a Refused… reason, and when to ask again. TurnWaiting: RefusedDown, or empty.
	Reason  string `json:"reason,omitempty"`
	RetryMS int64  `json:"retry_ms,omitempty"`
	// TurnMoved: the policy's.
	Partitions int `json:"partitions,omitempty"`
	// TurnGo for a worker; its header and body are the message's.
	Job *Started `json:"job,omitempty"`
}

// Started is the job of a [Turn], with a report's time-out in LeaseMS.
type Started struct {
	ID             string    `json:"id"`
	Policy         string    `json:"policy"`
	Key            queue.Key `json:"key"`
	Attempt        int       `json:"attempt"` // from 1
	Accepted       time.Time `json:"accepted"`
	IdempotencyKey string    `json:"idempotency_key"`
	Kept           bool      `json:"kept,omitempty"` // the policy has a history, which keeps replies
}

// ReadTurn decodes a turn; [ErrVersion] for another format.
func ReadTurn(text []byte) (t Turn, err error) {
	if err = json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("turn is not JSON: %w", err)
	}
	if t.V != FormatVersion {
		err = fmt.Errorf("%w: turn in format %d, this claimant knows %d", ErrVersion, t.V,
			FormatVersion)
	}
	return t, err
}

// Values of [Turn.State].
const (
	TurnGo      = "go"      // begin now
	TurnOffer   = "offer"   // near: claim now
	TurnWaiting = "waiting" // for an offer
	TurnRefused = "no"
	TurnMoved   = "moved" // ask the partition's new owner
	TurnStop    = "stop"  // the valve waits no longer for a running job
	TurnSettled = "ok"    // to OpSettle and OpProgress
	TurnGone    = "gone"  // the lease has ended, or the end is known
	TurnError   = "error" // the claim was not understood
)

// Values of [Turn.Reason].
const (
	RefusedFull   = "full"   // too many calls wait
	RefusedLate   = "late"   // not within the wait
	RefusedDown   = "down"   // the target is down, and a probe runs
	RefusedPaused = "paused" // by an operator
	RefusedNever  = "never"  // a limit never allows it: see Turn.Error
)

// HeaderTurn has the JSON of a [Claim] or [Turn] whose message carries a job or a reply.
const HeaderTurn = "Penstock-Turn"

// Carried returns the JSON of a message, and the job or reply that it carries; nil: none.
func Carried(h map[string][]string, payload []byte) (text, carried []byte) {
	if text := HeaderValue(h, HeaderTurn); text != "" {
		return []byte(text), payload
	}
	return payload, nil
}

// CallID is the job ID in events of a policy's calls.
func CallID(policy string) string { return policy + ":call" }
