package jet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/queue"
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
	e.How = queue.EndDone
	ttl = max(ttl, time.Second).Truncate(time.Second)
	if err := ends.done.SetNoWait(endedKey(policy, seq), e.Encode(), ttl); err != nil {
		return fmt.Errorf("note that job %s is done: %w", job.ID(policy, seq), err)
	}
	return nil
}

// maxReplays bounds the replays followed for one job.
const maxReplays = 16

// Repeated looks up the job that a submission repeats. It returns the receipt of a job that waits,
// runs or is done, perhaps a replay of the first one's dead letter, or [*EndedError] or
// [ErrOtherPayload]. A job without any record counts as done.
func (p *Producer) Repeated(ctx context.Context, s Submission, r Receipt) (Receipt, error) {
	r.Duplicate = true
	sum := job.PayloadSum(s.Header, s.Body)
	var err error
	for gone, replays := false, 0; replays < maxReplays; {
		var e job.Ended
		if e, err = p.ended(ctx, s.Policy, r.Seq); err == nil {
			switch {
			case e.Sum != "" && e.Sum != sum:
				return Receipt{}, ErrOtherPayload
			case e.How == queue.EndDone:
				return r, nil
			case e.How == queue.EndReplayed:
				r.Seq, replays = e.Job, replays+1
				continue
			}
			return Receipt{}, &EndedError{s.Policy, r.Seq, e}
		}
		if !errors.Is(err, ErrNotFound) || gone {
			break
		}
		var stored job.Arrived
		if stored, err = p.b.StoredJob(ctx, s.Policy, r.Seq); err == nil {
			if job.PayloadSum(stored.Header, stored.Body) != sum {
				return Receipt{}, ErrOtherPayload
			}
			return r, nil
		}
		// it may have ended after its end was looked up
		gone = errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoStream)
		if !gone {
			break
		}
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Receipt{}, fmt.Errorf("find the job that this one repeats: %w", err)
	}
	return r, nil
}

// ended is Results.Read for a job of the present stream: a recreated one repeats sequences.
func (p *Producer) ended(ctx context.Context, policy string, seq uint64) (job.Ended, error) {
	e, err := p.b.Results().Read(ctx, policy, seq)
	if err != nil {
		return job.Ended{}, err
	}
	info, err := p.b.js.StreamInfo(ctx, p.b.names.Stream(policy), "")
	if err != nil {
		return job.Ended{}, err
	}
	if e.Accepted.Before(info.Created) {
		return job.Ended{}, ErrNotFound
	}
	return e, nil
}

// outcome is the subject of a job's outcome for its waiting submitter. The token is the job's
// [job.HeaderWaiter] and cannot be guessed.
func (n Names) outcome(token string) string { return n.lower + ".outcome." + token }

// headerTold holds a job's result; the message's body is the reply's.
const headerTold = "Penstock-Outcome"

// PublishResult publishes a job's result once, on core NATS, if its header names a waiter. Any
// producer may have written that header, so it goes only to [Names.outcome].
func (b *Broker) PublishResult(header map[string][]string, t queue.Result) {
	token := job.HeaderValue(header, job.HeaderWaiter)
	if !job.IsWaiter(token) {
		return
	}
	m := nats.NewMsg(b.names.outcome(token))
	if t.Reply != nil {
		reply := job.Within(*t.Reply, b.nc.MaxPayload())
		if t.Reply = &reply; !reply.Cut {
			m.Data = reply.Body
		}
	}
	m.Header.Set(headerTold, string(job.EncodeResult(t)))
	if err := b.nc.PublishMsg(m); err != nil {
		b.log.Debug("outcome not told", "job", t.Job, "error", err)
	}
}

// Waiting waits for the end of a job. Call Leave afterwards.
type Waiting struct {
	// Token belongs in the job's [job.HeaderWaiter].
	Token   string
	sub     *nats.Subscription
	outcome <-chan *nats.Msg
}

// Await waits for the outcome of a job that is then published over this connection. Call
// [Waiting.Leave].
func (b *Broker) Await() (*Waiting, error) {
	token := rand.Text()
	outcome := make(chan *nats.Msg, 1)
	sub, err := b.nc.ChanSubscribe(b.names.outcome(token), outcome)
	if err == nil {
		err = sub.AutoUnsubscribe(1) // a sender with a guessed token cannot fill memory
	}
	if err != nil {
		return nil, fmt.Errorf("wait for an outcome: %w", jsapi.Translate(err))
	}
	return &Waiting{token, sub, outcome}, nil
}

// Outcome returns the result of the job once it has ended, or an error once ctx has.
func (w *Waiting) Outcome(ctx context.Context) (queue.Result, error) {
	var m *nats.Msg
	select {
	case m = <-w.outcome:
	case <-ctx.Done():
		return queue.Result{}, fmt.Errorf("wait for an outcome: %w", ctx.Err())
	}
	t, err := job.DecodeResult([]byte(m.Header.Get(headerTold)))
	if err != nil {
		return queue.Result{}, fmt.Errorf("outcome of a job: %w", err)
	}
	if t.Reply != nil {
		t.Reply.Body = m.Data
	}
	return t, nil
}

// Leave ends the waiting.
func (w *Waiting) Leave() { _ = w.sub.Unsubscribe() }
