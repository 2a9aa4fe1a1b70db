package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// What a [ValveQuestion] can ask.
const (
	OpExpect  = "expect"  // when will these jobs start?
	OpRoom    = "room"    // when will this bucket have room again?
	OpOutcome = "outcome" // this is how a job that was handed over as running ended
	OpWorker  = "worker"  // is a worker elsewhere of use? An error says why not

	OpBuckets = "buckets" // which buckets hold most?
	OpBucket  = "bucket"  // how does this bucket stand?
	OpJob     = "job"     // how does this job stand?
	OpCancel  = "cancel"  // drop this job, unless it runs
	OpPurge   = "purge"   // drop this bucket's jobs, those that run excepted
)

// What a [JobState] can say.
const (
	JobWaiting   = "waiting"   // for its bucket's turn
	JobDelayed   = "delayed"   // backing off after a failure, or not due yet
	JobRunning   = "running"   // a worker has it
	JobFinishing = "finishing" // it has ended, the acknowledgement is not confirmed yet
)

// What keeps a job from starting, or a bucket from starting its next one.
const (
	HeldByRate         = "rate"          // of its bucket
	HeldByTotalRate    = "total_rate"    // of all buckets together
	HeldByConcurrency  = "concurrency"   // as many of the bucket's jobs run as may
	HeldByPaused       = "paused"        // the bucket, by an operator
	HeldByPolicyPaused = "policy_paused" // its whole policy
	HeldByCooling      = "cooling"       // the target asked for a pause
	HeldByBreaker      = "breaker"       // the target is down: one job at a time looks whether it is back
	HeldByBackoff      = "backoff"       // its last attempt failed
	HeldByNotBefore    = "not_before"    // its submitter wants it later
	HeldByNoWorker     = "no_worker"     // nobody has workers for it
	HeldByWorkersBusy  = "workers_busy"  // all workers have jobs, or as many of this bucket as it may have
	HeldByNoDrainer    = "no_drainer"    // nobody owns its partition; said by admitters
	HeldByStorage      = "storage"       // the drainer's lease, or what the job came to, cannot be written, or the queue is being read
)

// MaxExpected is how many jobs one question of OpExpect may name. Starts wait while it is answered.
const MaxExpected = 512

// ValveQuestion is what anyone asks or tells the owner of a partition.
type ValveQuestion struct {
	V       int             `json:"v"` // format version; AskValve fills it in
	Op      string          `json:"op"`
	Jobs    []uint64        `json:"jobs,omitempty"`    // stream sequences; OpJob and OpCancel: exactly one; OpExpect: at most MaxExpected
	Key     Key             `json:"key,omitempty"`     // OpRoom, OpBucket and OpPurge: the bucket
	Limit   int             `json:"limit,omitempty"`   // OpBuckets: most buckets to answer
	Offset  int             `json:"offset,omitempty"`  // OpBuckets: how many of the deepest to leave out
	Outcome json.RawMessage `json:"outcome,omitempty"` // OpOutcome: the drainers' own format
}

// ValveAnswer is the owner's answer.
type ValveAnswer struct {
	V       int             `json:"v"`                // format version; ServeValve fills it in
	Starts  []ExpectedStart `json:"starts,omitempty"` // OpExpect: one for each job asked for, in that order
	DelayMS int64           `json:"delay_ms"`         // OpRoom: milliseconds until the bucket has room
	Error   string          `json:"error,omitempty"`  // not empty: the question could not be answered

	Bucket  *BucketState  `json:"bucket,omitempty"`  // OpBucket; all zero but the key for a bucket without jobs
	Buckets []BucketState `json:"buckets,omitempty"` // OpBuckets: deepest first, then by key
	Total   int           `json:"total,omitempty"`   // OpBuckets: how many buckets of the partition hold jobs
	Job     *JobState     `json:"job,omitempty"`     // OpJob, OpCancel: as it was; nil for one it does not hold
	Removed int           `json:"removed,omitempty"` // OpCancel, OpPurge: how many jobs were dropped
}

