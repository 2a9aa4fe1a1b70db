package jet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

const (
	mostInFlight = 4096
	// doorPatience bounds a closed door or an election, when a stream seems to be missing.
	doorPatience = time.Second

	retryFirst = 10 * time.Millisecond
	retryLast  = 200 * time.Millisecond

	// messageIDBytes bounds the user's part of a message id; a longer one is hashed, after
	// hashPrefix.
	messageIDBytes = 256
	hashPrefix     = "sha256:"

	// askAgain is the least interval of questions about a stream.
	askAgain = 250 * time.Millisecond

	// maxKnownStreams bounds memory: callers choose the names.
	maxKnownStreams = 10_000
)

// ProducerOptions configure a [Producer]. The zero value works.
type ProducerOptions struct {
	// Timeout bounds a Publish without a deadline, by default 5 times the connection's: 10 s.
	Timeout time.Duration
	// FailFast makes a Publish fail at once when the connection has been lost for 250 ms, or after
	// five consecutive unanswered attempts for the policy's stream; then one publish a second tries
	// again.
	FailFast bool
}

// Submission is a job to be stored.
type Submission struct {
	Policy   string
	Key      queue.Key
	Admitted bool // use the admitter's subject
	Header   nats.Header
	Body     []byte
	// IdempotencyKey, within a bucket, makes a repeat in the policy's duplicate window the same
	// job.
	IdempotencyKey string
}

// Receipt tells where a job is stored.
type Receipt struct {
	Seq       uint64 // in the policy's stream
	Duplicate bool   // accepted before, as Seq
}

// Producer publishes jobs and waits for JetStream's confirmations. It is safe for concurrent use.
type Producer struct {
	b       *Broker
	slots   chan struct{}
	timeout time.Duration
	outages *outages // nil unless FailFast
	replies replies

	mu      sync.Mutex
	streams map[string]*diagnosis
}

// diagnosis caches why a policy's stream does not respond. The holder of the lock asks others.
type diagnosis struct {
	mu  sync.Mutex
	err error
	at  time.Time
}

// NewProducer returns a producer. It needs no closing.
func (b *Broker) NewProducer(o ProducerOptions) *Producer {
	p := &Producer{b: b, slots: make(chan struct{}, mostInFlight),
		timeout: cmp.Or(o.Timeout, 5*b.js.Timeout),
		replies: replies{nc: b.nc}, streams: map[string]*diagnosis{}}
	if o.FailFast {
		p.outages = &outages{b: b, streams: map[string]*streamOutage{}}
	}
	return p
}

// Publish stores a job and waits for JetStream's confirmation. It repeats an unanswered publish
// until the context ends, and stores the job once. Errors: [ErrFull], [ErrStreamFull],
// [ErrTooLarge], [ErrNoStream]; [ErrOtherPayload] and [*EndedError] as for [Producer.Repeated];
// [ErrUnavailable]: the job may be stored, unless the error is also [ErrNotSent].
func (p *Producer) Publish(ctx context.Context, s Submission) (Receipt, error) {
	return p.Send(ctx, s)(ctx)
}

// Send sends the job; call the second half of [Producer.Publish] afterwards. Jobs of one goroutine
// are stored in order, except those sent again.
func (p *Producer) Send(ctx context.Context,
	s Submission) (wait func(context.Context) (Receipt, error)) {
	return p.send(ctx, &s, storedHeader(s))
}

