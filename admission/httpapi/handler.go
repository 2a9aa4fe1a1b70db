// Package httpapi serves the admission service over HTTP, and, with Options.Management, what
// operators do with policies, buckets, jobs and dead letters. One table, routes, says what lies
// where; openapi.yaml describes it for users. A handler decodes, asks the service and writes what
// admission/answer spells.
//
// A key is the rest of the path as the client escaped it: neither "//" nor ".." is cleaned, nothing
// redirects, and %2F is a slash of the key. The empty key is a slash at the end.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/admission/schedules"
	"github.com/penstock-mq/penstock/internal/health"
	"github.com/penstock-mq/penstock/internal/hosts"
	"github.com/penstock-mq/penstock/queue/job"
)

// Service is what the handler asks; [*admission.Service] is one.
type Service interface {
	Submit(ctx context.Context, r admission.SubmitRequest) (admission.Outcome, error)
	SubmitBatch(ctx context.Context, requests iter.Seq2[admission.SubmitRequest, error],
		tell func(admission.Outcome, error) error) error
	Check(ctx context.Context, r admission.CheckRequest) (admission.Checked, error)
	Peek(ctx context.Context, r admission.CheckRequest) (admission.Checked, error)
	Refund(ctx context.Context, r admission.CheckRequest) error
}

// Options are what a handler can do without. The zero value works.
type Options struct {
	// Parts returns what each part of the process says of itself. It answers /readyz and must not
	// take long; [admission.Reason] of the first error gives the answer's reason. Notes are for
	// clients that may read everything. Default: none, which is ready.
	Parts func() []health.Part
	// Metrics serves /metrics. Default: not found.
	Metrics http.Handler
	// Console serves pages at / and below /console, to everybody: they ask the API for all that
	// they show. Default: not found.
	Console http.Handler
	// Management serves the management API. Default: not found.
	Management *manage.Service
	// Schedules keeps schedules. Default: not found.
	Schedules *schedules.Service
	// Budget bounds the bodies held at once; default [admission.DefaultBudget] bytes for this
	// handler alone.
	Budget *admission.Budget
	// Hosts are the names by which requests for /v1/ and /metrics may know this process, besides IP
	// addresses, localhost and *.localhost; "*.example.com" stands for all names below example.com.
	// Requests that name another host get 421: a page whose name was made to lead here sends them.
	Hosts []string
	// Clients returns who may ask, by token or certificate, and for what. Default: everybody may
	// ask for everything.
	Clients func() *access.Clients
	// TrustedProxies are the addresses whose Penstock-IP is believed; from any other it is refused.
	// Default: none.
	TrustedProxies []netip.Prefix
	// Logger gets unexpected errors; default [slog.Default].
	Logger *slog.Logger
}

// New makes the handler. It does its own routing, because an http.ServeMux cleans paths.
func New(service Service, o Options) http.Handler {
	if o.Parts == nil {
		o.Parts = func() []health.Part { return nil }
	}
	if o.Metrics == nil {
		o.Metrics = http.HandlerFunc(notFound)
	}
	if o.Budget == nil {
		o.Budget = admission.NewBudget(admission.DefaultBudget)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	h := &handler{service: service, options: o, errors: answer.NewErrors(o.Logger),
		sites: http.NewCrossOriginProtection()}
	h.served = h.resources()
	return h
}

type handler struct {
	service Service
	options Options
	errors  *answer.Errors
	served  []resource
	// sites refuses what a page from elsewhere makes a browser send: who can reach this address
	// must not be tricked into publishing or purging something.
	sites *http.CrossOriginProtection
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if value := recover(); value == http.ErrAbortHandler {
			panic(value)
		} else if value != nil {
			write(w, h.errors.Panicked(value, debug.Stack()))
		}
	}()
	path := r.URL.EscapedPath()
	found, names := h.find(path)
	page := h.options.Console != nil && (path == "/" || path == console ||
		strings.HasPrefix(path, console+"/"))
	open := found != nil && found.routes[0].right == 0 ||
		found == nil && !strings.HasPrefix(path, root) && !page
	if a := h.forbid(r, path, open); a != nil {
		write(w, *a)
		return
	}
	if page {
		h.options.Console.ServeHTTP(w, r)
		return
	}
	client, a := h.identify(r)
	if a != nil && !open {
		write(w, *a)
		return
	}
	if found == nil {
		notFound(w, r)
		return
	}
	rt, allowed := found.route(r.Method)
	if !allowed {
		write(w, otherMethod(r, found.methods()))
		return
	}
	h.serve(w, r, rt, names, client)
}

// find returns the resource at a path, nil if there is none, and what the path has in place of the
// resource's braces.
func (h *handler) find(path string) (*resource, []string) {
	for i := range h.served {
		if names, ok := h.served[i].match(path); ok {
			return &h.served[i], names
		}
	}
	return nil, nil
}

