package jet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

const (
	historyJobs  = 100_000
	historyBytes = 64 << 20

	// historyPending bounds one process's unconfirmed records. More are lost, so that an
	// unresponsive server delays nothing.
	historyPending = 4096

	// These bound the range searched by one call of [History.List].
	mostWindow  = 2048
	mostWindows = 64
)

// HistoryEntry is an ended job. A job that ran twice may have two.
type HistoryEntry struct {
	V        int          `json:"v"`
	How      queue.End    `json:"how"`
	Reason   queue.Reason `json:"reason,omitempty"`
	Error    string       `json:"error,omitempty"`
	Accepted time.Time    `json:"accepted"`
	// Attempt is the last one; 0: the job never ran, or it is unknown.
	Attempt    int   `json:"attempt,omitempty"`
	DurationMS int64 `json:"duration_ms,omitempty"` // done: of the last attempt
	// Of the target's or handler's reply, with at most 1 KiB of the answer.
	Status int    `json:"status,omitempty"`
	Answer []byte `json:"answer,omitempty"`

	ID    uint64    `json:"-"` // in the history
	Seq   uint64    `json:"-"` // of the job
	Key   queue.Key `json:"-"`
	Ended time.Time `json:"-"`
}

// histories add to the histories of policies, without waiting for confirmations.
type histories struct {
	bounds   *bounds
	names    Names
	log      *slog.Logger
	policies sync.Map // *kept, by name
	js       jetstream.JetStream
}

func newHistories(nc *nats.Conn, domain string, bs *bounds) (hs *histories, err error) {
	hs = &histories{bounds: bs, names: bs.names, log: bs.log}
	hs.js, err = jsapi.Open(nc, domain,
		jetstream.WithPublishAsyncMaxPending(historyPending),
		jetstream.WithPublishAsyncTimeout(2*bs.js.Timeout),
		jetstream.WithPublishAsyncErrHandler(hs.unkept))
	return hs, err
}

type kept struct {
	keep   time.Duration
	lost   func()
	opened atomic.Bool
}

// KeepHistory makes [Events.Publish] keep ended jobs of the policy for that long; 0: no longer.
// lost, which may be nil, is called for each lost entry.
func (e *Events) KeepHistory(policy string, keep time.Duration, lost func()) {
	e.histories.keep(policy, keep, lost)
}

func (hs *histories) keep(policy string, keep time.Duration, lost func()) {
	if keep == 0 {
		hs.policies.Delete(policy)
		return
	}
	if lost == nil {
		lost = func() {}
	}
	if now, found := hs.policies.Load(policy); found && now.(*kept).keep == keep {
		return
	}
	hs.policies.Store(policy, &kept{keep: keep, lost: lost})
}

var endOf = map[string]queue.End{queue.EventDone: queue.EndDone, queue.EventDead: queue.EndDead,
	queue.EventCancelled: queue.EndCancelled}

func (hs *histories) add(policy string, e queue.Event) {
	found, wanted := hs.policies.Load(policy)
	end, ended := endOf[e.Type]
	if !wanted || !ended {
		return
	}
	h := found.(*kept)
	keep := job.DurationAtMost(h.keep, e.Header, job.HeaderRetention)
	if keep == 0 {
		return
	}
	past := HistoryEntry{V: job.FormatVersion, How: end, Reason: queue.Reason(e.Reason),
		Error: e.Error, Accepted: e.Accepted, Attempt: e.Attempt, DurationMS: e.DurationMS}
	if e.Reply != nil {
		past.Status = e.Reply.Status
		past.Answer = e.Reply.Body[:min(len(e.Reply.Body), job.KeptReply)]
	}
	body, _ := json.Marshal(past) // cannot fail
	_, seq, _ := job.ParseID(e.Job)
	m := nats.NewMsg(hs.names.history(policy, strconv.FormatUint(seq, 10), string(e.Key)))
	m.Data = body
	m.Header.Set(jetstream.MsgTTLHeader, max(keep, time.Second).Truncate(time.Second).String())
	if !h.opened.CompareAndSwap(false, true) {
		hs.send(h, m)
		return
	}
	go func() { // the first one, or the stream is gone
		ctx, cancel := context.WithTimeout(context.Background(), 4*hs.bounds.js.Timeout)
		defer cancel()
		if err := hs.open(ctx, policy); err != nil {
			hs.log.Debug("no history of ended jobs", "policy", policy, "error", err)
			h.opened.Store(false)
		}
		hs.send(h, m)
	}()
}

