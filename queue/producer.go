package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/race"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// defaultInFlight is how many publishes of one producer wait for their acknowledgement at a
	// time.
	defaultInFlight = 4096
	// publishTimeout is the default of ProducerOptions.Timeout.
	publishTimeout = 10 * time.Second * race.Slower
	// doorPatience is how long a missing stream may be a door that is closed for a moment, or a
	// leader being elected.
	doorPatience = time.Second

	retryFirst = 10 * time.Millisecond
	retryLast  = 200 * time.Millisecond

	// messageIDBytes bounds the part of a message id that users choose; longer ones are hashed.
	messageIDBytes = 256
	// hashPrefix begins what stands for a hashed one.
	hashPrefix = "sha256:"

	// partitionsFresh is how long a policy's number of partitions is believed: it changes only with
	// a new stream.
	partitionsFresh = time.Minute
	// askAgain keeps a flood at a policy that is gone from asking about it once per publish.
	askAgain = 250 * time.Millisecond

	// maxKnownStreams bounds what a producer remembers; the names come from its callers.
	maxKnownStreams = 10_000
)

// ProducerOptions configure a [Producer]. The zero value works.
type ProducerOptions struct {
	// MaxInFlight bounds the publishes that wait for their acknowledgement; more wait for a place.
	// Default 4096.
	MaxInFlight int
	// Timeout bounds a Publish whose context has no deadline; default 10 s.
	Timeout time.Duration
	// FailFast makes a Publish fail at once while NATS is known not to answer: when the connection
	// has been away for 250 ms, or when JetStream left five attempts in a row for the policy's
	// stream unanswered; then one publish a second tries again. It suits servers of clients
	// that can come back. Default: a Publish waits until its context ends.
	FailFast bool
}

// Submission is one job to be queued.
type Submission struct {
	Policy   string
	Key      job.Key
	Admitted bool        // the policy decides at the door: publish where only the admitter does
	Header   nats.Header // of the stored job; the server's own (Nats-…) are left out
	Body     []byte
	// IdempotencyKey, scoped by the bucket, makes a repeat within the policy's duplicate window one
	// of the first. It is stored with the job as the header Idempotency-Key.
	IdempotencyKey string
}

// Receipt says where a job was stored.
type Receipt struct {
	Seq       uint64 // in the policy's stream
	Partition int    // that holds the bucket; -1 when the stream could not be asked
	Duplicate bool   // the job had been accepted before, as Seq
}

// Producer publishes jobs and waits for JetStream's word that they are stored. It is safe for
// concurrent use: publishes from many goroutines are in flight together over the one connection.
type Producer struct {
	b       *Broker
	slots   chan struct{}
	timeout time.Duration
	outages *outages // nil: wait
	replies replies

	mu      sync.Mutex
	streams map[string]*streamFacts
}

// streamFacts is what a producer has learnt about a policy's stream. Whoever holds the lock asks
// for all others.
type streamFacts struct {
	mu         sync.Mutex
	partitions int
	learnt     time.Time // partitions
	asked      time.Time // without learning it

	diagnosis error // why nobody answered a publish, when nobody did
	diagnosed time.Time
}

// NewProducer makes a producer; it needs no closing.
func (b *Broker) NewProducer(o ProducerOptions) *Producer {
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = defaultInFlight
	}
	p := &Producer{b: b, slots: make(chan struct{}, o.MaxInFlight),
		timeout: cmp.Or(o.Timeout, publishTimeout),
		replies: replies{nc: b.nc}, streams: map[string]*streamFacts{}}
	if o.FailFast {
		p.outages = &outages{b: b, streams: map[string]*streamOutage{}}
	}
	return p
}

// Publish stores a job and returns when JetStream has confirmed it, or when the context ends (after
// ProducerOptions.Timeout if it has no deadline). Every publish carries a message id, so one that
// got no answer is repeated within that time without storing the job twice. The errors: [ErrFull]
// the bucket is full; [ErrStreamFull] the policy's stream is; [ErrTooLarge]; [ErrNoStream] the
// policy has no queue or retires; [ErrOtherPayload] and [*EndedError] as of [Producer.Repeated];
// [ErrUnavailable] no answer, and the job may be stored all the same, unless it is [ErrNotSent],
// too.
func (p *Producer) Publish(ctx context.Context, s Submission) (Receipt, error) {
	return p.Send(ctx, s)(ctx)
}

// Send is the first half of [Producer.Publish]: it sends the job, and returns the other half, which
// must be called. Jobs that one goroutine sends reach the stream in that order, but for those that
// JetStream does not answer and that are sent again.
func (p *Producer) Send(ctx context.Context, s Submission) (
	wait func(context.Context) (Receipt, error)) {

	sent := p.send(ctx, s, storedHeader(s))
	return func(ctx context.Context) (Receipt, error) {
		r, err := sent(ctx)
		if err == nil && r.Duplicate {
			return p.Repeated(ctx, s, r)
		}
		return r, err
	}
}

// send is Send with the header of the stored job, which holds its message id.
func (p *Producer) send(ctx context.Context, s Submission, header nats.Header) (
	wait func(context.Context) (Receipt, error)) {

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
		r := Receipt{Seq: ack.Seq, Partition: -1, Duplicate: ack.Duplicate}
		if n := p.partitions(ctx, s.Policy); n > 0 {
			r.Partition = job.Partition(subject, n)
		}
		return r, nil
	}
}

// enter takes one of the slots.
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

// withDeadline gives a publish that began then a deadline, unless it has one. The first attempt
// needs none, and most need no second: a call of JetStream's has a shorter one of its own.
func (p *Producer) withDeadline(ctx context.Context, began time.Time) (context.Context,
	context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, began.Add(p.timeout))
}

