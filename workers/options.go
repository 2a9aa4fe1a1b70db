package workers

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

// DefaultMemory is [Options.Memory] where none is given.
const DefaultMemory = 512 << 20

// LeastMemory is the least that it can be.
const LeastMemory = 1 << 20

// Options of a [Drainer]. The zero value works.
type Options struct {
	// Prefix is nats.prefix of the configuration; default "penstock".
	Prefix string
	// Replicas is how many servers keep the records that drainers share: 1, the default, 3 or 5.
	Replicas int
	// Lease is how long this process's proof of life lasts, and so about how long its work stands
	// still after it crashed: default 5 s, or 15 s with replicas; at least 1 s.
	Lease time.Duration
	// Memory is how much jobs that wait may take here, in bytes, about: default 512 MiB. When those
	// whose text is in memory take half of it, it holds only 64 bytes of each further one, and
	// reads it again from its stream before it starts.
	Memory int64
	// Policies are those whose valves this drainer may own; empty: all that it has workers for, or
	// with OwnAll all.
	Policies []string
	// OwnAll lets the drainer own the valves of policies that it has no workers for. Their jobs run
	// in workers elsewhere.
	OwnAll bool
	// LendOnly makes a process that owns no valves and only lends its workers to those of others:
	// see docs/workers-protocol.md. Lease, Policies, OwnAll and Observer mean nothing then.
	LendOnly bool
	// Target returns the handler of a policy that none was registered for; a nil Handler when it
	// has none either. The entry also says who wrote the policy, which decides what its target may
	// be. Nil: only registered handlers run.
	Target func(policy.Entry) (Handler, error)
	// Grace is how long running jobs may go on when the drainer stops; default 30 s. Then their
	// contexts end.
	Grace time.Duration
	// Ready is called once, when the drainer's lease is held and it takes part.
	Ready func()
	// Observer hears of starts and outcomes; default none.
	Observer Observer
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
}

// Observer hears what a drainer does. Each function may be nil; they are called from many
// goroutines and must return at once.
type Observer struct {
	// Started tells how late a start was for its time, how long the job had waited since it was
	// accepted, and the id of the trace that it carries, when that is sampled; else empty.
	Started func(policy string, lateness, wait time.Duration, trace string)
	// Attempt hears of each attempt that runs in this process, before its handler does, which gets
	// the context and the job that it returns; and it returns what hears how the attempt ended. It
	// is for traces. Job.Header is what is stored: to change it, change a clone.
	Attempt func(context.Context, Job) (context.Context, Job, func(error))
	// Returned tells that a job which a worker was given came back to its queue before it started,
	// without an attempt, and why: rate (its slot was not there at the last check, for the machine
	// was late and too many would have begun together), lease (this drainer's was over) or order
	// (one before it came back).
	Returned func(policy, why string)
	// Shadowed tells by how much a limit with shadow: true would have delayed a start.
	Shadowed func(policy, limit string, by time.Duration)
	// Late tells, once a second, by how much the starts of a policy's buckets became later than
	// their outflow allowed, and by what: processor (this process had none when they were due) or
	// what held them: no_worker, workers_busy, total_rate, concurrency, paused, cooling, breaker,
	// storage. What one cause holds is told when it ends.
	Late func(policy, cause string, by time.Duration)
	// LimitHeld tells, once a second, for how long a limit on starts has held buckets of a policy
	// with jobs that wait: of several buckets the times of all.
	LimitHeld func(policy, limit string, held time.Duration)
	// LimitsLeft tells, once a second, how much may start now of those limits on starts that count
	// all keys of a policy (key: global) or of several policies, and whose state is with this
	// drainer.
	LimitsLeft func(policy string, left []LimitLeft)
	// Finished tells how an attempt ended: done, failed, throttled, permanent (no other can
	// succeed), returned (not started after all) or uncounted (interrupted, or its worker elsewhere
	// left).
	Finished func(policy, outcome string)
	// Hinted tells that a target which did not throttle said that nothing is left of what it
	// allows, and for how long: see [Job.CoolDown].
	Hinted func(policy string, pause time.Duration)
	// Ended tells how a job ended: done; dead, once the dead letter is stored, whatever its reason;
	// or cancelled, by an operator.
	Ended func(policy, outcome string)
	// Policy tells that there is a policy whose jobs this drainer may start, or that there is none
	// of that name any more.
	Policy func(policy string, known bool)
	// Workerless tells that jobs of a policy that this drainer owns have been due for some seconds
	// while there is no worker for them anywhere, or that this is over.
	Workerless func(policy string, workerless bool)
	// Owned tells how many partitions of a policy this drainer owns.
	Owned func(policy string, partitions int)
	// Breaker tells how many breakers of a policy are open in this drainer: those of single
	// buckets, and the one of all of them together. See [Unavailable].
	Breaker func(policy string, open int)
	// Adapted tells, once a second, how many buckets of a policy that this drainer owns are slower
	// than their outflow because of what they have learnt of their target's limit (adapt).
	Adapted func(policy string, buckets int)
	// Lease tells whether this drainer holds its lease. Without it nothing starts.
	Lease func(held bool)
	// RecordDamaged tells that a record in a KV bucket could not be read, and is rebuilt: see
	// [Drainer.Notes].
	RecordDamaged func(bucket string)
	// RecordsNewer tells how many records of a newer format there are, each of which stops what it
	// is about.
	RecordsNewer func(records int)
	// Discarded tells that old dead letters of a policy were discarded, to make room for new ones.
	Discarded func(policy string, letters uint64)
	// HistoryLost tells that it was not kept how a job of a policy with keep_done ended: the server
	// did not take it, or not in time.
	HistoryLost func(policy string)
	// CallbackLost tells that the outcome of a job will not be posted to the URL that its submitter
	// named, and why: full (the queue of the callbacks is) or refused.
	CallbackLost func(policy, reason string)
}

// LimitLeft is how many units of a limit on starts may start now, and how many may at most.
type LimitLeft = job.LimitLeft

// complete is the observer with functions that do nothing in place of those that are missing.
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
