package jet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/queue"
)

// A killed server loses the message ids of ended jobs and may repeat a schedule's last tick. So the
// admitter notes it once its job is stored, and the drainer before it acknowledges the job. The
// record also says how the schedule's last job ended.

// Runs has the last run of each schedule, among the records of [Results].
type Runs struct{ ended *kv.Table }

// Runs returns the last runs of schedules.
func (b *Broker) Runs() Runs { return Runs{b.tables.ended} }

// tickPrefix begins the Idempotency-Key of a tick's job: "schedule <name> <when> <next time>", and
// of a run by hand: "schedule <name> run <unique> <next time>".
const (
	tickPrefix = "schedule "
	byHand     = "run "
)

// RunID returns the Idempotency-Key of a run by hand, before the schedule's next time, if any.
func RunID(s Schedule, next time.Time) string {
	return tickPrefix + s.Name + " " + byHand + jsapi.NewID() + " " +
		next.UTC().Format(time.RFC3339Nano)
}

// Ran is the last run of a schedule.
type Ran struct {
	At     time.Time `json:"at,omitzero"`
	Job    uint64    `json:"job,omitempty"`    // sequence of its job
	Missed string    `json:"missed,omitempty"` // why it has no job
	End    queue.End `json:"end,omitempty"`    // of the job; empty: it has not ended, or is unknown
}

type notedTick struct {
	V    int       `json:"v"`
	Tick string    `json:"tick"`          // the last one with a job
	Next time.Time `json:"next,omitzero"` // after the last one
	Ran
}

func tickKey(policy string, k queue.Key, name string) string {
	sum := sha256.Sum256([]byte(string(k) + " " + name))
	return policy + ".tick-" + hex.EncodeToString(sum[:16])
}

// Note notes a tick or run by hand, with its job or why it has none, until 14 days after the
// schedule's next time.
func (runs Runs) Note(ctx context.Context, policy string, k queue.Key, id string,
	ran Ran) (err error) {
	defer errs.Annotate(&err, "note a run of a schedule")
	name, what, _ := strings.Cut(strings.TrimPrefix(id, tickPrefix), " ")
	kept := endedTTL + max(0, time.Until(nextOf(id))).Truncate(time.Second)
	_, err = runs.ended.Update(ctx, tickKey(policy, k, name), nil, kept,
		func(r kv.Record) ([]byte, error) {
			noted, err := readTick(r)
			if err != nil {
				return nil, err
			}
			noted.note(id, ran, strings.HasPrefix(what, byHand))
			return json.Marshal(noted)
		})
	return err
}

func (n *notedTick) note(id string, ran Ran, hand bool) {
	newer := !hand && follows(id, n.Tick) || hand && ran.At.After(n.At)
	switch {
	case ran.Job > 0 && ran.Job == n.Job && (hand || !newer): // noted by drainer and admitter
		n.End = cmp.Or(ran.End, n.End)
	case newer:
		n.Ran = ran
	}
	if newer && !hand {
		n.Next = nextOf(id)
		if ran.Job > 0 {
			n.Tick = id
		}
	}
}

func nextOf(id string) time.Time {
	next, err := time.Parse(time.RFC3339Nano, id[strings.LastIndex(id, " ")+1:])
	if err != nil {
		return time.Time{} // none follows
	}
	return next
}

// Noted reports whether a tick is the last one noted of its schedule.
func (runs Runs) Noted(ctx context.Context, t Tick) (bool, error) {
	record, err := runs.ended.Read(ctx, tickKey(t.Policy, t.Key, t.Name))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, fmt.Errorf("read a noted tick: %w", err)
	}
	noted, err := readTick(record)
	return noted.Tick == t.ID, err
}

func readTick(r kv.Record) (noted notedTick, err error) {
	if r.Value == nil || json.Unmarshal(r.Value, &noted) != nil {
		return notedTick{V: job.FormatVersion}, nil // if damaged, two jobs rather than no job
	}
	if noted.V != job.FormatVersion {
		err = fmt.Errorf("%w: record %s", job.ErrVersion, r.Key)
	}
	return noted, err
}

// LastRun is the last run of a schedule; zero if none is known.
type LastRun struct {
	Ran
	Noted time.Time // by the server's clock, not before the job was stored
	next  time.Time
}

// Last reads the last runs of schedules, by their [Schedule.ID].
func (runs Runs) Last(ctx context.Context, all ...Schedule) (map[string]LastRun, error) {
	ids := map[string]string{}
	for _, s := range all {
		ids[tickKey(s.Policy, s.Key, s.Name)] = s.ID()
	}
	records, err := runs.ended.Records(ctx, slices.Collect(maps.Keys(ids)))
	if err != nil {
		return nil, fmt.Errorf("read last runs of schedules: %w", err)
	}
	last := map[string]LastRun{}
	for _, r := range records {
		if noted, err := readTick(r); err == nil { // a newer format is unknown
			last[ids[r.Key]] = LastRun{noted.Ran, r.Stored, noted.Next}
		}
	}
	return last, nil
}

// follows reports whether a tick is later than the one noted.
func follows(id, noted string) bool {
	i, j := strings.LastIndex(id, " "), strings.LastIndex(noted, " ")
	if j < 0 || id[:i] != noted[:j] {
		return true // the first, or of a changed schedule
	}
	a, err := time.Parse(time.RFC3339Nano, id[i+1:])
	b, other := time.Parse(time.RFC3339Nano, noted[j+1:])
	return err != nil || other != nil || a.After(b)
}

type ticked struct {
	mu   sync.Mutex
	jobs map[uint64]tickedJob
}

type tickedJob struct {
	key    queue.Key
	id     string
	stored time.Time
}

func (t *ticked) learn(a job.Arrived) {
	id := a.Header[job.HeaderIdempotencyKey]
	if len(id) != 1 || !strings.HasPrefix(id[0], tickPrefix) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.jobs == nil {
		t.jobs = map[uint64]tickedJob{}
	}
	t.jobs[a.Seq] = tickedJob{a.Key, id[0], a.Stored}
}

func (t *ticked) forget(seq uint64) (j tickedJob, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j, found = t.jobs[seq]
	delete(t.jobs, seq)
	return j, found
}

// noteEnd notes how a schedule's job ended, unless the backlog is closed.
func (l *Backlog) noteEnd(seq uint64, j tickedJob) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), l.b.js.Timeout)
		err := l.b.Runs().noteEnd(ctx, l.o.Policy, seq, j)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-time.After(ackRepeat):
		case <-l.stop:
			return
		}
	}
}

// noteEnd relies on the record of any other end than done, which comes before it.
func (runs Runs) noteEnd(ctx context.Context, policy string, seq uint64, j tickedJob) error {
	ran := Ran{At: j.stored, Job: seq, End: queue.EndDone}
	end, err := readEnded(ctx, runs.ended, policy, seq)
	switch {
	case err == nil && end.Accepted.Equal(j.stored):
		ran.End = end.How
	case errors.Is(err, job.ErrVersion):
		ran.End = ""
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	}
	return runs.Note(ctx, policy, j.key, j.id, ran)
}