// publish sends m again until it is answered, the context ends or waiting makes no sense.
func (p *Producer) publish(ctx context.Context, s Submission, m *nats.Msg, a attempt,
	began time.Time) (jsapi.PubAck, error) {
	wait := retryFirst
	unknown := false // whether an attempt has stored it
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
		switch {
		case err == nil:
			p.outages.answered(s.Policy)
			// Without a key of the caller's, a duplicate can only be our own repeat of what had
			// been stored unconfirmed.
			ack.Duplicate = ack.Duplicate && s.IdempotencyKey != ""
			return ack, nil
		case errors.Is(err, nats.ErrNoResponders) && (probe || time.Since(began) > doorPatience):
			err := p.diagnose(ctx, s.Policy)
			if errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
				p.outages.unanswered(s.Policy, unansweredAttempts, err)
			}
			return jsapi.PubAck{}, err
		case errors.Is(err, nats.ErrNoResponders) || ctx.Err() != nil:
			// A door that is closed for a moment, or a caller who has left, says nothing about the
			// stream.
		case jsapi.IsRefusal(err):
			p.outages.answered(s.Policy)
		default:
			p.outages.unanswered(s.Policy, 1, err)
		}
		translated := jsapi.Translate(err)
		// Of what there was no room for an attempt before may be stored, as a cluster looks at that
		// later, or come to be: it can still lie in the socket of a server that stands still.
		if unknown &&
			(errors.Is(translated, ErrStorage) || errors.Is(translated, ErrFull) ||
				errors.Is(translated, ErrStreamFull)) {
			return jsapi.PubAck{}, fmt.Errorf("%w: attempt %d: %v, and one before was not answered",
				ErrUnavailable, attempt, err)
		}
		unknown = unknown || !errors.Is(err, nats.ErrNoResponders)
		if probe || !errors.Is(translated, ErrUnavailable) || errors.Is(translated, ErrStorage) ||
			errors.Is(err, nats.ErrConnectionClosed) ||
			errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrHeadersNotSupported) {
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

// attempt is a message on its way to the stream.
type attempt struct {
	senseless error // why it was not sent, when it is known that nobody answers
	probe     bool
	reply     *reply
	err       error // why it was not sent
}

func (p *Producer) attempt(ctx context.Context, policy string, m *nats.Msg) (a attempt) {
	if reason := p.b.refusal.Load(); reason != nil {
		return attempt{senseless: *reason}
	}
	if a.probe, a.senseless = p.outages.enter(ctx, policy); a.senseless == nil {
		a.reply, a.err = p.replies.send(m)
	}
	return a
}

func (a attempt) wait(ctx context.Context) (jsapi.PubAck, error) {
	switch {
	case a.err != nil:
		return jsapi.PubAck{}, a.err
	case a.probe:
		return a.reply.wait(ctx, probeTimeout)
	}
	return a.reply.wait(ctx, jsapi.CallTimeout)
}

// facts finds what is known of a policy's stream.
func (p *Producer) facts(policy string) *streamFacts {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.streams[policy]
	if f == nil {
		if len(p.streams) >= maxKnownStreams {
			clear(p.streams)
		}
		f = &streamFacts{}
		p.streams[policy] = f
	}
	return f
}

// diagnose says why nobody listens on a policy's subject: no stream, a closed door, or a broker
// that does not answer.
func (p *Producer) diagnose(ctx context.Context, policy string) error {
	f := p.facts(policy)
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.diagnosed) < askAgain {
		return f.diagnosis
	}
	info, err := p.b.js.StreamInfo(ctx, p.b.names.Stream(policy), "")
	switch {
	case err != nil:
		err = jsapi.Translate(err)
	case p.b.isClosed(policy, info.Config):
		err = fmt.Errorf("%w: it takes no more jobs", ErrNoStream)
	case len(info.Config.Subjects) > 0 && info.Config.Subjects[0] == p.b.names.doorAdmitted(policy):
		err = fmt.Errorf("%w: its jobs come through the admitter", ErrNoStream)
	default:
		err = fmt.Errorf("%w: its stream does not answer", ErrUnavailable)
	}
	if ctx.Err() == nil { // what ended one caller's wait is no answer for others
		f.diagnosis, f.diagnosed = err, time.Now()
	}
	return err
}

// partitions is into how many partitions a policy's stream is cut; 0 when that cannot be learnt
// now.
func (p *Producer) partitions(ctx context.Context, policy string) int {
	f := p.facts(policy)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.partitions > 0 && now.Sub(f.learnt) < partitionsFresh || now.Sub(f.asked) < askAgain {
		return f.partitions
	}
	info, err := p.b.js.StreamInfo(ctx, p.b.names.Stream(policy), "")
	n := 0
	if err == nil {
		n, err = strconv.Atoi(info.Config.Metadata[metaPartitions])
	}
	if err != nil || n < 1 {
		f.asked = time.Now()
		return 0
	}
	f.partitions, f.learnt = n, time.Now()
	return n
}

// storedHeader is the header of the job to be stored. Headers that mean something to the server
// (conditions, time to live, roll-up) are the caller's only by mistake or malice.
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

// messageID scopes an idempotency key by its bucket: "<key> <Idempotency-Key>". No key's subject
// form holds a space, so no two buckets share an id. An idempotency key that does not survive a
// header line as it is, is long, or could be taken for a hash, is replaced by its hash.
func messageID(k job.Key, idempotencyKey string) string {
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

// ChainedID is the message id with which a policy's job goes on to another stream, for all of its
// attempts and, because it is made of the job's Idempotency-Key, for those of its replay as well.
// It holds an escape that is none, so that it is not the id of any job submitted there.
func ChainedID(policy string, k job.Key, idempotencyKey string) string {
	return "%!job/" + policy + "/" + messageID(k, idempotencyKey)
}
