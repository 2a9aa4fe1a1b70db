package workers

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

// DefaultMemory is the default of [Options.Memory].
const DefaultMemory = 512 << 20

// LeastMemory is the minimum of [Options.Memory].
const LeastMemory = 1 << 20

// Options are the settings of a [Drainer]. The zero value works.
type Options struct {
	// Prefix is nats.prefix of the configuration; default "penstock".
	Prefix string
	// Replicas is the number of servers that store the drainers' shared records: 1 (the default), 3
	// or 5.
	Replicas int
	// Lease is how long this process counts as alive after a renewal, and so roughly how long its
	// partitions stand still after a crash: default 5 s, or 15 s with replicas; at least 1 s.
	Lease time.Duration
	// Memory bounds the approximate memory of waiting jobs in bytes: default 512 MiB. Once jobs
	// with their contents take half of it, each further one takes only 64 bytes and is read again
	// before it starts.
	Memory int64
	// Policies lists the policies whose valves this drainer may own. Empty means all with workers
	// here or, with OwnAll, all.
	Policies []string
	// OwnAll permits owning valves of policies without local workers, whose jobs run in remote
	// workers.
	OwnAll bool
	// LendOnly makes a process that owns no valves and only runs jobs of other drainers: see
	// docs/workers-protocol.md. Lease, Policies, OwnAll and Observer are then ignored.
	LendOnly bool
	// Target returns the handler of a policy without a registered one, or a nil Handler. The entry
	// includes the policy's source, which determines the permitted targets. Nil: only registered
	// handlers run.
	Target func(policy.Entry) (Handler, error)
	// Grace is how long running jobs may continue when the drainer stops, before their contexts
	// end; default 30 s.
	Grace time.Duration
	// Ready is called once, when the drainer holds its lease and takes part.
	Ready func()
	// Observer receives starts and outcomes; default none.
	Observer Observer
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
}

// Observer receives a drainer's events. Each function may be nil. They are called from many
// goroutines and must return at once.
type Observer struct {
	// Started reports a start: how late it was, how long the job had waited since acceptance, and
	// the id of its sampled trace, or "".
	Started func(policy string, lateness, wait time.Duration, trace string)
	// Attempt is called before each attempt in this process. The handler gets the returned context
	// and job, and the returned function gets the attempt's error. It is for traces. Job.Header is
	// the stored header: clone it before changes.
	Attempt func(context.Context, Job) (context.Context, Job, func(error))
	// Returned reports that an assigned job returned to its queue before it started, without an
	// attempt, and why: rate (its slot was gone at the last check, because the machine was late and
	// too many jobs would have started together), lease (this drainer's had expired) or order (an
	// earlier job returned).
	Returned func(policy, why string)
	// Shadowed reports by how much a limit with shadow: true would have delayed a start.
	Shadowed func(policy, limit string, by time.Duration)
	// Late reports, once a second, by how much starts of a policy's buckets fell behind their
	// outflow, by cause: processor (this process got no CPU time when they were due), no_worker,
	// workers_busy, total_rate, concurrency, paused, cooling, breaker or storage. Time held by one
	// cause is reported when it ends.
	Late func(policy, cause string, by time.Duration)
	// LimitHeld reports, once a second, for how long a limit on starts has held back buckets of a
	// policy with waiting jobs, summed over buckets.
	LimitHeld func(policy, limit string, held time.Duration)
	// LimitsLeft reports, once a second, the remaining units of limits on starts whose state this
	// drainer keeps and that count all keys of a policy (key: global) or are shared by policies.
	LimitsLeft func(policy string, left []LimitLeft)
	// Finished reports how an attempt ended: done, failed, throttled, permanent (retries cannot
	// succeed), returned (it did not start) or uncounted (interrupted, or its remote worker left).
	Finished func(policy, outcome string)
	// Hinted reports that a target which did not throttle announced that its limit is exhausted,
	// and for how long: see [Job.CoolDown].
	Hinted func(policy string, pause time.Duration)
	// Ended reports how a job ended: done; dead, for any reason, once the dead letter is stored; or
	// cancelled by an operator.
	Ended func(policy, outcome string)
	// Policy reports that a policy whose jobs this drainer may start appeared or is gone.
	Policy func(policy string, known bool)
	// Workerless reports that jobs of an owned policy have been due for some seconds without any
	// worker anywhere, or that this is over.
	Workerless func(policy string, workerless bool)
	// Owned reports the number of a policy's partitions that this drainer owns.
	Owned func(policy string, partitions int)
	// Breaker reports the number of open breakers of a policy in this drainer: one per bucket and
	// one for all of them. See [Unavailable].
	Breaker func(policy string, open int)
	// Adapted reports, when it has changed, the number of owned buckets of a policy that are slower
	// than their outflow because of their target's observed limit (adapt).
	Adapted func(policy string, buckets int)
	// Lease reports whether this drainer holds its lease. Without it nothing starts.
	Lease func(held bool)
	// RecordDamaged reports that a record in a KV bucket was unreadable and is rebuilt: see
	// [Drainer.Notes].
	RecordDamaged func(bucket string)
	// RecordsNewer reports the number of records of a newer format. Each blocks the partitions that
	// it concerns.
	RecordsNewer func(records int)
	// Discarded reports that old dead letters of a policy were discarded to make room for new ones.
	Discarded func(policy string, letters uint64)
	// HistoryLost reports that the end of a job of a policy with keep_done was not recorded: the
	// server refused it or was too slow.
	HistoryLost func(policy string)
	// CallbackLost reports that the outcome of a job will not be posted to its callback URL, and
	// why: full (the queue of callbacks is) or refused.
	CallbackLost func(policy, reason string)
}

// LimitLeft is the number of units of a limit on starts that may start now, and its maximum.
type LimitLeft = job.LimitLeft

// complete replaces nil functions with no-ops.
func (o Observer) complete() Observer {
	if o.Started == nil {
		o.Started = func(string, time.Duration, time.Duration, string) {}
	}
	if o.Returned == nil {
		o.Returned = func(string, string) {}
	}
	if o.Shadowed == nil {
		o.Shadowed = func(string, string, time.Duration) {}
	}
	if o.Late == nil {
		o.Late = func(string, string, time.Duration) {}
	}
	if o.LimitHeld == nil {
		o.LimitHeld = func(string, string, time.Duration) {}
	}
	if o.LimitsLeft == nil {
		o.LimitsLeft = func(string, []LimitLeft) {}
	}
	if o.Finished == nil {
		o.Finished = func(string, string) {}
	}
	if o.Hinted == nil {
		o.Hinted = func(string, time.Duration) {}
	}
	if o.Ended == nil {
		o.Ended = func(string, string) {}
	}
	if o.Policy == nil {
		o.Policy = func(string, bool) {}
	}
	if o.Workerless == nil {
		o.Workerless = func(string, bool) {}
	}
	if o.Owned == nil {
		o.Owned = func(string, int) {}
	}
	if o.Breaker == nil {
		o.Breaker = func(string, int) {}
	}
	if o.Adapted == nil {
		o.Adapted = func(string, int) {}
	}
	if o.Lease == nil {
		o.Lease = func(bool) {}
	}
	if o.RecordDamaged == nil {
		o.RecordDamaged = func(string) {}
	}
	if o.RecordsNewer == nil {
		o.RecordsNewer = func(int) {}
	}
	if o.Discarded == nil {
		o.Discarded = func(string, uint64) {}
	}
	if o.HistoryLost == nil {
		o.HistoryLost = func(string) {}
	}
	if o.CallbackLost == nil {
		o.CallbackLost = func(string, string) {}
	}
	return o
}
