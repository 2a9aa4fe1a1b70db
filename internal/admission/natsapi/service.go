// Package natsapi serves the admission service over NATS request/reply, as a NATS micro service:
//
//	penstock.submit.<policy>.<key>   submit a job
//	penstock.check.<policy>.<key>    take from a limiter; with Penstock-Peek: true, only look;
//	                                 with Penstock-Refund: true, return unused units
//	penstock.job.<policy>.<sequence> state of a job, or how it ended
//	penstock.cancel.<policy>.<sequence> drop a job that has not started
//	penstock.bucket.<policy>.<key>   state of a bucket
//
// Keys are in their subject form. Bodies, headers and statuses are the HTTP API's, with the status
// in the header Penstock-Status and a check's cost in Penstock-Cost.
package natsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// Service admits and checks requests, as [*admit.Service] does.
type Service interface {
	Submit(ctx context.Context, r admit.SubmitRequest) (admission.Outcome, error)
	Check(ctx context.Context, r admit.CheckRequest) (admission.Checked, error)
	Peek(ctx context.Context, r admit.CheckRequest) (admission.Checked, error)
	Refund(ctx context.Context, r admit.CheckRequest) error
}

const (
	serviceName = "penstock-admitter"
	queueGroup  = "admitters"
	// requests at a time; others get 503
	mostConcurrent = 4096
	// of the first request too many, for a slot
	slotPatience = 100 * time.Millisecond
)

// Options of the NATS service.
type Options struct {
	// nil: no questions about jobs and buckets
	Management *manage.Service
	// default [admit.DefaultBudget] for this service
	Budget  *admit.Budget
	Grace   time.Duration
	Version string
	// once reachable; may be nil
	Started  func()
	Answered func(status int)
	// for unexpected errors
	Logger *slog.Logger
}

// Serve returns a part that, when its context ends, leaves the queue group and answers the rest. nc
// must not be shared: requests would delay acknowledgements.
func Serve(nc *nats.Conn, names jet.Names, service Service,
	o Options) func(ctx context.Context) error {

	return newServer(nc, names, service, o).run
}

func newServer(nc *nats.Conn, names jet.Names, service Service, o Options) *server {
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
	o.Version = cmp.Or(o.Version, "0.0.0")
	o.Budget = cmp.Or(o.Budget, admit.NewBudget(admit.DefaultBudget()))
	if o.Answered == nil {
		o.Answered = func(int) {}
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return &server{nc: nc, names: names, service: service, options: o,
		errors: answer.NewErrors(o.Logger), slots: make(chan struct{}, mostConcurrent)}
}

type server struct {
	nc      *nats.Conn
	names   jet.Names
	service Service
	options Options
	errors  *answer.Errors
	slots   chan struct{}
}

type endpoint struct {
	name string
	ask  question
}

type question func(ctx context.Context, r micro.Request, policy string, key queue.Key) (
	answer.Answer, error)

func (s *server) endpoints() []endpoint {
	all := []endpoint{{"submit", s.submit}, {"check", s.check}}
	if m := s.options.Management; m != nil {
		all = append(all, endpoint{"job", numbered(m.JobOrEnd)},
			endpoint{"cancel", numbered(m.Cancel)}, endpoint{"bucket", bucket(m)})
	}
	return all
}

var errBusy = fmt.Errorf("%w: %w", admission.ErrUnavailable, admit.ErrBusy)

func (s *server) run(ctx context.Context) error {
	others := s.nc.NumSubscriptions()
	// Requests in progress outlive ctx, which only ends the subscription.
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
		subject := s.names.Requests(e.name)
		err := served.AddEndpoint(e.name, s.dispatch(working, e),
			micro.WithEndpointSubject(subject))
		if err != nil {
			return errors.Join(fmt.Errorf("serve %s: %w", subject, err), served.Stop())
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

// reached waits until the server has the subscriptions.
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

// micro does not report when its subscriptions are drained; the connection's count does.
func (s *server) finish(others int) {
	grace := time.NewTimer(s.options.Grace)
	defer grace.Stop()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for s.nc.NumSubscriptions() > others {
		if !s.nc.IsConnected() {
			return
		}
		select {
		case <-look.C:
		case <-grace.C:
			s.options.Logger.Warn("NATS requests were left unanswered", "grace", s.options.Grace)
			return
		}
	}
	for range cap(s.slots) { // until no request is in progress
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

// One request at a time, waiting for JetStream, would be a few hundred a second.
func (s *server) dispatch(ctx context.Context, e endpoint) micro.Handler {
	busy := false // used only by the subscription's goroutine
	return micro.HandlerFunc(func(r micro.Request) {
		policy, _, _ := s.names.ParseRequest(e.name, r.Subject())
		size, from := int64(len(r.Data())), natsClient(policy)
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

// NATS does not identify users, whose permissions go by policy.
func natsClient(policy string) admit.Client {
	return admit.Client{Name: "nats " + policy}
}

// enter waits only if the previous request got a slot, or the whole backlog would slow down.
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

// A panic would end the process for all clients.
func (s *server) answer(ctx context.Context, r micro.Request, e endpoint) {
	defer func() {
		if value := recover(); value != nil {
			s.respond(r, s.errors.Panicked(value, debug.Stack()))
		}
	}()
	var a answer.Answer
	policy, key, err := s.decode(e.name, r.Subject())
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

func (s *server) submit(ctx context.Context, r micro.Request, policy string, key queue.Key) (
	answer.Answer, error) {

	outcome, err := s.service.Submit(ctx,
		admit.SubmitRequest{Policy: policy, Key: key, Header: r.Headers(),
			Body: r.Data(), From: natsClient(policy)})
	return answer.Submitted(outcome), err
}

func (s *server) check(ctx context.Context, r micro.Request, policy string, key queue.Key) (
	answer.Answer, error) {

	options, err := admit.ReadCheckHeader(r.Headers())
	if err != nil {
		return answer.Answer{}, err
	}
	request := admit.CheckRequest{Policy: policy, Key: key, Cost: options.Cost, IP: options.IP}
	ask := s.service.Check
	switch {
	case options.Refund:
		return answer.Refunded(), s.service.Refund(ctx, request)
	case options.Peek:
		ask = s.service.Peek
	}
	checked, err := ask(ctx, request)
	return answer.Checked(checked), err
}

func numbered[T any](ask func(ctx context.Context, policy string, seq uint64) (T, error)) question {
	return func(ctx context.Context, r micro.Request, policy string, token queue.Key) (
		answer.Answer, error) {

		seq, err := strconv.ParseUint(string(token), 10, 64)
		if err != nil {
			return answer.Answer{}, &admission.RequestError{Field: "job",
				Reason: "want a policy and the number of a job, such as stripe.42"}
		}
		return looked(r, func() (any, error) { return ask(ctx, policy, seq) })
	}
}

func bucket(m *manage.Service) question {
	return func(ctx context.Context, r micro.Request, policy string, key queue.Key) (
		answer.Answer, error) {

		return looked(r, func() (any, error) { return m.Bucket(ctx, policy, key) })
	}
}

func looked(r micro.Request, look func() (any, error)) (answer.Answer, error) {
	if len(r.Data()) > 0 {
		return answer.Answer{}, &admission.RequestError{Field: "body",
			Reason: "must be empty: this request has no body"}
	}
	document, err := look()
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, document), nil
}

// Only inboxes are answered, because the service publishes with its own rights.
func (s *server) respond(r micro.Request, a answer.Answer) {
	s.options.Answered(a.Status)
	if !s.names.IsReply(r.Reply()) {
		return
	}
	if err := r.Respond(a.Body, micro.WithHeaders(encode(a))); err != nil {
		s.options.Logger.Debug("an answer could not be sent", "subject", r.Subject(), "error", err)
	}
}

// StatusHeader is the header of an answer's status code, which is that over HTTP.
const StatusHeader = job.HeaderStatus

func (s *server) decode(endpoint, subject string) (string, queue.Key, error) {
	policy, form, ok := s.names.ParseRequest(endpoint, subject)
	if !ok {
		return "", "", &admission.RequestError{Field: "subject", Reason: "contains no policy"}
	}
	key, err := queue.ParseKey(form)
	if err != nil {
		return "", "", admit.InvalidKey(err)
	}
	return policy, key, nil
}

// headerLost rejects a request whose unreadable headers the client library left out: without its
// Idempotency-Key it would be a different job. micro hides the message, whose size reveals the
// loss.
func headerLost(r micro.Request) error {
	field := reflect.Indirect(reflect.ValueOf(r)).FieldByName("msg")
	if !field.IsValid() || r.Headers() != nil {
		return nil
	}
	m := (*nats.Msg)(field.UnsafePointer())
	if m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data) {
		return &admission.RequestError{Field: "headers",
			Reason: "cannot be read: want one line per header, " +
				"NAME: VALUE, without control characters"}
	}
	return nil
}

func encode(a answer.Answer) micro.Headers {
	h := make(micro.Headers, len(a.Header)+1)
	h[StatusHeader] = []string{strconv.Itoa(a.Status)}
	for _, field := range a.Header {
		h[field.Name] = []string{field.Value}
	}
	return h
}
