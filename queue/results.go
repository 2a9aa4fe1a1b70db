package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
)

const (
	// maxEnded bounds each table of ended jobs to about 20 MB.
	maxEnded = 100_000
	endedTTL = deadMaxAge
)

func endedKey(policy string, seq uint64) string {
	return policy + "." + strconv.FormatUint(seq, 10)
}

// Results records how jobs ended, at most 100,000 of each kind: for 14 days, dead letters, and
// cancelled or purged jobs with an Idempotency-Key; in memory, for the duplicate window, completed
// jobs with one.
type Results struct {
	ended, done *kv.Table
	replicas    int
}

// Results returns the ends of jobs.
func (b *Broker) Results() Results { return Results{b.tables.ended, b.tables.done, b.replicas} }

// Read returns how a job ended, or ErrNotFound.
func (ends Results) Read(ctx context.Context, policy string, seq uint64) (e job.Ended, err error) {
	defer errs.Annotate(&err, "end of job %s", job.ID(policy, seq))
	e, err = readEnded(ctx, ends.ended, policy, seq)
	if errors.Is(err, ErrNotFound) {
		e, err = readEnded(ctx, ends.done, policy, seq)
	}
	if errors.Is(err, ErrNoStream) {
		// a restarted single server lost the table in memory; the ends noted until now are lost too
		if err = ends.done.Ensure(ctx, ends.replicas, 0); err == nil {
			err = ErrNotFound
		}
	}
	return e, err
}

func readEnded(ctx context.Context, t *kv.Table, policy string, seq uint64) (job.Ended, error) {
	record, err := t.Read(ctx, endedKey(policy, seq))
	if err != nil {
		return job.Ended{}, err
	}
	var e job.Ended
	if err := json.Unmarshal(record.Value, &e); err != nil || e.V != job.FormatVersion {
		return job.Ended{}, fmt.Errorf("%w: record %s", job.ErrVersion, record.Key)
	}
	return e, nil
}

// Note records an unsuccessful end for 14 days. Call it before the acknowledgement, and repeat it
// on any error.
func (ends Results) Note(ctx context.Context, policy string, seq uint64, e job.Ended) (
	err error) {

	defer errs.Annotate(&err, "note the end of job %s", job.ID(policy, seq))
	return ends.ended.Set(ctx, endedKey(policy, seq), e.Encode(), endedTTL)
}

// NoteDone records for ttl that a job with an Idempotency-Key is done, without waiting for the
// server. Repeats without a record are accepted with any payload.
func (ends Results) NoteDone(policy string, seq uint64, e job.Ended, ttl time.Duration) error {
	e.How = job.EndDone
	ttl = max(ttl, time.Second).Truncate(time.Second)
	if err := ends.done.SetNoWait(endedKey(policy, seq), e.Encode(), ttl); err != nil {
		return fmt.Errorf("note that job %s is done: %w", job.ID(policy, seq), err)
	}
	return nil
}
