// Package record defines the records and messages that drainers exchange.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// Version is the format of all values. A process leaves newer ones alone.
const Version = 1

var ErrVersion = errors.New("written by a newer version of penstock")

// Lease is a drainer's proof of life, overwritten with a tombstone when it expires. New fields must
// be safe to ignore; otherwise increase Version.
type Lease struct {
	V         int      `json:"v"`
	Nonce     uint64   `json:"nonce"` // to recognize a renewal whose answer was lost
	Lease     int64    `json:"lease_ms"`
	Host      string   `json:"host,omitempty"`
	PID       int      `json:"pid,omitempty"`
	Policies  []string `json:"policies"`          // whose valves it may own, or Every
	Leaving   bool     `json:"leaving,omitempty"` // it takes no more partitions
	Tombstone bool     `json:"tombstone,omitempty"`

	Version string          `json:"version,omitempty"`
	Started time.Time       `json:"started,omitzero"`
	Workers map[string]Crew `json:"workers,omitempty"` // by policy; not of idle ones for a target
}

// Every means all policies, because a lease's size must not depend on their number.
const Every = "*"

// Runs reports whether the drainer may own a policy's valve.
func (l *Lease) Runs(policy string) bool {
	return slices.Contains(l.Policies, policy) || slices.Contains(l.Policies, Every)
}

// Crew is a drainer's workers for a policy.
type Crew struct {
	All  int `json:"all"`
	Busy int `json:"busy,omitempty"` // for this drainer's valve or another's
}

// Owner records a partition's owner, with the epoch as its revision. A released one hands over.
type Owner struct {
	V        int    `json:"v"`
	Owner    string `json:"owner"`
	Released bool   `json:"released,omitempty"`
	// After is the epoch of an owner that crashed, the first of several in a row, or of this owner
	// before it took another epoch. A checkpoint of that or a later epoch has the runs, unless
	// Running was collected later.
	After uint64 `json:"after,omitempty"`
	Handover
}

// Checkpoint is an owner's state in case of a crash. It is apart from ownership records, which
// every drainer watches.
type Checkpoint struct {
	V     int    `json:"v"`
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"`
	Handover
}

// Handover is a partition's state for its successor, in durations. The successor determines the
// record's age.
type Handover struct {
	// when it was collected, by the estimate of JetStream's clock: Unix µs
	At     int64   `json:"at,omitempty"`
	Rate   string  `json:"rate,omitempty"`
	Burst  int64   `json:"burst,omitempty"`  // of the clocks; 0: not recorded
	Clocks []Clock `json:"clocks,omitempty"` // of buckets that differ from new ones
	// total outflow of the clock without a key
	Total   string `json:"total,omitempty"`
	Partial bool   `json:"partial,omitempty"` // with too many clocks to list
	// µs until unlisted buckets may start
	Rest int64 `json:"rest,omitempty"`
	// units of unlisted buckets wait for their answer
	Open bool `json:"open,omitempty"`
	// Limits names the start limits of the clocks' usage. For a successor after a crash, starts may
	// be missing within ByCost's bounds; "" is the jobs' own cost.
	Limits string            `json:"limits,omitempty"`
	ByCost map[string]Bounds `json:"by_cost,omitempty"`
	// Together is the usage of the limits over all buckets, AllLimits their names.
	Together  string `json:"together,omitempty"`
	AllLimits string `json:"all_limits,omitempty"`
	// Sizes are the most units of all these limits, by name.
	Sizes map[string]int64 `json:"sizes,omitempty"`
	// µs since a crash; unlisted buckets may have started jobs after it
	Crashed int64 `json:"crashed,omitempty"`
	// without an outcome
	Running runs `json:"running,omitempty"`
	// creation of the jobs' stream, Unix ns: another one repeats sequences
	Stream int64 `json:"stream,omitempty"`
	// finished, perhaps without an applied acknowledgement
	Done packed `json:"done,omitempty"`
	// last sequence seen: a server with less is no leader
	Last uint64 `json:"last,omitempty"`
	// Through is when the newest job of this record was stored, or later, by the server's clock,
	// Unix ns; 0: not recorded. A job stored later under a recorded sequence follows a restored
	// backup.
	Through int64 `json:"through,omitempty"`

	Edits []Edit `json:"edits,omitempty"`
	// of calls whose end was reported, as package claimant names them
	Ended packed `json:"ended,omitempty"`
	// of running calls whose requests hold units of limits, named in the same way
	Calls packed `json:"calls,omitempty"`
}