func (p *Producer) send(ctx context.Context, s *Submission,
	header nats.Header) (wait func(context.Context) (Receipt, error)) {
	subject := p.b.names.Jobs(s.Policy, s.Key)
	if s.Admitted {
		subject = p.b.names.Admitted(s.Policy, s.Key)
	}
	began := time.Now()
	if err := p.enter(ctx, began); err != nil {
		err := fmt.Errorf("publish to %s: wait for a place: %w", subject, jsapi.Translate(err))
		return func(context.Context) (Receipt, error) { return Receipt{}, err }
	}
	m := &nats.Msg{Subject: subject, Header: header, Data: s.Body}
	first := p.attempt(ctx, s.Policy, m)
	return func(ctx context.Context) (Receipt, error) {
		defer func() { <-p.slots }()
		ack, err := p.publish(ctx, s, m, first, began)
		if err != nil {
			return Receipt{}, fmt.Errorf("publish to %s: %w", subject, err)
		}
		r := Receipt{Seq: ack.Seq, Duplicate: ack.Duplicate}
		if r.Duplicate {
			return p.Repeated(ctx, *s, r)
		}
		return r, nil
	}
}

func (p *Producer) enter(ctx context.Context, began time.Time) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	ctx, cancel := p.withDeadline(ctx, began)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withDeadline adds the default deadline, counted from began, unless there is one.
func (p *Producer) withDeadline(ctx context.Context,
	began time.Time) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, began.Add(p.timeout))
}

// publish sends m until it is answered, the context ends or more attempts are pointless.
func (p *Producer) publish(ctx context.Context, s *Submission, m *nats.Msg, a attempt,
	began time.Time) (jsapi.PubAck, error) {
	wait := retryFirst
	unknown := false // whether an earlier attempt may be stored
	for attempt := 1; ; attempt++ {
		if attempt == 2 {
			var cancel context.CancelFunc
			ctx, cancel = p.withDeadline(ctx, began)
			defer cancel()
		}
		if attempt > 1 {
			a = p.attempt(ctx, s.Policy, m)
		}
		if err := a.senseless; err != nil {
			if attempt > 1 {
				err = fmt.Errorf("%w: attempt %d was not answered: %v", ErrUnavailable, attempt-1,
					err)
			}
			return jsapi.PubAck{}, err
		}
		probe := a.probe
		ack, err := a.wait(ctx)
		p.b.js.Heard(a.sent, !ack.Duplicate, err)
		switch {
		case err == nil:
			p.outages.answered(s.Policy)
			ack.Duplicate = ack.Duplicate && s.IdempotencyKey != ""
			return ack, nil
		case errors.Is(err, nats.ErrNoResponders) && (probe || time.Since(began) > doorPatience):
			err := p.diagnose(ctx, s.Policy)
			if errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
				p.outages.unanswered(s.Policy, unansweredAttempts, err)
			}
			return jsapi.PubAck{}, err
		case errors.Is(err, nats.ErrNoResponders) || ctx.Err() != nil:
			// A closed door, or a caller that left, is no evidence about the stream.
		case jsapi.IsRefusal(err):
			p.outages.answered(s.Policy)
		default:
			p.outages.unanswered(s.Policy, 1, err)
		}
		translated := jsapi.Translate(err)
		// Lack of room does not settle an unanswered attempt: a cluster checks room after
		// duplicates, and the attempt may still lie in a socket.
		if unknown && (errors.Is(translated, ErrStorage) || errors.Is(translated, ErrFull) ||
			errors.Is(translated, ErrStreamFull)) {
			return jsapi.PubAck{}, fmt.Errorf("%w: attempt %d: %v, and one before was not answered",
				ErrUnavailable, attempt, err)
		}
		unknown = unknown || !errors.Is(err, nats.ErrNoResponders)
		if probe || !errors.Is(translated, ErrUnavailable) || errors.Is(translated, ErrStorage) ||
			errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubject) ||
			errors.Is(err, nats.ErrHeadersNotSupported) {
			return jsapi.PubAck{}, translated
		}
		select {
		case <-ctx.Done():
			return jsapi.PubAck{}, fmt.Errorf("%w (attempt %d)", translated, attempt)
		case <-time.After(wait):
		}
		wait = min(2*wait, retryLast)
	}
}

type attempt struct {
	senseless error // NATS does not answer
	probe     bool
	sent      time.Time
	reply     *reply
	err       error
	timeout   time.Duration
}

