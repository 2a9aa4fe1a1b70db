package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// historyJobs and historyBytes bound what is kept of a policy's ended jobs, the oldest go
	// first.
	historyJobs  = 100_000
	historyBytes = 64 << 20

	// historyPending is how many records of one process may wait for the server's word; more are
	// lost, so that a server that does not answer holds nothing up.
	historyPending = 4096

	// mostWindow and mostWindows bound how far one call of [History.List] looks.
	mostWindow  = 2048
	mostWindows = 64
)

// Past is a job that has ended, as the history of its policy has it. A job that ran again after a
// crash may have several.
type Past struct {
	V        int        `json:"v"`
	How      job.End    `json:"how"`
	Reason   job.Reason `json:"reason,omitempty"` // dead: why
	Error    string     `json:"error,omitempty"`
	Accepted time.Time  `json:"accepted"`
	// Attempt is the number of the last one; 0: it never ran, or that is not known.
	Attempt    int   `json:"attempt,omitempty"`
	DurationMS int64 `json:"duration_ms,omitempty"` // done: of that attempt
	// Status and Answer are what its target or handler had to say: of the answer its first KiB.
	Status int    `json:"status,omitempty"`
	Answer []byte `json:"answer,omitempty"`

	ID    uint64    `json:"-"` // in the history
	Seq   uint64    `json:"-"` // of the job
	Key   job.Key   `json:"-"`
	Ended time.Time `json:"-"`
}

// chronicle publishes what histories keep, for the policies that ask for one.
type chronicle struct {
	policies sync.Map // *kept, by name
	start    sync.Once
	js       jetstream.JetStream
}

// kept is how one policy's ended jobs are kept.
type kept struct {
	keep   time.Duration
	lost   func()
	opened atomic.Bool
}

// KeepHistory has this broker keep the jobs of a policy that end, of which [Broker.Tell] hears, for
// a while; 0: no longer. lost, which may be nil, is called for each that could not be kept.
func (b *Broker) KeepHistory(policy string, keep time.Duration, lost func()) {
	if keep == 0 {
		b.chronicle.policies.Delete(policy)
		return
	}
	if lost == nil {
		lost = func() {}
	}
	if now, found := b.chronicle.policies.Load(policy); found && now.(*kept).keep == keep {
		return
	}
	b.chronicle.policies.Store(policy, &kept{keep: keep, lost: lost})
}

var endOf = map[string]job.End{EventDone: job.EndDone, EventDead: job.EndDead,
	EventCancelled: job.EndCancelled}

// chronicled keeps a job that ended, without waiting for anything.
func (b *Broker) chronicled(policy string, e Event) {
	found, wanted := b.chronicle.policies.Load(policy)
	end, ended := endOf[e.Type]
	if !wanted || !ended {
		return
	}
	h := found.(*kept)
	past := Past{V: job.FormatVersion, How: end, Reason: job.Reason(e.Reason), Error: e.Error,
		Accepted: e.Accepted, Attempt: e.Attempt, DurationMS: e.DurationMS}
	if e.Reply != nil {
		past.Status = e.Reply.Status
		past.Answer = e.Reply.Body[:min(len(e.Reply.Body), job.KeptReply)]
	}
	body, err := json.Marshal(past)
	if err != nil {
		h.lost()
		return
	}
	_, seq, _ := job.ParseID(e.Job)
	m := nats.NewMsg(b.names.history(policy, strconv.FormatUint(seq, 10), string(e.Key)))
	m.Data = body
	m.Header.Set(jetstream.MsgTTLHeader, max(h.keep, time.Second).Truncate(time.Second).String())
	if !h.opened.CompareAndSwap(false, true) {
		b.chronicle.send(b, h, m)
		return
	}
	go func() { // the first one since the process began, or since the stream was gone
		ctx, cancel := context.WithTimeout(context.Background(), 4*jsapi.CallTimeout)
		defer cancel()
		if err := b.openHistory(ctx, policy); err != nil {
			b.log.Debug("no history of ended jobs", "policy", policy, "error", err)
			h.opened.Store(false)
		}
		b.chronicle.send(b, h, m)
	}()
}

func (c *chronicle) send(b *Broker, h *kept, m *nats.Msg) {
	c.start.Do(func() {
		c.js, _ = jetstream.New(b.nc, // the options are in order
			jetstream.WithPublishAsyncMaxPending(historyPending),
			jetstream.WithPublishAsyncTimeout(2*jsapi.CallTimeout),
			jetstream.WithPublishAsyncErrHandler(b.unkept))
	})
	if c.js.PublishAsyncPending() >= historyPending {
		h.lost()
		return
	}
	if _, err := c.js.PublishMsgAsync(m); err != nil {
		h.lost()
	}
}

// unkept is told of each record that was not stored, or of which nobody said that it was.
func (b *Broker) unkept(_ jetstream.JetStream, m *nats.Msg, err error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, b.names.history()+"."), ".")
	if found, wanted := b.chronicle.policies.Load(name); wanted {
		h := found.(*kept)
		h.lost()
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			h.opened.Store(false)
		}
	}
}

