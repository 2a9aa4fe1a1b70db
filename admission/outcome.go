package admission

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue/job"
)

// Verdict is the service's answer to a job.
type Verdict string

// Allowed: the job has started or is due now. Queued: it starts later.
const (
	Allowed  Verdict = "allowed"
	Queued   Verdict = "queued"
	Rejected Verdict = "rejected"
)

// Quota is what a key may use or hold.
type Quota struct {
	Policy string        // with a slash and the limit's name if the policy has several
	Units  int64         // limit of a window, size of a bucket, capacity of a queue
	Window time.Duration // until Units are granted again; 0 if undefined
}

// FillTime returns the time that n units take at a rate, at most 100 years.
func FillTime(n int64, r algorithms.Rate) time.Duration {
	const longest = 100 * 365 * 24 * time.Hour
	return time.Duration(min(float64(n)/r.PerSecond(), longest.Seconds()) * float64(time.Second))
}

// Outcome is the answer to a submission.
type Outcome struct {
	Verdict Verdict
	// Job is empty when Rejected. A repeat gets the id of the first job, or of its last replay.
	Job       string
	Duplicate bool
	// Delay is the expected time until the start. It is known (DelayKnown) if a drainer answered in
	// time, and no pause or lack of workers holds the job.
	Delay      time.Duration
	DelayKnown bool
	// Position counts the jobs of the bucket that start earlier, Depth all; 0 if the job has
	// started or no valve answered.
	Position, Depth int

	Result   *job.Result // of a job that has ended, if the caller waited
	NoResult string      // why a caller that waited has no result
	Progress string      // of a job that runs

	Quota      Quota
	Remaining  int64         // of the quota; -1: unknown, as for a queue with room
	ResetAfter time.Duration // until the key has its whole quota; 0 if unknown
	RetryAfter time.Duration // positive exactly when Rejected
	Refused    error
	// Unreachable is the expected start if it is after the deadline ([ErrDeadlineUnreachable]).
	Unreachable time.Time
}

// String says in a sentence what became of the job.
func (o Outcome) String() string {
	delay := o.Delay.Round(time.Millisecond)
	switch {
	case o.Verdict == Rejected:
		return o.Err().Error()
	case o.Job == "":
		return "no job was submitted"
	case o.Result != nil && o.Result.Error != "":
		return fmt.Sprintf("job %s is %s: %s", o.Job, o.Result.End, o.Result.Error)
	case o.Result != nil:
		return fmt.Sprintf("job %s is %s", o.Job, o.Result.End)
	case o.Duplicate:
		return fmt.Sprintf("job %s was accepted before", o.Job)
	case o.Verdict == Allowed:
		return fmt.Sprintf("job %s starts now", o.Job)
	case !o.DelayKnown:
		return fmt.Sprintf("job %s waits for its turn", o.Job)
	case o.Position == 0:
		return fmt.Sprintf("job %s starts in %v", o.Job, delay)
	}
	return fmt.Sprintf("job %s starts in %v, number %d of its queue", o.Job, delay, o.Position+1)
}

// Err is a [*RefusedError] or nil.
func (o Outcome) Err() error {
	if o.Verdict != Rejected {
		return nil
	}
	policy, _, _ := strings.Cut(o.Quota.Policy, "/")
	return &RefusedError{Policy: policy, Reason: o.Refused, RetryAfter: o.RetryAfter}
}

// Checked is the answer to a check: the decision of a limit.
type Checked struct {
	algorithms.Decision
	Quota  Quota
	Shadow []Shadowed
}

// Shadowed is what a shadow limit would have decided.
type Shadowed struct {
	Limit string
	Over  bool
	By    time.Duration
}

// MaxBody leaves room for headers in a message of the embedded server.
const MaxBody = 1 << 20

// SubmitRequest submits a job.
type SubmitRequest struct {
	Policy string
	Key    job.Key
	// Names are case-insensitive. An unknown Penstock-… header is an error.
	Header map[string][]string
	IP     string        // from the transport; Penstock-IP overrides it
	From   Client        // for shares of waiting requests
	Wait   time.Duration // for the job's end, at most [MaxWait]
	Body   []byte        // not retained
	JSON   bool          // Body is known to be valid JSON

	single bool   // not part of a batch
	waiter string // token for the result of the job; empty without a wait
}

// CheckRequest asks a policy for a decision.
type CheckRequest struct {
	Policy string
	Key    job.Key
	Cost   int64  // at least 1
	IP     string // see [ClientIP]
}

// ClientIP returns an address as limits count it: of IPv6 the /64 network, the smallest that a
// customer gets (RFC 6177); "" for other text.
func ClientIP(address string) string {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return ""
	case ip.Is4(): // which is written in one way only
		return address
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return ""
	}
	return network.String()
}