func (p *Producer) attempt(ctx context.Context, policy string, m *nats.Msg) (a attempt) {
	if reason := p.b.refusal.Load(); reason != nil {
		return attempt{senseless: *reason}
	}
	a.timeout, a.sent = p.b.js.Timeout, time.Now()
	if a.probe, a.senseless = p.outages.enter(ctx, policy); a.senseless == nil {
		a.reply, a.err = p.replies.send(m)
	}
	if a.probe {
		a.timeout = probeTimeout
	}
	return a
}

func (a attempt) wait(ctx context.Context) (jsapi.PubAck, error) {
	if a.err != nil {
		return jsapi.PubAck{}, a.err
	}
	return a.reply.wait(ctx, a.timeout)
}

func (p *Producer) diagnosis(policy string) *diagnosis {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.streams[policy]
	if d == nil {
		if len(p.streams) >= maxKnownStreams {
			clear(p.streams)
		}
		d = &diagnosis{}
		p.streams[policy] = d
	}
	return d
}

func (p *Producer) diagnose(ctx context.Context, policy string) error {
	d := p.diagnosis(policy)
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.at) < askAgain {
		return d.err
	}
	info, err := p.b.js.StreamInfo(ctx, p.b.names.Stream(policy), "")
	switch {
	case err != nil:
	case p.b.names.isClosed(policy, info.Config):
		err = fmt.Errorf("%w: it takes no more jobs", ErrNoStream)
	case len(info.Config.Subjects) > 0 && info.Config.Subjects[0] == p.b.names.doorAdmitted(policy):
		err = fmt.Errorf("%w: its jobs come through the admitter", ErrNoStream)
	default:
		err = fmt.Errorf("%w: its stream does not answer", ErrUnavailable)
	}
	if ctx.Err() == nil { // otherwise the error is this caller's own
		d.err, d.at = err, time.Now()
	}
	return err
}

// storedHeader returns the stored job's header, without headers that mean something to the server.
func storedHeader(s Submission) nats.Header {
	h := make(nats.Header, len(s.Header)+3)
	named := false
	for name, values := range s.Header {
		if job.HasPrefixFold(name, "Nats-") {
			continue
		}
		named = named || strings.EqualFold(name, job.HeaderIdempotencyKey)
		h[name] = values
	}
	id := jsapi.NewID()
	if s.IdempotencyKey != "" {
		id = messageID(s.Key, s.IdempotencyKey)
		h[job.HeaderSum] = []string{job.PayloadSum(s.Header, s.Body)}
		if !named {
			h[job.HeaderIdempotencyKey] = []string{s.IdempotencyKey}
		}
	}
	h[jetstream.MsgIDHeader] = []string{id}
	return h
}

// messageID scopes an idempotency key by its bucket: "<key> <Idempotency-Key>"; encoded keys have
// no spaces. It hashes a key that is long, is invalid in a header line, or looks like a hash.
func messageID(k queue.Key, idempotencyKey string) string {
	plain := len(idempotencyKey) <= messageIDBytes && !strings.HasPrefix(idempotencyKey, hashPrefix)
	for i := 0; plain && i < len(idempotencyKey); i++ {
		c := idempotencyKey[i]
		plain = c > ' ' && c < 0x7F || c == ' ' && i > 0 && i < len(idempotencyKey)-1
	}
	if !plain {
		sum := sha256.Sum256([]byte(idempotencyKey))
		idempotencyKey = hashPrefix + hex.EncodeToString(sum[:])
	}
	return string(k) + " " + idempotencyKey
}

// ChainedID returns the message id of a job forwarded to another stream, the same for all attempts
// and its replay's. An invalid escape distinguishes it from submitted jobs' ids.
func ChainedID(policy string, k queue.Key, idempotencyKey string) string {
	return "%!job/" + policy + "/" + messageID(k, idempotencyKey)
}