func (hs *histories) send(h *kept, m *nats.Msg) {
	if hs.js.PublishAsyncPending() < historyPending {
		if _, err := hs.js.PublishMsgAsync(m); err == nil {
			return
		}
	}
	h.lost()
}

func (hs *histories) unkept(_ jetstream.JetStream, m *nats.Msg, err error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, hs.names.history()+"."), ".")
	if found, wanted := hs.policies.Load(name); wanted {
		h := found.(*kept)
		h.lost()
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			h.opened.Store(false)
		}
	}
}

// Each message has its own subject, by which a job is found, and its own time to live, which a
// policy may change.
func (hs *histories) open(ctx context.Context, policy string) error {
	return hs.bounds.ensure(ctx, policy, recordConfig(hs.bounds.replicas,
		hs.names.historyStream(policy), hs.names.history(policy, ">"),
		"jobs of policy "+policy+" that have ended",
		jetstream.StreamConfig{Discard: jetstream.DiscardOld, MaxMsgs: historyJobs,
			MaxBytes: historyBytes, Duplicates: time.Second, AllowMsgTTL: true}))
}

// History holds a policy's ended jobs, at most 100,000 and 64 MiB.
type History struct {
	js     *jsapi.Conn
	names  Names
	policy string
}

// History returns the ended jobs of a policy.
func (b *Broker) History(policy string) History { return History{b.js, b.names, policy} }

// Read returns an ended job, or ErrNotFound.
func (h History) Read(ctx context.Context, seq uint64) (past HistoryEntry, err error) {
	defer errs.Annotate(&err, "history of job %s", job.ID(h.policy, seq))
	m, err := h.js.Message(ctx, h.names.historyStream(h.policy), map[string]any{
		"last_by_subj": h.names.history(h.policy, strconv.FormatUint(seq, 10), ">")})
	if errors.Is(err, ErrNoStream) {
		err = ErrNotFound
	}
	if err != nil {
		return HistoryEntry{}, err
	}
	past, ok := h.past(m)
	if !ok {
		return HistoryEntry{}, job.ErrVersion
	}
	return past, nil
}

// List returns at most limit ended jobs, newest first, of the bucket k (empty: of all) before an ID
// (0: from the newest). Pass next as before for more, until it is 0. A call searches a bounded
// range, so it may return fewer, even none.
func (h History) List(ctx context.Context, k queue.Key, before uint64, limit int) (
	found []HistoryEntry, next uint64, err error) {

	defer errs.Annotate(&err, "history of %s", h.policy)
	stream := h.names.historyStream(h.policy)
	subject := ""
	if k != "" {
		if _, err := queue.ParseKey(string(k)); err != nil { // a wildcard matches other buckets
			return nil, 0, err
		}
		subject = h.names.history(h.policy, "*", string(k))
	}
	messages, next, err := newest(ctx, h.js, stream, subject, before, limit)
	for _, m := range messages {
		if past, ok := h.past(m); ok {
			found = append(found, past)
		}
	}
	return found, next, err
}

func newest(ctx context.Context, js *jsapi.Conn, stream, subject string, before uint64,
	limit int) (found []jsapi.Message, next uint64, err error) {

	info, err := js.StreamInfo(ctx, stream, "")
	if err != nil {
		return nil, 0, unlessGone(err)
	}
	// Streams cannot be read backwards.
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
		var window []jsapi.Message
		for m, err := range js.Messages(ctx, stream, subject, from, int(last-from)+1) {
			if err != nil {
				return nil, 0, err
			}
			if m.Seq > last {
				break
			}
			window = append(window, m)
		}
		slices.Reverse(window)
		found = append(found, window...)
		if len(found) >= limit {
			found = found[:limit]
			return found, found[limit-1].Seq, nil
		}
		last, width = from-1, min(2*width, mostWindow)
	}
	return found, last + 1, nil
}