// Jobs returns what a handover says of jobs and calls, which ownership records repeat.
func (h Handover) Jobs() Handover {
	return Handover{Running: h.Running, Done: h.Done, Stream: h.Stream, Last: h.Last,
		Through: h.Through, Edits: h.Edits, Ended: h.Ended}
}

// Bounds are bounds on starts, in units of a cost: the most of any started job, what unlisted
// buckets may have started before Crashed, and the units of one bucket, and of all, that may be
// missing; 0: unlimited. Unlisted is the most units that count of a bucket that a partial record
// does not list; 0: not known.
type Bounds struct {
	Cost      int64 `json:"cost,omitempty"`
	Slots     int64 `json:"slots,omitempty"`
	Budget    int64 `json:"budget,omitempty"`
	AllBudget int64 `json:"all_budget,omitempty"`
	Unlisted  int64 `json:"unlisted,omitempty"`
}

// Clock is a bucket's clock. Names are short, because a record may hold a hundred thousand.
type Clock struct {
	Key queue.Key `json:"k"`
	// µs until the next start, negative for burst credit
	Due       int64 `json:"d,omitempty"`
	Tat       int64 `json:"t,omitempty"` // µs until the envelope's theoretical arrival time
	Cool      int64 `json:"c,omitempty"` // µs
	Throttles int   `json:"n,omitempty"`
	// failures in a row of an open breaker; 0: closed
	Down   int     `json:"f,omitempty"`
	Probe  int64   `json:"p,omitempty"` // µs until the next
	Starts float64 `json:"s,omitempty"` // recent, per second
	// if it differs from the policy's
	Rate  string `json:"r,omitempty"`
	Burst int64  `json:"b,omitempty"` // if it differs from the policy's
	// in package adapt's form
	Learnt string `json:"a,omitempty"`
	Used   string `json:"u,omitempty"` // in package quota's form

	// for Fit: µs until its next start, the units that count by cost, and whether some are open
	Wait  int64            `json:"-"`
	Units map[string]int64 `json:"-"`
	Open  bool             `json:"-"`
}

type Run struct {
	Seq    uint64
	Holder string
}

// Edit is an operator's change of a stored job; see [job.Edit].
type Edit struct {
	Seq      uint64     `json:"s"`
	Job      int64      `json:"j"` // as in Attempt
	Front    int64      `json:"f,omitempty"`
	Priority *int       `json:"p,omitempty"`
	Deadline *time.Time `json:"d,omitempty"`
	// Run is the run that ignores backoff and the job's date, numbered by Attempts and Snoozes; 0:
	// none.
	Run int `json:"r,omitempty"`
}

// Attempt is the history of a job that failed, or was running when its owner crashed, written
// before its backoff.
type Attempt struct {
	V         int    `json:"v"`
	Attempts  int    `json:"attempts"`         // those that counted
	DueIn     int64  `json:"due_in,omitempty"` // µs of backoff
	LastError string `json:"last_error,omitempty"`
	Crashes   int    `json:"crashes,omitempty"`
	Snoozes   uint16 `json:"snoozes,omitempty"` // runs after which it asked for another time
	At        int64  `json:"at,omitempty"`      // beginning of the backoff, as in Handover
	// creation of the job's stream, Unix ns
	Stream int64 `json:"stream,omitempty"`
	// storage of the job, Unix ns: a restored backup repeats its sequence
	Job int64 `json:"job,omitempty"`
	// of the writer: a later one takes precedence
	Epoch uint64 `json:"epoch,omitempty"`
	// last crashed holder, whose crash counts once
	CrashedBy string `json:"crashed_by,omitempty"`
}

var current = fmt.Appendf(nil, `{"v":%d,`, Version)

func Encode(record any) []byte {
	data, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprintf("workers: encode %T: %v", record, err))
	}
	return data
}

// Decode reads a record. A newer format is ErrVersion; any other error means damage. The version
// goes first, because newer fields may have other types.
func Decode(data []byte, record any) error {
	var head struct {
		V int `json:"v"`
	}
	if bytes.HasPrefix(data, current) {
		head.V = Version
	} else if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("decode %T: %w", record, err)
	}
	switch {
	case head.V > Version:
		return fmt.Errorf("format version %d: %w", head.V, ErrVersion)
	case head.V < Version:
		return fmt.Errorf("decode %T: there is no format version %d", record, head.V)
	}
	if err := json.Unmarshal(data, record); err != nil {
		return fmt.Errorf("decode %T: %w", record, err)
	}
	return nil
}

func Micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }
