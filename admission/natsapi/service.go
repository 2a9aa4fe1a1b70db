// Package natsapi serves the admission service over NATS request/reply, as a NATS micro service:
//
//	penstock.submit.<policy>.<key>   take a job
//	penstock.check.<policy>.<key>    take from a limiter; with Penstock-Peek: true, only look;
//	                                 with Penstock-Refund: true, give back what was not used
//	penstock.job.<policy>.<sequence> how a job stands, or what became of it
//	penstock.bucket.<policy>.<key>   how a bucket stands
//
// Keys are in their subject form. Bodies, headers and statuses are those of the HTTP interface, the
// status in the header Penstock-Status; a check's cost is the header Penstock-Cost. A refusal is an
// answer and not an error of the service.
package natsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Service is what requests are put to; [*admission.Service] is one.
type Service interface {
	Submit(ctx context.Context, r admission.SubmitRequest) (admission.Outcome, error)
	Check(ctx context.Context, r admission.CheckRequest) (admission.Checked, error)
	Peek(ctx context.Context, r admission.CheckRequest) (admission.Checked, error)
	Refund(ctx context.Context, r admission.CheckRequest) error
}

const (
	serviceName = "penstock-admitter"
	queueGroup  = "admitters"
	// slotPatience is how long the first request beyond MaxConcurrent waits for one to finish.
	slotPatience = 100 * time.Millisecond
)

// Options are what the service can do without. The zero value works.
type Options struct {
	// Job and Bucket answer how a job and a bucket stand, with a document; nil: nobody is asked.
	Job    func(ctx context.Context, policy string, seq uint64) (any, error)
	Bucket func(ctx context.Context, policy string, key job.Key) (any, error)
	// MaxConcurrent is how many requests are answered at once; default 4096. More get 503 soon.
	MaxConcurrent int
	// Budget bounds the bytes of requests held at once; default [admission.DefaultBudget] for this
	// service alone.
	Budget *admission.Budget
	// Grace is how long requests may take that are being answered when the service stops; default
	// 10 s.
	Grace time.Duration
	// Version is the service's version as it reports it, a semantic version; default 0.0.0.
	Version string
	// Started is called once requests reach the service; nil calls nothing.
	Started func()
	// Answered gets the status of every answer, also of those that nobody waits for; nil: it is not
	// called.
	Answered func(status int)
	// Logger gets unexpected errors; default [slog.Default].
	Logger *slog.Logger
}

