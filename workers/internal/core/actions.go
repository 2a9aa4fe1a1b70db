package core

import (
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Performer carries out what the core wants done: the drainer, or a simulation. What one of them
// forgets does not compile.
type Performer interface {
	Close(p Partition)
	Open(o Opening)
	Start(r Run)
	StartElsewhere(r Run, worker string)
	Refuse(worker string)
	Offer(policy string)
	Ack(r Ref)
	Write(p Put)
	Read(p Put)
	WorkOn(a Aside)
	Delete(p Put)
	Fetch(r Ref)
	Save(s Save)
	Bury(u Burial)
	NoteDone(e Ending)
	NoteEnd(e Ending)
	Forget(f Forgotten)
	Report(r Report)
	TellAccepted(r Ref)
	TellCancelled(r Ref)
	TellBreaker(t Turned)
	TellTakeover(p Partition)
	TellVanished(jobs int)
	TellStrange(records []string)
	TellLost()
}

// Perform hands p everything that is to be done, in the order in which it must begin: what is
// closed goes before what is opened, and starts before what can wait.
func (c *Core) Perform(p Performer) {
	out := c.out
	c.out, c.spare = c.spare, actions{}
	each(out.closes, p.Close)
	each(out.opens, p.Open)
	each(out.starts, p.Start)
	for _, l := range out.elsewhere {
		p.StartElsewhere(l.run, l.worker)
	}
	each(out.refusals, p.Refuse)
	each(out.offers, p.Offer)
	each(out.acks, p.Ack)
	each(out.puts, p.Write)
	for _, r := range out.reads {
		p.Read(r.Put)
	}
	each(out.asides, p.WorkOn)
	each(out.deletes, p.Delete)
	each(out.fetches, p.Fetch)
	each(out.saves, p.Save)
	each(out.burials, p.Bury)
	each(out.done, p.NoteDone)
	each(out.endings, p.NoteEnd)
	each(out.forgets, p.Forget)
	each(out.reports, p.Report)
	each(out.accepted, p.TellAccepted)
	each(out.cancelled, p.TellCancelled)
	each(out.breakers, p.TellBreaker)
	each(out.takeovers, p.TellTakeover)
	if out.vanished > 0 {
		p.TellVanished(out.vanished)
	}
	if len(out.strange) > 0 {
		p.TellStrange(out.strange)
	}
	if out.lost > 0 {
		p.TellLost()
	}
	out.reset()
	c.spare = out
}

func each[A any](actions []A, perform func(A)) {
	for _, a := range actions {
		perform(a)
	}
}

// actions is what the pure parts want done, until [Core.Perform] hands it to whoever does it.
type actions struct {
	starts    []Run       // give to a worker
	elsewhere []elsewhere // give to workers elsewhere
	refusals  []string    // workers elsewhere for whose claim there is no job
	acks      []Ref       // acknowledge, with confirmation
	fetches   []Ref       // read the body
	saves     []Save      // write the attempt record, then call saved
	burials   []Burial    // store the dead letter, then call buried
	forgets   []Forgotten // delete the attempt record
	done      []Ending    // note that a job with an Idempotency-Key is done, without waiting
	endings   []Ending    // note how a job with an Idempotency-Key ended, then acknowledge it
	cancelled []Ref       // dropped on an operator's word
	accepted  []Ref       // seen for the first time, since they were stored
	breakers  []Turned    // opened or closed
	offers    []string    // policies that need workers elsewhere
	reports   []Report    // tell the new owner of a partition
	puts      []Put       // compare-and-set a record
	reads     []read      // read a record from its leader
	deletes   []Put       // delete a record
	opens     []Opening   // open a backlog
	asides    []Aside     // work on them anywhere, then call goOn
	closes    []Partition
	takeovers []Partition // of owners that crashed
	vanished  int         // jobs that were removed from the stream by others
	strange   []string    // keys of records that this version cannot read
	lost      int         // times that this process was declared dead
}

// reset empties the lists and keeps the memory of those that are long.
func (a *actions) reset() {
	clear(a.starts)
	clear(a.elsewhere)
	clear(a.acks)
	clear(a.accepted)
	*a = actions{starts: a.starts[:0], elsewhere: a.elsewhere[:0], acks: a.acks[:0],
		accepted: a.accepted[:0]}
}

// Run is a job that is given to a worker, with all that was decided of it: its last check is made
// beside the loop, and by then the job may wait again, or be another owner's.
type Run struct {
	Ref
	Stored  time.Time
	Header  map[string][]string
	Body    []byte
	Attempt int          // 1 is the first
	Due     pace.Instant // when the job could have started
	number  uint64       // of the policy's runs here
	*Ticket
}

// Finished is what the core is told when the run has come to its end.
func (r Run) Finished(o Outcome) Finished { return Finished{r.Part.Policy, r.number, o} }

// elsewhere is a run for the worker elsewhere that made a claim.
type elsewhere struct {
	run    Run
	worker string // the subject that it listens to
}

// Ending is how a job with an Idempotency-Key ended, which its repeats are told.
type Ending struct {
	Ref
	job.Ended
	asked uint64 // number of the question for whose answer it must be noted; 0: there is none
}

// ended is how a job ends, if it has an Idempotency-Key. The sum is the admitter's.
func (j *heldJob) ended(how job.End) (e job.Ended, keyed bool) {
	if job.HeaderValue(j.Header, job.HeaderIdempotencyKey) == "" {
		return e, false
	}
	return job.Ended{How: how, Accepted: j.Stored,
		Sum: job.HeaderValue(j.Header, job.HeaderSum)}, true
}

// Save asks for an attempt record to be written.
type Save struct {
	Ref
	Record   record.Attempt
	Revision uint64 // of the record that it replaces, and then its own; 0: there is none
}

// Forgotten is an attempt record that is to be deleted.
type Forgotten struct {
	Ref
	Revision uint64 // 0: whatever it is
}

// Burial is a job that is to become a dead letter.
type Burial struct {
	Ref
	Stored   time.Time
	Header   map[string][]string
	Body     []byte
	Lean     bool // Body was left out
	Attempts int  // that counted
	Reason   job.Reason
	Detail   string
}

// Turned tells that a breaker opened or closed, and by which job.
type Turned struct {
	Ref
	Open  bool
	All   bool   // of all buckets
	Error string // that the job met
}

// Report is an outcome of a job whose partition was handed over.
type Report struct {
	Policy    string
	Partition int
	Outcome   Outcome
}

// Outcome is what became of one run of a job, as reported by a worker here or, after a handover, by
// another process.
type Outcome struct {
	Seq    uint64      `json:"seq"`
	Kind   OutcomeKind `json:"kind"`
	Holder string      `json:"holder,omitempty"` // who ran it, when reported to a successor
	Error  string      `json:"error,omitempty"`
	// Unavailable says of a failed run that the target is down: see workers.Unavailable.
	Unavailable bool `json:"unavailable,omitempty"`
	// throttled: 0 when the target named no time
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// failed, permanent: how many that makes, when reported to a successor
	Attempts int `json:"attempts,omitempty"`
	// permanent: of the dead letter, when reported to a successor
	Reason job.Reason `json:"reason,omitempty"`
	// of the job, when reported to a successor: see [handover]
	Stream int64 `json:"stream,omitempty"`
}

type OutcomeKind string

const (
	OutcomeDone      OutcomeKind = "done"
	OutcomeFailed    OutcomeKind = "failed"
	OutcomeThrottled OutcomeKind = "throttled"
	OutcomePermanent OutcomeKind = "permanent"
	OutcomeReturned  OutcomeKind = "returned" // never started: the last check failed
	// OutcomeUncounted is that of a job that went back after its start: the slot is spent, but no
	// attempt counts.
	OutcomeUncounted OutcomeKind = "uncounted"
	// OutcomeProgress is none yet: a job that was handed over while it ran goes on.
	outcomeProgress OutcomeKind = "progress"
)

// Table names one of the buckets of records.
type Table uint8

const (
	TableDrainers Table = iota
	TablePartitions
)

// Put is a write of a record if its revision is still the given one; 0: if there is none. The
// answer goes to core.put, with the same put.
type Put struct {
	Table    Table
	Key      string
	value    []byte
	Revision uint64
	nonce    uint64
	sent     pace.Instant
	Why      reason

	// Of a checkpoint, in place of value: it takes a while, and whoever writes it calls it.
	compose   func() []byte
	gathering *gathering // that it is composed of
}

// Bytes is the value.
func (p *Put) Bytes() []byte {
	if p.compose != nil {
		return p.compose()
	}
	return p.value
}

// reason tells what a write or a read of a record is for.
type reason uint8

const (
	WhyRenew reason = iota
	whyTombstone
	whyTake
	whyRelease
	whyCheckpoint
)

// read asks for a record because the result of a write is unknown or a conflict was met.
type read struct{ Put }

// putResult is how a write ended.
type putResult uint8

const (
	PutOK putResult = iota
	PutConflict
	PutUnknown // it may have been applied, or may yet be
)

// Opening asks for a partition's backlog by its epoch, and for what the predecessor left when
// inherit is set.
type Opening struct {
	Part    Partition
	Epoch   uint64
	Inherit bool
}