func (h History) past(m jsapi.Message) (past HistoryEntry, ok bool) {
	seq, key, _ := strings.Cut(strings.TrimPrefix(m.Subject, h.names.history(h.policy)+"."), ".")
	if err := json.Unmarshal(m.Data, &past); err != nil || past.V != job.FormatVersion {
		return past, false
	}
	past.ID, past.Key, past.Ended = m.Seq, queue.Key(key), m.Time
	past.Seq, _ = strconv.ParseUint(seq, 10, 64)
	return past, true
}

// Drop deletes the history of a removed policy: a later one of that name numbers its jobs from 1.
func (h History) Drop(ctx context.Context) (err error) {
	defer errs.Annotate(&err, "history of %s", h.policy)
	return h.js.DeleteStream(ctx, h.names.historyStream(h.policy))
}

const (
	// These bounds keep the audit list below about 100 MB. mostOfPolicy applies to a policy's own
	// changes and, separately, to changes of its jobs.
	mostChanges       = 50_000
	mostOfPolicy      = 1000
	mostChangedFields = 64
	mostChangedText   = 128
)

// change is a stored entry of the audit list, whose ID and time are the message's.
type change struct {
	V int `json:"v"`
	api.AuditEntry
}

// record stores a record in a stream that discards old ones, and creates the stream if needed.
func record(ctx context.Context, js *jsapi.Conn, subject string, body []byte,
	stream jetstream.StreamConfig) error {

	m := &nats.Msg{Subject: subject, Data: body}
	_, err := js.Publish(ctx, m)
	if !errors.Is(err, nats.ErrNoResponders) {
		return err
	}
	stream.Discard, stream.MaxBytes = jetstream.DiscardOld, -1
	if err = js.Ensure(ctx, stream); err == nil {
		_, err = js.Publish(ctx, m)
	}
	return err
}

// Audit adds an entry to the audit list.
func (b *Broker) Audit(ctx context.Context, c api.AuditEntry) (err error) {
	defer errs.Annotate(&err, "audit list")
	changed := c.Changed
	c.Changed = nil
	for i, text := range changed {
		if i == mostChangedFields {
			c.Changed = append(c.Changed, fmt.Sprintf("and %d more", len(changed)-i))
			break
		}
		if runes := []rune(text); len(runes) > mostChangedText {
			text = string(runes[:mostChangedText]) + "…"
		}
		c.Changed = append(c.Changed, text)
	}
	body, err := json.Marshal(change{job.FormatVersion, c})
	if err != nil {
		return err
	}
	kind := "policy"
	if c.Job != "" {
		kind = "job"
	}
	return record(ctx, b.js, b.names.audit(c.Policy, kind), body, recordConfig(b.replicas,
		b.names.auditStream(), b.names.audit("*", "*"), "changes by operators",
		jetstream.StreamConfig{MaxMsgs: mostChanges, MaxMsgsPerSubject: mostOfPolicy}))
}

// Changes lists changes of a policy, or of all if policy is empty, like [History.List].
func (b *Broker) Changes(ctx context.Context, policy string, before uint64, limit int) (
	found []api.AuditEntry, next uint64, err error) {

	defer errs.Annotate(&err, "audit list")
	subject := ""
	if policy != "" {
		subject = b.names.audit(policy, "*")
	}
	messages, next, err := newest(ctx, b.js, b.names.auditStream(), subject, before, limit)
	for _, m := range messages {
		var c change
		if json.Unmarshal(m.Data, &c) == nil && c.V == job.FormatVersion {
			c.ID, c.At = m.Seq, m.Time
			found = append(found, c.AuditEntry)
		}
	}
	return found, next, err
}