// Serve returns a part of a process: it answers requests until its context ends, then leaves the
// queue group, answers what has arrived, and returns. The connection is the part's own: requests in
// bulk would stand in front of the acknowledgements that answering them waits for. The caller
// closes it.
func Serve(nc *nats.Conn, names queue.Names, service Service,
	o Options) func(ctx context.Context) error {
	o.MaxConcurrent = cmp.Or(o.MaxConcurrent, 4096)
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
	o.Version = cmp.Or(o.Version, "0.0.0")
	if o.Budget == nil {
		o.Budget = admission.NewBudget(admission.DefaultBudget)
	}
	if o.Answered == nil {
		o.Answered = func(int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return func(ctx context.Context) error {
		s := &server{
			nc:      nc,
			names:   names,
			service: service,
			options: o,
			errors:  answer.NewErrors(o.Logger),
			slots:   make(chan struct{}, o.MaxConcurrent),
		}
		return s.run(ctx)
	}
}

type server struct {
	nc      *nats.Conn
	names   queue.Names
	service Service
	options Options
	errors  *answer.Errors
	slots   chan struct{} // holds one element per request that is being answered
}

// endpoint is one row of what the service answers: requests to subjects that parse takes apart.
type endpoint struct {
	name, subject string
	parse         func(subject string) (policy, key string, ok bool)
	ask           question
}

// question puts a request to the service and spells the answer.
type question func(ctx context.Context, r micro.Request, policy string, key job.Key) (
	answer.Answer, error)

func (s *server) endpoints() []endpoint {
	all := []endpoint{
		{"submit", s.names.Submit(), s.names.ParseSubmit, s.submit},
		{"check", s.names.Check(), s.names.ParseCheck, s.check},
	}
	if s.options.Job != nil {
		all = append(all, endpoint{"job", s.names.Job(), s.names.ParseJob, s.job})
	}
	if s.options.Bucket != nil {
		all = append(all, endpoint{"bucket", s.names.Bucket(), s.names.ParseBucket, s.bucket})
	}
	return all
}

// errBusy answers a request that finds no slot.
var errBusy = fmt.Errorf("%w: %w", admission.ErrUnavailable, admission.ErrBusy)

func (s *server) run(ctx context.Context) error {
	others := s.nc.NumSubscriptions()
	// Requests that are being answered outlive the end of ctx: it ends the listening.
	working, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()

	served, err := micro.AddService(s.nc, micro.Config{
		Name:    serviceName,
		Version: s.options.Version,
		Description: "answers whether jobs and requests may go ahead, by the rate limits " +
			"of their " +
			"policies",
		QueueGroup: queueGroup,
	})
	if err != nil {
		return fmt.Errorf("register the NATS service: %w", err)
	}
	for _, e := range s.endpoints() {
		subject := micro.WithEndpointSubject(e.subject)
		if err := served.AddEndpoint(e.name, s.dispatch(working, e), subject); err != nil {
			return errors.Join(fmt.Errorf("serve %s: %w", e.subject, err), served.Stop())
		}
	}
	if s.reached(ctx) && s.options.Started != nil {
		s.options.Started()
	}

	<-ctx.Done()
	if err := served.Stop(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("stop the NATS service: %w", err)
	}
	s.finish(others)
	return nil
}

// reached waits until the server has the subscriptions, which is as soon as it is there, and
// reports whether that was before ctx ended.
func (s *server) reached(ctx context.Context) bool {
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, time.Second)
		err := s.nc.FlushWithContext(try)
		cancel()
		if err == nil {
			return true
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return false
}

// finish waits until what has arrived is answered, for at most the grace period. Stopping the
// service only begins to drain its subscriptions, and micro does not report when they are through:
// the connection forgets them then.
func (s *server) finish(others int) {
	grace := time.NewTimer(s.options.Grace)
	defer grace.Stop()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for s.nc.NumSubscriptions() > others {
		if !s.nc.IsConnected() {
			return // nothing arrives, and no answer could be sent
		}
		select {
		case <-look.C:
		case <-grace.C:
			s.options.Logger.Warn("NATS requests were left unanswered", "grace", s.options.Grace)
			return
		}
	}
	for range cap(s.slots) { // all slots: nobody is at work
		select {
		case s.slots <- struct{}{}:
		case <-grace.C:
			s.options.Logger.Warn("NATS requests were cut off", "grace", s.options.Grace)
			return
		}
	}
	if err := s.nc.FlushTimeout(time.Second); err != nil {
		s.options.Logger.Debug("the last answers may not have been sent", "error", err)
	}
}

// dispatch answers each request in a goroutine of its own. A subscription's handler is called for
// one request after the other, and an answer waits for JetStream: one at a time, they would be a
// few hundred a second.
func (s *server) dispatch(ctx context.Context, e endpoint) micro.Handler {
	busy := false // used by one goroutine: the subscription's
	return micro.HandlerFunc(func(r micro.Request) {
		size, from := int64(len(r.Data())), s.from(e, r)
		if err := s.options.Budget.Reserve(from, size); err != nil {
			s.respond(r, s.errors.Answer(err))
			return
		}
		if busy = !s.enter(busy); busy {
			s.options.Budget.Release(from, size)
			s.respond(r, s.errors.Answer(errBusy))
			return
		}
		go func() {
			defer func() {
				<-s.slots
				s.options.Budget.Release(from, size)
			}()
			s.answer(ctx, r, e)
		}()
	})
}

// from returns the client of a request: NATS does not tell who asks, but permits users by policies.
func (s *server) from(e endpoint, r micro.Request) admission.Client {
	policy, _, _ := e.parse(r.Subject())
	return natsClient(policy)
}

func natsClient(policy string) admission.Client {
	return admission.Client{Name: "nats " + policy}
}

// enter takes a slot. It waits for one only when the request before found one: otherwise the
// backlog of requests, whose senders wait, would move on at the pace of the waiting.
func (s *server) enter(wasBusy bool) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	if wasBusy {
		return false
	}
	patience := time.NewTimer(slotPatience)
	defer patience.Stop()
	select {
	case s.slots <- struct{}{}:
		return true
	case <-patience.C:
		return false
	}
}

// answer answers one request. A panic must not end the process: it would for every client.
func (s *server) answer(ctx context.Context, r micro.Request, e endpoint) {
	defer func() {
		if value := recover(); value != nil {
			s.respond(r, s.errors.Panicked(value, debug.Stack()))
		}
	}()
	var a answer.Answer
	policy, key, err := decode(e.parse, r.Subject())
	if err == nil {
		err = headerLost(r)
	}
	if err == nil {
		a, err = e.ask(ctx, r, policy, key)
	}
	if err != nil {
		a = s.errors.Answer(err)
	}
	s.respond(r, a)
}

func (s *server) submit(ctx context.Context, r micro.Request, policy string, key job.Key) (
	answer.Answer, error) {

	outcome, err := s.service.Submit(ctx,
		admission.SubmitRequest{Policy: policy, Key: key, Header: r.Headers(),
			Body: r.Data(), From: natsClient(policy)})
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Submitted(outcome), nil
}

func (s *server) check(ctx context.Context, r micro.Request, policy string, key job.Key) (
	answer.Answer, error) {

	options, err := admission.ReadCheckHeader(r.Headers())
	if err != nil {
		return answer.Answer{}, err
	}
	request := admission.CheckRequest{Policy: policy, Key: key, Cost: options.Cost, IP: options.IP}
	ask := s.service.Check
	switch {
	case options.Refund:
		return answer.Refunded(), s.service.Refund(ctx, request)
	case options.Peek:
		ask = s.service.Peek
	}
	checked, err := ask(ctx, request)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Checked(checked), nil
}

func (s *server) job(ctx context.Context, r micro.Request, policy string, sequence job.Key) (
	answer.Answer, error) {

	seq, err := strconv.ParseUint(string(sequence), 10, 64)
	if err != nil {
		return answer.Answer{}, &admission.RequestError{Field: "job",
			Reason: "want the policy and the number of an id, such as stripe.42"}
	}
	return looked(r, func() (any, error) { return s.options.Job(ctx, policy, seq) })
}

func (s *server) bucket(ctx context.Context, r micro.Request, policy string, key job.Key) (
	answer.Answer, error) {

	return looked(r, func() (any, error) { return s.options.Bucket(ctx, policy, key) })
}

// looked answers with a document, to a request that says nothing beside its subject.
func looked(r micro.Request, look func() (any, error)) (answer.Answer, error) {
	if len(r.Data()) > 0 {
		return answer.Answer{}, &admission.RequestError{Field: "body",
			Reason: "is not asked for here"}
	}
	document, err := look()
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, document), nil
}

// respond sends an answer, unless nobody waits for one: a job may be submitted without a reply
// subject. One that is no reply's would be published to with our rights in place of the client's.
func (s *server) respond(r micro.Request, a answer.Answer) {
	s.options.Answered(a.Status)
	if !s.names.IsReply(r.Reply()) {
		return
	}
	if err := r.Respond(a.Body, micro.WithHeaders(encode(a))); err != nil {
		s.options.Logger.Debug("an answer could not be sent", "subject", r.Subject(), "error", err)
	}
}
