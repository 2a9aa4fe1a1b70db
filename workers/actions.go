package workers

import "github.com/penstock-mq/penstock/queue"

// actions is what the pure parts want done. The drainer, or a simulation, carries them out and clears the lists.
type actions struct {
	starts    []run       // give to a worker
	lent      []lent      // give to workers elsewhere
	refusals  []string    // workers elsewhere for whose claim there is no job
	acks      []recordOf  // acknowledge, with confirmation
	fetches   []*job      // read the body
	saves     []save      // write the attempt record, then call saved
	burials   []burial    // store the dead letter, then call buried
	forgets   []forgotten // delete the attempt record
	done      []ending    // note that a job with an Idempotency-Key is done, without waiting
	endings   []ending    // note how a job with an Idempotency-Key ended, then acknowledge it
	cancelled []*job      // dropped on an operator's word
	accepted  []*job      // seen for the first time, since they were stored
	breakers  []turned    // opened or closed
	offers    []string    // policies that need workers elsewhere
	reports   []report    // tell the new owner of a partition
	puts      []put       // compare-and-set a record
	reads     []read      // read a record from its leader
	deletes   []put       // delete a record
	opens     []opening   // open a backlog
	closes    []*partition
	takeovers []*partition // of owners that crashed
	vanished  int          // jobs that were removed from the stream by others
	strange   int          // records of another format version
	lost      int          // times that this process was declared dead
}

// clear empties the lists and keeps their memory.
func (a *actions) clear() {
	clear(a.starts)
	clear(a.lent)
	clear(a.acks)
	clear(a.accepted)
	*a = actions{starts: a.starts[:0], lent: a.lent[:0], acks: a.acks[:0], accepted: a.accepted[:0]}
}

// recordOf names a stored job.
type recordOf struct {
	part *partition
	seq  uint64
}

// lent is a run for the worker elsewhere that made a claim.
type lent struct {
	run    run
	worker string // the subject that it listens to
}

// ending is how a job with an Idempotency-Key ended, which its repeats are told.
type ending struct {
	recordOf
	queue.Ended
	noted func() // called in the loop when it is stored; may be nil
}

// ended is how a job ends, if it has an Idempotency-Key. The sum is the admitter's.
func (j *job) ended(how queue.End) (e queue.Ended, keyed bool) {
	if header(j.Header, queue.HeaderIdempotencyKey) == "" {
		return e, false
	}
	return queue.Ended{How: how, Accepted: j.Stored, Sum: header(j.Header, queue.HeaderSum)}, true
}

type burial struct {
	*job
	reason Reason
	detail string
}

// turned tells that a breaker opened or closed, and by which job.
type turned struct {
	*job
	open bool
	all  bool // of all buckets
}

// report is an outcome of a job whose partition was handed over.
type report struct {
	policy    string
	partition int
	outcome   outcome
}

// table names one of the buckets of records.
type table uint8

const (
	tableDrainers table = iota
	tablePartitions
)

// put is a write of a record if its revision is still the given one; 0: if there is none. The answer goes to core.put,
// with the same put.
type put struct {
	table    table
	key      string
	value    []byte
	revision uint64
	nonce    uint64
	sent     instant
	why      reason

	// Of a checkpoint, in place of value: it takes a while, and whoever writes it calls it.
	compose   func() []byte
	gathering *gathering // that it is composed of
}

// bytes is the value.
func (p *put) bytes() []byte {
	if p.compose != nil {
		return p.compose()
	}
	return p.value
}

// reason tells what a write or a read of a record is for.
type reason uint8

const (
	whyRenew reason = iota
	whyTombstone
	whyClaim
	whyRelease
	whyCheckpoint
)

// read asks for a record because the result of a write is unknown or a conflict was met.
type read struct{ put }

// putResult is how a write ended.
type putResult uint8

const (
	putOK putResult = iota
	putConflict
	putUnknown // it may have been applied, or may yet be
)

// opening asks for a partition's backlog by its epoch, and for what the predecessor left when inherit is set.
type opening struct {
	part    *partition
	inherit bool
}
