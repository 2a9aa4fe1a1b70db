package workers

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// version is the format of every value in this file. Who meets another one stands back: see errVersion.
const version = 1

var errVersion = errors.New("written by another version of penstock")

// leaseRecord is a drainer's proof of life, renewed by compare-and-set. A tombstone is written over it by whoever saw it
// expire.
type leaseRecord struct {
	V         int      `json:"v"`
	Nonce     uint64   `json:"nonce"`    // of the renewal, to recognize one whose answer was lost
	Lease     int64    `json:"lease_ms"` // how long the lease lasts without a renewal
	Host      string   `json:"host,omitempty"`
	PID       int      `json:"pid,omitempty"`
	Policies  []string `json:"policies"`          // whose valves this drainer may own
	Leaving   bool     `json:"leaving,omitempty"` // it takes no more partitions
	Tombstone bool     `json:"tombstone,omitempty"`

	// For people: nobody decides anything by it.

	Version string                `json:"version,omitempty"` // of the program
	Started time.Time             `json:"started,omitzero"`  // by its own clock
	Workers map[string]crewRecord `json:"workers,omitempty"` // by policy
}

// crewRecord is a drainer's own workers for a policy.
type crewRecord struct {
	All  int `json:"all"`
	Busy int `json:"busy,omitempty"` // with jobs of this drainer's valve, or lent to another's
}

// ownerRecord says who owns a partition; its revision is the epoch. A released one hands over what the valve knew.
type ownerRecord struct {
	V        int    `json:"v"`
	Owner    string `json:"owner"`
	Nonce    uint64 `json:"nonce"`
	Released bool   `json:"released,omitempty"`
	// After is the epoch of an owner that crashed, the first of a row, or of this one before it took another: a checkpoint of
	// that or a later epoch tells what runs, unless Running was collected later.
	After uint64 `json:"after,omitempty"`
	handover
}

// checkpoint is what an owner notes for the case that it crashes.
type checkpoint struct {
	V     int    `json:"v"`
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"`
	handover
}

// handover is what a valve tells its successor about one partition, in durations. How long ago it told it is found by
// [core.elapsed].
type handover struct {
	At      int64         `json:"at,omitempty"`      // when this was collected, by JetStream's clock as its owner knew it: Unix µs
	Rate    string        `json:"rate,omitempty"`    // that the clocks were kept at
	Burst   int64         `json:"burst,omitempty"`   // likewise; 0: not told
	Clocks  []clockRecord `json:"clocks,omitempty"`  // of buckets that are not as good as new
	Total   string        `json:"total,omitempty"`   // the total outflow that the clock without a key was kept at
	Partial bool          `json:"partial,omitempty"` // there were too many of them to list
	Crashed int64         `json:"crashed,omitempty"` // µs since a crash after which buckets that are not listed may have started
	Running []runRecord   `json:"running,omitempty"` // jobs that have no outcome yet, and who runs them
	Stream  int64         `json:"stream,omitempty"`  // when the stream of these jobs was made, Unix ns: another one repeats their sequences
	Done    []uint64      `json:"done,omitempty"`    // finished a moment ago: their acknowledgement may not be seen yet
	Last    uint64        `json:"last,omitempty"`    // sequence of the stream that was seen: a leader that has less is none

	// The rest of Running and Done, only in the stored form: see fit and unpack.

	MoreRunning []heldRuns `json:"more_running,omitempty"`
	MoreDone    packed     `json:"more_done,omitempty"`
}

type clockRecord struct {
	Key       queue.Key `json:"k"`
	Due       int64     `json:"d,omitempty"` // µs until the next start is due, negative for burst credit
	Tat       int64     `json:"t,omitempty"` // µs until the envelope's theoretical arrival time
	Cool      int64     `json:"c,omitempty"` // µs until the cool-down ends
	Throttles int       `json:"n,omitempty"` // cool-downs in a row
	Down      int       `json:"f,omitempty"` // failures in a row of the bucket's open breaker, 0 while it is closed
	Probe     int64     `json:"p,omitempty"` // µs until its next probe
	Starts    float64   `json:"s,omitempty"` // per second, lately
	Rate      string    `json:"r,omitempty"` // that the clock was kept at, when it is not the policy's
	Burst     int64     `json:"b,omitempty"` // likewise
}

type runRecord struct {
	Seq    uint64 `json:"s"`
	Holder string `json:"h"`
}

// heldRuns is running jobs of one holder.
type heldRuns struct {
	Holder string `json:"h"`
	Seqs   packed `json:"s"`
}

// attemptRecord is what is remembered of a job that failed at least once, or was running when its owner crashed.
type attemptRecord struct {
	V         int    `json:"v"`
	Attempts  int    `json:"attempts"`         // that counted
	DueIn     int64  `json:"due_in,omitempty"` // µs of backoff
	LastError string `json:"last_error,omitempty"`
	Crashes   int    `json:"crashes,omitempty"`
	At        int64  `json:"at,omitempty"`         // when the backoff began, as in handover
	Stream    int64  `json:"stream,omitempty"`     // when the job's stream was made, Unix ns: another one repeats its sequence
	Epoch     uint64 `json:"epoch,omitempty"`      // of the owner that wrote it: a later one's stands
	CrashedBy string `json:"crashed_by,omitempty"` // whose crash was the last of them: it counts once, whoever hears of it
}

// outcome is what became of one run of a job, as reported by a worker here or, after a handover, by another process.
type outcome struct {
	Seq    uint64      `json:"seq"`
	Kind   outcomeKind `json:"kind"`
	Holder string      `json:"holder,omitempty"` // who ran it, when reported to a successor
	Error  string      `json:"error,omitempty"`
	// Unavailable says of a failed run that the target is down: see [Unavailable].
	Unavailable bool          `json:"unavailable,omitempty"`
	RetryAfter  time.Duration `json:"retry_after,omitempty"` // throttled: 0 when the target named no time
	Attempts    int           `json:"attempts,omitempty"`    // failed, permanent: how many that makes, when reported to a successor
	Reason      Reason        `json:"reason,omitempty"`      // permanent: of the dead letter, when reported to a successor
	Stream      int64         `json:"stream,omitempty"`      // of the job, when reported to a successor: see [handover]
}

type outcomeKind string

const (
	outcomeDone      outcomeKind = "done"
	outcomeFailed    outcomeKind = "failed"
	outcomeThrottled outcomeKind = "throttled"
	outcomePermanent outcomeKind = "permanent"
	outcomeReturned  outcomeKind = "returned" // never started: the fence or the handoff said no
	// outcomeUncounted is that of a job that went back after its start: the slot is spent, but no attempt counts.
	outcomeUncounted outcomeKind = "uncounted"
	// outcomeProgress is none yet: a job that was handed over while it ran goes on.
	outcomeProgress outcomeKind = "progress"
)

func encode(record any) []byte {
	data, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprintf("workers: encode %T: %v", record, err)) // strings and numbers only: cannot fail
	}
	return data
}

// decode reads a record and refuses those of another format version.
func decode(data []byte, record any) error {
	var head struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("decode %T: %w", record, err)
	}
	if head.V != version {
		return fmt.Errorf("format version %d: %w", head.V, errVersion)
	}
	if err := json.Unmarshal(data, record); err != nil {
		return fmt.Errorf("decode %T: %w", record, err)
	}
	if r, ok := record.(interface{ unpack() }); ok {
		r.unpack()
	}
	return nil
}

func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }
