// Package httpapi serves the API over HTTP. The table in routes lists all endpoints; openapi.yaml,
// which describes them, is generated from it by internal/apitest.
//
// A key is the rest of the path: "//" and ".." are not cleaned, and %2F is a slash of the key.
package httpapi

import (
	"cmp"
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
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/server/health"
	"github.com/penstock-mq/penstock/internal/server/hosts"
)

// Service admits and checks requests, as [*admit.Service] does.
type Service interface {
	Submit(ctx context.Context, r admit.SubmitRequest) (admission.Outcome, error)
	SubmitBatch(ctx context.Context, requests iter.Seq2[admit.SubmitRequest, error],
		tell func(admission.Outcome, error) error) error
	Check(ctx context.Context, r admit.CheckRequest) (admission.Checked, error)
	Peek(ctx context.Context, r admit.CheckRequest) (admission.Checked, error)
	Refund(ctx context.Context, r admit.CheckRequest) error
}

// Options of a handler. What is nil is not served.
type Options struct {
	// An unready answer's reason is [admit.Reason] of the first error. Only clients that may
	// read everything see notes.
	Parts func() []health.Part
	// nil: not found
	Metrics http.Handler
	// served without authentication, because its data comes from the API
	Console http.Handler
	// nil: not found
	Management *manage.Service
	// nil: not found
	Schedules *schedules.Service
	Permits   Permits
	// default [admit.DefaultBudget] for this handler
	Budget *admit.Budget
	// Hosts are this process's names, in addition to IP addresses and localhost. Requests for other
	// hosts get 421, to prevent DNS rebinding.
	Hosts          []string
	Clients        func() *access.Clients
	TrustedProxies []netip.Prefix
	// for unexpected errors
	Logger *slog.Logger
}

// New returns the API; for a nil service, only health and metrics. It does not use http.ServeMux,
// which cleans paths.
func New(service Service, o Options) http.Handler {
	if o.Parts == nil {
		o.Parts = func() []health.Part { return nil }
	}
	if o.Metrics == nil {
		o.Metrics = http.HandlerFunc(notFound)
	}
	o.Budget = cmp.Or(o.Budget, admit.NewBudget(admit.DefaultBudget()))
	o.Logger = cmp.Or(o.Logger, slog.Default())
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
	sites   *http.CrossOriginProtection
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if value := recover(); value == http.ErrAbortHandler {
			panic(value)
		} else if value != nil {
			respond(w, h.errors.Panicked(value, debug.Stack()))
		}
	}()
	path := r.URL.EscapedPath()
	found, names := h.find(path)
	page := h.options.Console != nil && (path == "/" || path == console ||
		strings.HasPrefix(path, console+"/"))
	open := found != nil && found.routes[0].right == 0 ||
		found == nil && !strings.HasPrefix(path, root) && !page
	if a := h.forbid(r, path, open); a != nil {
		respond(w, *a)
		return
	}
	if page {
		h.options.Console.ServeHTTP(w, r)
		return
	}
	client, a := h.identify(r)
	if a != nil && !open {
		respond(w, *a)
		return
	}
	if found == nil {
		notFound(w, r)
		return
	}
	rt, allowed := found.route(r.Method)
	if !allowed {
		respond(w, otherMethod(r, found.methods()))
		return
	}
	h.serve(w, r, rt, names, client)
}

func (h *handler) find(path string) (*resource, []string) {
	for i := range h.served {
		if names, ok := h.served[i].match(path); ok {
			return &h.served[i], names
		}
	}
	return nil, nil
}

// forbid rejects an unknown host, another site's page, and a job on its way to a target. Below /v1/
// it also rejects unknown paths, to avoid revealing them.
func (h *handler) forbid(r *http.Request, path string, open bool) *answer.Answer {
	status, detail := 0, ""
	below := strings.HasPrefix(path, root)
	switch {
	case !open && !hosts.Known(h.options.Hosts).Has(r.Host):
		status, detail = http.StatusMisdirectedRequest, fmt.Sprintf(
			"the host %.256q is not permitted; add it to http.hosts to permit it", r.Host)
	case below && len(r.Header[job.HeaderJob]) > 0:
		status, detail = http.StatusForbidden,
			"this is a job's request: a policy's target cannot "+
				"be Penstock itself; chain policies with a NATS target"
	case below && h.sites.Check(r) != nil:
		status, detail = http.StatusForbidden, "pages of other sites may not send this request"
	default:
		return nil
	}
	a := answer.Problem(status, detail)
	return &a
}

func (h *handler) identify(r *http.Request) (*access.Client, *answer.Answer) {
	if h.options.Clients == nil {
		return access.Everyone, nil
	}
	client, err := h.options.Clients().Of(r)
	delete(r.Header, "Authorization")
	if err == nil {
		return client, nil
	}
	a := answer.Problem(http.StatusUnauthorized, err.Error(),
		answer.Field{Name: "WWW-Authenticate", Value: access.Challenge(err)})
	if errors.Is(err, access.ErrProvider) {
		a = answer.Unavailable(http.StatusServiceUnavailable, err.Error(), err)
	}
	return new(access.Client), &a
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request, rt route, names []string,
	client *access.Client) {

	if rt.managed() {
		r = r.WithContext(manage.WithClient(r.Context(), client.Name, r.RemoteAddr))
	}
	at, err := rt.place(names)
	h.from(&at, r, client)
	if err == nil {
		err = rt.permits(at)
	}
	if err == nil && rt.ask == nil {
		h.options.Metrics.ServeHTTP(w, r)
		return
	}
	if err == nil && rt.right != 0 {
		err = at.parameters(r, rt)
	}
	var a answer.Answer
	if err == nil {
		a, err = rt.ask(r, at)
	}
	if err != nil {
		a = h.errors.Answer(err)
		_, left := errors.AsType[bodyLeft](err)
		if left || rt.managed() && r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
		}
	}
	respond(w, a)
}

func otherMethod(r *http.Request, methods []string) answer.Answer {
	allow := answer.Field{Name: "Allow", Value: strings.Join(methods, ", ")}
	if r.Method == http.MethodOptions {
		return answer.Answer{Status: http.StatusNoContent, Header: []answer.Field{allow}}
	}
	return answer.Problem(http.StatusMethodNotAllowed,
		fmt.Sprintf("this path does not accept %.32s, only %s", r.Method, allow.Value), allow)
}

func (h *handler) health(*http.Request, place) (answer.Answer, error) {
	return answer.Text(http.StatusOK, "ok"), nil
}

// Notes name policies, so they need the right to read.
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
		return answer.Text(status, health.Lines(report)...), nil
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
	respond(w, answer.Problem(http.StatusNotFound, "no such path; /openapi.yaml has them"))
}

const readWithin = time.Minute

func respond(w http.ResponseWriter, a answer.Answer) {
	header := w.Header()
	values := make([]string, len(a.Header)+1) // one allocation for all fields
	for i, field := range a.Header {
		values[i] = field.Value
		// keep the spelling: RateLimit, not Ratelimit
		header[field.Name] = values[i : i+1 : i+1]
	}
	if a.Stream != nil {
		w.WriteHeader(a.Status)
		conn := http.NewResponseController(w)
		a.Stream(w, func() {
			// A stream may last while the client reads it.
			_ = conn.SetWriteDeadline(time.Now().Add(readWithin)) // Write reports its error
			_ = conn.Flush()
		})
		return
	}
	if a.Late {
		// Write reports its error.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readWithin))
	}
	if a.Status != http.StatusNoContent {
		last := values[len(a.Header):]
		last[0] = strconv.Itoa(len(a.Body))
		header["Content-Length"] = last
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}
