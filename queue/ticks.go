package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/queue/job"
)

// A killed server loses the message ids of ended jobs and may repeat a schedule's last tick. So the
// admitter notes it once its job is stored, and the drainer before it acknowledges the job.

// tickPrefix begins the Idempotency-Key of a tick's job: "schedule <name> <when> <next time>".
const tickPrefix = "schedule "

type notedTick struct {
	V    int    `json:"v"`
	Tick string `json:"tick"`
}

func tickKey(policy string, k job.Key, id string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(id, tickPrefix), " ")
	sum := sha256.Sum256([]byte(string(k) + " " + name))
	return policy + ".tick-" + hex.EncodeToString(sum[:16])
}

// NoteTick notes for 14 days that a tick has its job.
func (b *Broker) NoteTick(ctx context.Context, policy string, k job.Key,
	id string) (err error) {
	defer errs.Annotate(&err, "note a tick")
	noted, err := b.lastTick(ctx, policy, k, id)
	if err != nil || !follows(id, noted) {
		return err
	}
	data, err := json.Marshal(notedTick{job.FormatVersion, id})
	if err == nil {
		err = b.tables.ended.Set(ctx, tickKey(policy, k, id), data, endedTTL)
	}
	return err
}

// TickNoted reports whether a tick is the last one noted of its schedule.
func (b *Broker) TickNoted(ctx context.Context, t Tick) (bool, error) {
	noted, err := b.lastTick(ctx, t.Policy, t.Key, t.ID)
	return noted == t.ID, err
}

func (b *Broker) lastTick(ctx context.Context, policy string, k job.Key,
	id string) (string, error) {
	record, err := b.tables.ended.Read(ctx, tickKey(policy, k, id))
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read a noted tick: %w", err)
	}
	var noted notedTick
	if json.Unmarshal(record.Value, &noted) != nil {
		return "", nil // damaged: two jobs rather than no job
	}
	if noted.V != job.FormatVersion {
		return "", fmt.Errorf("%w: record %s", job.ErrVersion, record.Key)
	}
	return noted.Tick, nil
}

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
	key job.Key
	id  string
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
	t.jobs[a.Seq] = tickedJob{a.Key, id[0]}
}

func (t *ticked) forget(seq uint64) (j tickedJob, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j, found = t.jobs[seq]
	delete(t.jobs, seq)
	return j, found
}

// noteTick notes a finished job's tick, unless the backlog is closed.
func (l *Backlog) noteTick(j tickedJob) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), l.b.js.Timeout)
		err := l.b.NoteTick(ctx, l.o.Policy, j.key, j.id)
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