// forbid returns the answer to a request that nobody may send, nil for others: one that knows the
// process by a name that is not its own, of another site's page, or of a job on its way to a
// target. Paths below /v1/ where there is nothing are guarded as well, so that nobody learns where
// there is.
func (h *handler) forbid(r *http.Request, path string, open bool) *answer.Answer {
	status, detail := 0, ""
	below := strings.HasPrefix(path, root)
	switch {
	case !open && !hosts.Known(h.options.Hosts).Has(r.Host):
		status, detail = http.StatusMisdirectedRequest, fmt.Sprintf(
			"the host %.256q is none of this process's; add it to http.hosts to permit it", r.Host)
	case below && len(r.Header[job.HeaderJob]) > 0:
		status, detail = http.StatusForbidden,
			"this is the request of a job: no policy's target may "+
				"be Penstock itself; chain policies with a NATS target"
	case below && h.sites.Check(r) != nil:
		status, detail = http.StatusForbidden, "a page of another site may not ask for this"
	default:
		return nil
	}
	a := answer.Problem(status, detail)
	return &a
}

// identify returns the client that asks, or the answer for one that is not known.
func (h *handler) identify(r *http.Request) (*access.Client, *answer.Answer) {
	if h.options.Clients == nil {
		return access.Everyone, nil
	}
	client, err := h.options.Clients().Of(r)
	delete(r.Header, "Authorization") // nothing behind this needs it
	if err == nil {
		return client, nil
	}
	a := answer.Problem(http.StatusUnauthorized, err.Error(),
		answer.Field{Name: "WWW-Authenticate", Value: access.Challenge(err)})
	return new(access.Client), &a // who may do nothing
}

// serve decodes what a request names, asks, and writes the answer.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, rt route, names []string,
	client *access.Client) {

	if rt.managed() {
		from := r.RemoteAddr
		if client.Name != "" {
			from = client.Name + " at " + from
		}
		r = r.WithContext(manage.WithClient(r.Context(), from))
	}
	at, err := rt.place(r, names)
	at.client, at.from = client, h.from(r, client)
	if err == nil && !rt.permits(at) {
		err = notPermitted(rt, at)
	}
	if err == nil && rt.ask == nil {
		h.options.Metrics.ServeHTTP(w, r)
		return
	}
	var a answer.Answer
	if err == nil {
		a, err = rt.ask(r, at)
	}
	if err != nil {
		a = h.errors.Answer(err)
		_, left := errors.AsType[bodyLeft](err)
		if left || rt.managed() && r.ContentLength != 0 {
			w.Header().Set("Connection", "close") // what was not read of a body is not waited for
		}
	}
	write(w, a)
}

// otherMethod answers a request of a method that is not for its path.
func otherMethod(r *http.Request, methods []string) answer.Answer {
	allow := answer.Field{Name: "Allow", Value: strings.Join(methods, ", ")}
	if r.Method == http.MethodOptions {
		return answer.Answer{Status: http.StatusNoContent, Header: []answer.Field{allow}}
	}
	return answer.Problem(http.StatusMethodNotAllowed,
		fmt.Sprintf("%.32s is not for this path, which takes %s", r.Method, allow.Value), allow)
}

func (h *handler) health(*http.Request, place) (answer.Answer, error) {
	return answer.Text(http.StatusOK, "ok"), nil
}

// ready says whether the process has what it needs, with ?verbose of each part, and the notes to
// who may read: they name policies.
func (h *handler) ready(r *http.Request, at place) (answer.Answer, error) {
	parts := h.options.Parts()
	err, notes := health.Err(parts), at.client.MayAll(access.Read)
	if r.URL.Query().Has("verbose") {
		report, status := health.Of(parts, notes), http.StatusOK
		if err != nil {
			status = http.StatusServiceUnavailable
		}
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			return answer.JSON(status, report), nil
		}
		return answer.Text(status, report.Lines()...), nil
	}
	if err != nil {
		return answer.Unavailable(http.StatusServiceUnavailable, err.Error(), err), nil
	}
	lines := []string{"ready"}
	if notes {
		lines = append(lines, health.Notes(parts)...)
	}
	return answer.Text(http.StatusOK, lines...), nil
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	write(w, answer.Problem(http.StatusNotFound, "there is nothing at this path"))
}

// readWithin is how long what is written of a stream may lie unread.
const readWithin = time.Minute

func write(w http.ResponseWriter, a answer.Answer) {
	header := w.Header()
	values := make([]string, len(a.Header)+1) // one piece of memory for all fields
	for i, field := range a.Header {
		values[i] = field.Value
		// as the draft spells it: RateLimit, not Ratelimit
		header[field.Name] = values[i : i+1 : i+1]
	}
	if a.Stream != nil {
		w.WriteHeader(a.Status)
		conn := http.NewResponseController(w)
		a.Stream(w, func() {
			// A stream may go on for longer than an answer, as long as somebody reads it.
			_ = conn.SetWriteDeadline(time.Now().Add(readWithin)) // as below
			_ = conn.Flush()
		})
		return
	}
	if a.Late {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readWithin)) // as above
	}
	if a.Status != http.StatusNoContent {
		last := values[len(a.Header):]
		last[0] = strconv.Itoa(len(a.Body))
		header["Content-Length"] = last
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // when it fails the client is gone
}