// openHistory creates the stream of a policy's ended jobs. Each of its messages has a subject, so
// that a job is found by its sequence, and a time to live, so that a policy may change it.
func (b *Broker) openHistory(ctx context.Context, policy string) error {
	err := b.createBounded(ctx, policy, jetstream.StreamConfig{
		Name:        b.names.historyStream(policy),
		Description: "Penstock: jobs of policy " + policy + " that have ended",
		Subjects:    []string{b.names.history(policy, ">")},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardOld,
		MaxMsgs:     historyJobs,
		MaxBytes:    historyBytes,
		Duplicates:  time.Second,
		Replicas:    b.replicas,
		AllowDirect: true,
		AllowMsgTTL: true,
		Metadata:    map[string]string{jsapi.MetaVersion: strconv.Itoa(job.FormatVersion)},
	})
	if jsapi.HasCode(err, jsapi.CodeNameInUse) {
		return nil // with a bound of another moment
	}
	return err
}

// History is what is kept of a policy's jobs that have ended, if it says keep_done: for so long,
// and of at most 100,000 jobs and 64 MiB.
type History struct {
	b      *Broker
	policy string
}

// History is that of a policy.
func (b *Broker) History(policy string) History { return History{b, policy} }

// Read returns a job that has ended; [ErrNotFound] when that is not kept.
func (h History) Read(ctx context.Context, seq uint64) (Past, error) {
	m, err := h.b.js.Message(ctx, h.b.names.historyStream(h.policy), map[string]any{
		"last_by_subj": h.b.names.history(h.policy, strconv.FormatUint(seq, 10), ">")})
	if errors.Is(err, ErrNoStream) {
		err = ErrNotFound
	}
	past, ok := h.past(m)
	if err == nil && !ok {
		err = job.ErrVersion
	}
	if err != nil {
		return Past{}, fmt.Errorf("history of job %s: %w", job.ID(h.policy, seq), err)
	}
	return past, nil
}

// List returns at most limit jobs that have ended, the last one first: those of a bucket, or of all
// if k is empty, and those before the one with an ID, or from the last one on if that is 0. next is
// what before must be for more, 0 when there are none: it looks only so far, so there may be more
// where it found fewer, even none.
func (h History) List(ctx context.Context, k job.Key, before uint64, limit int) (
	found []Past, next uint64, err error) {

	stream := h.b.names.historyStream(h.policy)
	subject := ""
	if k != "" {
		if _, err := job.ParseKey(string(k)); err != nil { // a wildcard would match other buckets
			return nil, 0, fmt.Errorf("history of bucket %s.%s: %w", h.policy, k, err)
		}
		subject = h.b.names.history(h.policy, "*", string(k))
	}
	info, err := h.b.js.StreamInfo(ctx, stream, "")
	if jsapi.HasCode(err, jsapi.CodeStreamNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("history of %s: %w", h.policy, jsapi.Translate(err))
	}
	// It cannot be read backwards, so it is read by windows that grow, from the last one on.
	last, first := info.State.LastSeq, info.State.FirstSeq
	if before > 0 {
		last = min(last, before-1)
	}
	width := uint64(limit)
	for range mostWindows {
		if last < first || info.State.Msgs == 0 {
			return found, 0, nil
		}
		from := max(first, last-min(width, last)+1)
		window, err := h.window(ctx, stream, subject, from, last)
		if err != nil {
			return nil, 0, fmt.Errorf("history of %s: %w", h.policy, err)
		}
		slices.Reverse(window)
		found = append(found, window...)
		if len(found) >= limit {
			found = found[:limit]
			return found, found[limit-1].ID, nil
		}
		last, width = from-1, min(2*width, mostWindow)
	}
	return found, last + 1, nil
}

// window reads what matches between two IDs, in order.
func (h History) window(ctx context.Context, stream, subject string, from, last uint64) (
	found []Past, err error) {

	for from <= last {
		read, err := h.b.js.Batch(ctx, stream, subject, from, int(last-from)+1)
		if err != nil || len(read) == 0 {
			return found, err
		}
		for _, m := range read {
			if past, ok := h.past(m); ok && m.Seq <= last {
				found = append(found, past)
			}
			from = m.Seq + 1
		}
	}
	return found, nil
}

func (h History) past(m jsapi.Message) (past Past, ok bool) {
	seq, key, _ := strings.Cut(strings.TrimPrefix(m.Subject, h.b.names.history(h.policy)+"."), ".")
	if err := json.Unmarshal(m.Data, &past); err != nil || past.V != job.FormatVersion {
		return past, false
	}
	past.ID, past.Key, past.Ended = m.Seq, job.Key(key), m.Time
	past.Seq, _ = strconv.ParseUint(seq, 10, 64)
	return past, true
}

// Drop deletes the history of a policy that is gone: the sequences of one that is made again begin
// again.
func (h History) Drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, jsapi.CallTimeout)
	defer cancel()
	err := h.b.js.DeleteStream(ctx, h.b.names.historyStream(h.policy))
	if err != nil && !jsapi.HasCode(err, jsapi.CodeStreamNotFound) {
		return fmt.Errorf("history of %s: %w", h.policy, jsapi.Translate(err))
	}
	return nil
}