// BucketState is how a bucket stands at its valve.
type BucketState struct {
	Key       Key     `json:"key"`
	Depth     int     `json:"depth"`                 // accepted jobs: waiting, delayed and running
	Waiting   int     `json:"waiting"`               // jobs that could start as soon as the rate allows
	Delayed   int     `json:"delayed"`               // jobs that back off or are not due yet
	Running   int     `json:"running"`               // jobs that a worker has
	Rate      float64 `json:"rate"`                  // starts per second over the last seconds
	Paused    bool    `json:"paused"`                // by an operator: the bucket, or its whole policy
	CoolingMS int64   `json:"cooling_ms,omitempty"`  // milliseconds until the pause that the target asked for ends
	HeadAgeMS int64   `json:"head_age_ms,omitempty"` // milliseconds since the oldest waiting job was accepted
	ExpectMS  *int64  `json:"expect_ms"`             // milliseconds to the start of a job accepted now; nil: see JobState
	Hold
	LastError string `json:"last_error,omitempty"` // of the last run that did not end well, until one does
}

// Hold is what keeps a job from starting, or a bucket from starting its next one.
type Hold struct {
	// By is one of the HeldBy constants; empty when nothing does, or nothing waits.
	By    string     `json:"held_by,omitempty"`
	Until *time.Time `json:"until,omitempty"` // by the drainer's clock; nil: nobody can tell
}

// JobState is how a job stands at its valve. Nobody can tell its start while it is paused or held by concurrency.
type JobState struct {
	Seq        uint64    `json:"seq"` // in the policy's stream
	Key        Key       `json:"key"`
	State      string    `json:"state"`                // JobWaiting, JobDelayed, JobRunning or JobFinishing
	Position   *int      `json:"position"`             // jobs of its bucket that start before it; nil unless it waits
	ExpectMS   *int64    `json:"expect_ms"`            // milliseconds to its start; nil while nobody can tell
	Attempts   int       `json:"attempts"`             // that failed
	LastError  string    `json:"last_error,omitempty"` // of the last failed attempt
	AcceptedAt time.Time `json:"accepted_at"`          // by the server's clock
	Hold
}

// ExpectedStart says when a job will start as things stand.
type ExpectedStart struct {
	Seq     uint64 `json:"seq"`
	Known   bool   `json:"known"`    // false: the valve has not seen the job, or cannot tell
	DelayMS int64  `json:"delay_ms"` // milliseconds from now; 0 for a job that has started or finished
	// Position is how many jobs of its bucket start before it, as if all had the same cost; 0 unless it waits for its turn.
	Position int `json:"position,omitempty"`
}

// AskValve asks the owner of a partition and waits for its answer until the context ends, at most 2 seconds. It answers
// [ErrUnavailable] when nobody owns the partition or no answer came; an owner's refusal is a plain error.
func (b *Broker) AskValve(ctx context.Context, policy string, partition int, q ValveQuestion) (ValveAnswer, error) {
	doing := fmt.Sprintf("ask valve %s.%d", policy, partition)
	q.V = formatVersion
	body, err := json.Marshal(q)
	if err != nil {
		return ValveAnswer{}, fmt.Errorf("%s: encode: %w", doing, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, b.names.Valve(policy, partition), body)
	if err != nil {
		return ValveAnswer{}, fmt.Errorf("%s: %w", doing, translate(err))
	}
	var a ValveAnswer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return ValveAnswer{}, fmt.Errorf("%s: read answer: %w", doing, err)
	}
	if a.V != formatVersion {
		return ValveAnswer{}, fmt.Errorf("%s: %w: answer in format %d", doing, ErrVersion, a.V)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", doing, a.Error)
	}
	return a, nil
}

// ServeValve lets the owner of a partition answer: answer is called for each question, one at a time, in the connection's
// goroutine, so it must hand the work over; reply may be called later and from anywhere, once. A question in an unknown
// format is refused here. stop ends it; questions that had arrived before may still come.
func (b *Broker) ServeValve(
	policy string, partition int, answer func(q ValveQuestion, reply func(ValveAnswer)),
) (stop func(), err error) {
	sub, err := b.nc.Subscribe(b.names.Valve(policy, partition), func(m *nats.Msg) {
		reply := func(a ValveAnswer) {
			a.V = formatVersion
			body, err := json.Marshal(a)
			if err == nil {
				err = m.Respond(body)
			}
			if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
				b.log.Debug("valve's answer not sent", "policy", policy, "partition", partition, "error", err)
			}
		}
		var q ValveQuestion
		switch err := json.Unmarshal(m.Data, &q); {
		case err != nil:
			reply(ValveAnswer{Error: "question is not JSON: " + err.Error()})
		case q.V != formatVersion:
			reply(ValveAnswer{Error: fmt.Sprintf("question in format %d, this valve knows %d", q.V, formatVersion)})
		default:
			answer(q, reply)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("serve valve %s.%d: %w", policy, partition, translate(err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
