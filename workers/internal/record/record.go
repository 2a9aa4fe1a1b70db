// Package record is what drainers write down for each other, or tell: leases, who owns which
// partition, what an owner tells the next, how often a job has failed, and how a run ended. It
// knows how these are named and stored, and that they fit a message; what they mean is decided by
// who reads them.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// Version is the format of every value in this file. A process that meets a newer one stands back:
// see ErrVersion.
const Version = 1

var ErrVersion = errors.New("written by a newer version of penstock")

// Lease is a drainer's proof of life, renewed by compare-and-set. A tombstone is written over
// it by whoever saw it expire.
//
// It tells how long it lasts, since others judge it, and which policies its writer can own, so that
// favourites are only sought among those. A reader of an older version ignores fields that it does
// not know, which is why new ones must be such that this is safe; otherwise Version goes up.
type Lease struct {
	V         int      `json:"v"`
	Nonce     uint64   `json:"nonce"`    // of the renewal, to recognize one whose answer was lost
	Lease     int64    `json:"lease_ms"` // how long the lease lasts without a renewal
	Host      string   `json:"host,omitempty"`
	PID       int      `json:"pid,omitempty"`
	Policies  []string `json:"policies"`          // whose valves this drainer may own
	Leaving   bool     `json:"leaving,omitempty"` // it takes no more partitions
	Tombstone bool     `json:"tombstone,omitempty"`

	// For people: nobody decides anything by it.

	Version string          `json:"version,omitempty"` // of the program
	Started time.Time       `json:"started,omitzero"`  // by its own clock
	Workers map[string]Crew `json:"workers,omitempty"` // by policy
}

// Crew is a drainer's own workers for a policy.
type Crew struct {
	All  int `json:"all"`
	Busy int `json:"busy,omitempty"` // with jobs of this drainer's valve, or lent to another's
}

// Owner says who owns a partition; its revision is the epoch. A released one hands over what
// the valve knew.
//
// The revision is an epoch because it only grows, whoever writes: consumers are named by it, and
// what comes under an older one is not heard.
type Owner struct {
	V        int    `json:"v"`
	Owner    string `json:"owner"`
	Nonce    uint64 `json:"nonce"`
	Released bool   `json:"released,omitempty"`
	// After is the epoch of an owner that crashed, the first of a row, or of this one before it
	// took another: a checkpoint of that or a later epoch tells what runs, unless Running was
	// collected later.
	After uint64 `json:"after,omitempty"`
	// Kept is the epoch from which on all owners start nothing under limits before a checkpoint of
	// their own is stored; 0: nobody knows, −1: this record's.
	Kept int64 `json:"kept,omitempty"`
	Handover
}

// KeepsFrom returns Kept of a record that is stored under a revision.
func (o *Owner) KeepsFrom(revision uint64) (epoch uint64, known bool) {
	if o.Kept < 0 {
		return revision, true
	}
	return uint64(o.Kept), o.Kept > 0
}

// Checkpoint is what an owner notes for the case that it crashes.
//
// It is a record of its own because it is written four times a second by the owner alone, while
// every drainer watches the record of ownership; nobody watches this one.
type Checkpoint struct {
	V     int    `json:"v"`
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"`
	Handover
}

// Handover is what a valve tells its successor about one partition, in durations. How long ago it
// told it, the successor finds out.
//
// Everything is told by durations and sequences, for clocks of two processes have nothing in
// common; what needs an age (cool-downs, backoffs) is aged by what elapsed has found.
type Handover struct {
	// when this was collected, by JetStream's clock as its owner knew it: Unix µs
	At     int64   `json:"at,omitempty"`
	Rate   string  `json:"rate,omitempty"`   // that the clocks were kept at
	Burst  int64   `json:"burst,omitempty"`  // likewise; 0: not told
	Clocks []Clock `json:"clocks,omitempty"` // of buckets that are not as good as new
	// the total outflow that the clock without a key was kept at
	Total   string `json:"total,omitempty"`
	Partial bool   `json:"partial,omitempty"` // there were too many of them to list
	// µs after which all that are not listed may start
	Rest int64 `json:"rest,omitempty"`
	// Limits are the names of those on starts, as the clocks tell what is used of them. A successor
	// after a crash may find nothing of what was started within Gap µs, and no job that cost more
	// than Cost slots has started. Of buckets that are not listed so many Slots may have been,
	// Crashed µs ago. Once a successor after a crash would find nothing of Budget slots of a
	// bucket, none of its jobs has started; 0: any number may have. ByCost says so of limits with
	// a cost of their own, by its name.
	Limits string            `json:"limits,omitempty"`
	Gap    int64             `json:"gap,omitempty"`
	Cost   int64             `json:"cost,omitempty"`
	Slots  int64             `json:"slots,omitempty"`
	Budget int64             `json:"budget,omitempty"`
	ByCost map[string]Bounds `json:"by_cost,omitempty"`
	// Together is what is used of the limits on the starts of all buckets together, and AllLimits
	// are their names, AllBudget likewise.
	Together  string `json:"together,omitempty"`
	AllLimits string `json:"all_limits,omitempty"`
	AllBudget int64  `json:"all_budget,omitempty"`
	// µs since a crash after which buckets that are not listed may have started
	Crashed int64 `json:"crashed,omitempty"`
	// jobs that have no outcome yet, and who runs them
	Running []Run `json:"running,omitempty"`
	// when the stream of these jobs was made, Unix ns: another one repeats their sequences
	Stream int64 `json:"stream,omitempty"`
	// finished a moment ago: their acknowledgement may not be seen yet
	Done []uint64 `json:"done,omitempty"`
	// sequence of the stream that was seen: a leader that has less is none
	Last uint64 `json:"last,omitempty"`
	// Through is when the newest job was stored of which anything is said here, or newer, by the
	// server's clock, Unix ns; 0: not told. One that was stored later has its sequence since a
	// backup of the stream was restored.
	Through int64 `json:"through,omitempty"`

	// Edits are how jobs differ from what is stored of them.
	Edits []Edit `json:"edits,omitempty"`

	// The rest of Running and Done, only in the stored form: see fit and unpack.

	MoreRunning []Runs `json:"more_running,omitempty"`
	MoreDone    packed `json:"more_done,omitempty"`
}

// Bounds are what a handover tells of starts, in units of a cost, as its fields of the same names
// do.
type Bounds struct {
	Cost      int64 `json:"cost,omitempty"`
	Slots     int64 `json:"slots,omitempty"`
	Budget    int64 `json:"budget,omitempty"`
	AllBudget int64 `json:"all_budget,omitempty"`
}

// Of are the bounds for a cost, "" for that of jobs; known is false of one that the record does not
// name.
func (h *Handover) Of(cost string) (b Bounds, known bool) {
	if cost == "" {
		return Bounds{h.Cost, h.Slots, h.Budget, h.AllBudget}, true
	}
	b, known = h.ByCost[cost]
	return b, known
}

// Tell writes down the bounds for a cost.
func (h *Handover) Tell(cost string, b Bounds) {
	if cost == "" {
		h.Cost, h.Slots, h.Budget, h.AllBudget = b.Cost, b.Slots, b.Budget, b.AllBudget
		return
	}
	if h.ByCost == nil {
		h.ByCost = map[string]Bounds{}
	}
	h.ByCost[cost] = b
}

// Clock is what is told of a bucket's clock. Its names are short because there may be a
// hundred thousand of them in a record that must fit a message.
type Clock struct {
	Key job.Key `json:"k"`
	// µs until the next start is due, negative for burst credit
	Due       int64 `json:"d,omitempty"`
	Tat       int64 `json:"t,omitempty"` // µs until the envelope's theoretical arrival time
	Cool      int64 `json:"c,omitempty"` // µs until the cool-down ends
	Throttles int   `json:"n,omitempty"` // cool-downs in a row
	// failures in a row of the bucket's open breaker, 0 while it is closed
	Down   int     `json:"f,omitempty"`
	Probe  int64   `json:"p,omitempty"` // µs until its next probe
	Starts float64 `json:"s,omitempty"` // per second, lately
	// that the clock was kept at, when it is not the policy's
	Rate  string `json:"r,omitempty"`
	Burst int64  `json:"b,omitempty"` // likewise
	// of the target's limit, in package adapt's form
	Learnt string `json:"a,omitempty"`
	Used   string `json:"u,omitempty"` // of the limits on starts, in package quota's form

	Wait int64 `json:"-"` // µs until its next start, before the record is fitted
}

type Run struct {
	Seq    uint64 `json:"s"`
	Holder string `json:"h"`
}

// Edit is how a job differs from what is stored of it, on an operator's word: see [job.Edit]. Its
// names are short, as those of Clock.
type Edit struct {
	Seq      uint64     `json:"s"`
	Job      int64      `json:"j"` // when it was stored, Unix ns: as in Attempt
	Front    int64      `json:"f,omitempty"`
	Priority *int       `json:"p,omitempty"`
	Deadline *time.Time `json:"d,omitempty"`
	// Run is for how many attempts, and one, that had failed it does not back off; its date counts
	// no more. 0: nobody said so
	Run int `json:"r,omitempty"`
}

// Runs is running jobs of one holder.
type Runs struct {
	Holder string `json:"h"`
	Seqs   packed `json:"s"`
}

// Attempt is what is remembered of a job that failed at least once, or was running when its
// owner crashed.
//
// It is kept apart from the ownership record, since there may be as many as jobs wait, and is
// written before the backoff begins: an attempt that is not recorded would be forgotten with its
// owner, and a job that fails for ever would be tried for ever.
type Attempt struct {
	V         int    `json:"v"`
	Attempts  int    `json:"attempts"`         // that counted
	DueIn     int64  `json:"due_in,omitempty"` // µs of backoff
	LastError string `json:"last_error,omitempty"`
	Crashes   int    `json:"crashes,omitempty"`
	At        int64  `json:"at,omitempty"` // when the backoff began, as in handover
	// when the job's stream was made, Unix ns: another one repeats its sequence
	Stream int64 `json:"stream,omitempty"`
	// when the job was stored, Unix ns: so does a backup that was restored
	Job int64 `json:"job,omitempty"`
	// of the owner that wrote it: a later one's stands
	Epoch uint64 `json:"epoch,omitempty"`
	// whose crash was the last of them: it counts once, whoever hears of it
	CrashedBy string `json:"crashed_by,omitempty"`
}

func Encode(record any) []byte {
	data, err := json.Marshal(record)
	if err != nil {
		// strings and numbers only: cannot fail
		panic(fmt.Sprintf("workers: encode %T: %v", record, err))
	}
	return data
}

// Decode reads a record. A newer format is ErrVersion; any other error means that the record is
// damaged.
//
// The version is looked at first, because the fields of a newer format need not have these types
// and would look like damage, which callers repair.
func Decode(data []byte, record any) error {
	var head struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
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
	if r, ok := record.(interface{ unpack() }); ok {
		r.unpack()
	}
	return nil
}

func Micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }
