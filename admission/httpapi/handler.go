// Package httpapi serves the admission service over HTTP. A handler decodes, asks the service and writes what
// admission/answer spells.
//
//	POST /v1/jobs/{policy}/{key...}           take a job
//	POST /v1/check/{policy}/{key...}?cost=1   take from a limiter
//	GET  /v1/check/{policy}/{key...}?cost=1   the answer without taking
//	DELETE  /v1/check/{policy}/{key...}?cost=1   give back what was taken and not used
//	GET  /healthz  /readyz  /metrics
//
// With Options.Management also what operators do with policies, buckets, jobs and dead letters; docs/api.md lists it all.
//
// A key is the rest of the path as the client escaped it: neither "//" nor ".." is cleaned, nothing redirects, and %2F
// is a slash of the key. The empty key is a slash at the end.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/internal/hosts"
	"github.com/penstock-mq/penstock/queue"
)

// Service is what the handler asks; [*admission.Service] is one.
type Service interface {
	Submit(ctx context.Context, r admission.SubmitRequest) (admission.Outcome, error)
	Check(ctx context.Context, r admission.CheckRequest) (admission.Checked, error)
	Peek(ctx context.Context, r admission.CheckRequest) (admission.Checked, error)
	Refund(ctx context.Context, r admission.CheckRequest) error
}

// Options are what a handler can do without. The zero value works.
type Options struct {
	// Ready says why the process is not ready, nil when it is. It answers /readyz and must not take long; [admission.Reason]
	// gives the answer's reason. Default: always ready.
	Ready func() error
	// Notes are what else an operator should know of a process that is ready; /readyz says them, a line each. Default: none.
	Notes func() []string
	// Metrics serves /metrics. Default: not found.
	Metrics http.Handler
	// Management serves the management API. Default: not found.
	Management *manage.Service
	// Budget bounds the bodies held at once; default [admission.DefaultBudget] bytes for this handler alone.
	Budget *admission.Budget
	// Hosts are the names by which requests for /v1/ and /metrics may know this process, besides IP addresses, localhost
	// and *.localhost; "*.example.com" stands for all names below example.com. Requests that name another host get 421:
	// a page whose name was made to lead here sends them.
	Hosts []string
	// TrustedProxies are the addresses whose Penstock-IP is believed; from any other it is refused. Default: none.
	TrustedProxies []netip.Prefix
	// Logger gets unexpected errors; default: discarded.
	Logger *slog.Logger
}

// New makes the handler. It does its own routing, because an http.ServeMux cleans paths.
func New(service Service, o Options) http.Handler {
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Notes == nil {
		o.Notes = func() []string { return nil }
	}
	if o.Metrics == nil {
		o.Metrics = http.HandlerFunc(notFound)
	}
	if o.Budget == nil {
		o.Budget = admission.NewBudget(admission.DefaultBudget)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{service: service, options: o, errors: answer.NewErrors(o.Logger), sites: http.NewCrossOriginProtection()}
	if o.Management != nil {
		h.management = &management{o.Management}
	}
	return h
}

type handler struct {
	service    Service
	options    Options
	errors     *answer.Errors
	management *management // nil: none
	// sites refuses what a page from elsewhere makes a browser send: who can reach this address must not be tricked into
	// publishing or purging something.
	sites *http.CrossOriginProtection
}

const (
	jobsPath  = "/v1/jobs/"
	checkPath = "/v1/check/"

	metricsPath = "/metrics"
)

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
	if (strings.HasPrefix(path, root) || path == metricsPath) && !hosts.Known(h.options.Hosts).Has(r.Host) {
		write(w, answer.Problem(http.StatusMisdirectedRequest,
			fmt.Sprintf("the host %.256q is none of this process's; add it to http.hosts to permit it", r.Host)))
		return
	}
	if strings.HasPrefix(path, root) {
		if len(r.Header["Penstock-Job"]) > 0 {
			write(w, answer.Problem(http.StatusForbidden,
				"this is the request of a job: no policy's target may be Penstock itself; chain policies with a NATS target"))
			return
		}
		if err := h.sites.Check(r); err != nil {
			write(w, answer.Problem(http.StatusForbidden, "a page of another site may not ask for this"))
			return
		}
	}
	if h.management != nil && h.management.serves(r.Method, path) {
		h.manage(w, r, path)
		return
	}
	if target, found := strings.CutPrefix(path, jobsPath); found {
		methods := []string{http.MethodPost}
		if h.management != nil && !strings.Contains(target, "/") {
			methods = append(methods, jobMethods...)
		}
		if allow(w, r, methods...) {
			h.reply(w, r, target, h.submit)
		}
		return
	}
	if target, found := strings.CutPrefix(path, checkPath); found {
		if allow(w, r, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete) {
			h.reply(w, r, target, h.check)
		}
		return
	}
	switch path {
	case "/healthz": // takes POST too, so that it can be a target to try things out with
		if allow(w, r, http.MethodGet, http.MethodHead, http.MethodPost) {
			h.operate(w, r, path)
		}
	case "/readyz", metricsPath:
		if allow(w, r, http.MethodGet, http.MethodHead) {
			h.operate(w, r, path)
		}
	default:
		notFound(w, r)
	}
}

// operate answers what operators and their machines ask.
func (h *handler) operate(w http.ResponseWriter, r *http.Request, path string) {
	switch path {
	case "/healthz":
		fmt.Fprintln(w, "ok")
	case "/readyz":
		if err := h.options.Ready(); err != nil {
			write(w, answer.Unavailable(http.StatusServiceUnavailable, err.Error(), err))
			return
		}
		fmt.Fprintln(w, "ready")
		for _, note := range h.options.Notes() {
			fmt.Fprintln(w, note)
		}
	case metricsPath:
		h.options.Metrics.ServeHTTP(w, r)
	}
}

// allow answers a request of any other method.
func allow(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	field := answer.Field{Name: "Allow", Value: strings.Join(append(methods, http.MethodOptions), ", ")}
	if r.Method == http.MethodOptions {
		write(w, answer.Answer{Status: http.StatusNoContent, Header: []answer.Field{field}})
		return false
	}
	write(w, answer.Problem(http.StatusMethodNotAllowed,
		fmt.Sprintf("%.32s is not for this path, which takes %s", r.Method, field.Value), field))
	return false
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	write(w, answer.Problem(http.StatusNotFound, "there is nothing at this path"))
}

// reply decodes what a path names, asks, and writes the answer.
func (h *handler) reply(w http.ResponseWriter, r *http.Request, path string,
	ask func(w http.ResponseWriter, r *http.Request, policy string, key queue.Key) (answer.Answer, error)) {

	policy, key, err := decode(path)
	var a answer.Answer
	if err == nil {
		a, err = ask(w, r, policy, key)
	}
	if err != nil {
		a = h.errors.Answer(err)
	}
	write(w, a)
}

func (h *handler) submit(w http.ResponseWriter, r *http.Request, policy string, key queue.Key) (answer.Answer, error) {
	// An unescaped question mark in a key would otherwise cut it short, and mix two buckets without a word.
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		return answer.Answer{}, &admission.RequestError{Field: "query", Reason: "a job has no query parameters; " +
			"a question mark in a key is written %3F"}
	}
	client, err := h.client(r)
	if err != nil {
		return answer.Answer{}, err
	}
	body, held, err := h.read(r)
	defer h.options.Budget.Release(held)
	if err != nil {
		w.Header().Set("Connection", "close") // rather than read on for nothing
		return answer.Answer{}, err
	}
	outcome, err := h.service.Submit(r.Context(), admission.SubmitRequest{
		Policy: policy, Key: key, Header: r.Header, Body: body, IP: client})
	if err != nil {
		return answer.Answer{}, err
	}
	a := answer.Submitted(outcome)
	if outcome.Job != "" && h.management != nil {
		a.Header = append(a.Header, answer.Field{Name: "Location", Value: jobsPath + outcome.Job})
	}
	return a, nil
}

// smallBody is what a body takes of the budget before its first byte has come.
const smallBody = 4 << 10

// read reads a body of at most MaxBody bytes, and takes of the budget, as the bytes come, what holds them.
func (h *handler) read(r *http.Request) (body []byte, held int64, err error) {
	size := r.ContentLength
	if size < 0 {
		size = admission.MaxBody + 1
	}
	for {
		if size > admission.MaxBody && (r.ContentLength >= 0 || len(body) > admission.MaxBody) {
			return nil, held, fmt.Errorf("%w: a body is at most %d bytes", admission.ErrTooLarge, admission.MaxBody)
		}
		room := min(max(smallBody, 2*held), size)
		if err := h.options.Budget.Reserve(room - held); err != nil {
			return nil, held, err
		}
		held = room
		body = append(make([]byte, 0, room), body...)
		n, err := io.ReadFull(r.Body, body[len(body):room])
		body = body[:len(body)+n]
		switch {
		case r.ContentLength < 0 && (err == io.EOF || err == io.ErrUnexpectedEOF), err == nil && int64(len(body)) == r.ContentLength:
			return body, held, nil
		case err != nil:
			return nil, held, unread(err)
		}
	}
}

// unread says why a body could not be read.
func unread(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: the body did not come, or not fast enough", admission.ErrTooSlow)
	}
	return &admission.RequestError{Field: "body", Reason: "ended early or cannot be read"}
}

func (h *handler) check(_ http.ResponseWriter, r *http.Request, policy string, key queue.Key) (answer.Answer, error) {
	options, err := admission.ReadCheckHeader(r.Header)
	if err != nil {
		return answer.Answer{}, err
	}
	if r.URL.ForceQuery {
		return answer.Answer{}, &admission.RequestError{Field: "query", Reason: "is empty; " +
			"a question mark in a key is written %3F"}
	}
	if r.URL.RawQuery != "" {
		if r.Header.Get(queue.HeaderCost) != "" {
			return answer.Answer{}, &admission.RequestError{Field: "cost", Reason: "is given twice, as a parameter and as a header"}
		}
		if options.Cost, err = queryCost(r.URL.RawQuery); err != nil {
			return answer.Answer{}, err
		}
	}
	client, err := h.client(r)
	if err != nil {
		return answer.Answer{}, err
	}
	request := admission.CheckRequest{
		Policy: policy, Key: key, Cost: options.Cost, IP: cmp.Or(options.IP, client),
	}
	ask := h.service.Check
	switch {
	case options.Refund && r.Method != http.MethodPost && r.Method != http.MethodDelete, options.Peek && r.Method == http.MethodDelete:
		return answer.Answer{}, &admission.RequestError{Field: "method", Reason: "contradicts the headers"}
	case options.Refund || r.Method == http.MethodDelete:
		return answer.Refunded(), h.service.Refund(r.Context(), request)
	case options.Peek || r.Method != http.MethodPost:
		ask = h.service.Peek
	}
	checked, err := ask(r.Context(), request)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Checked(checked), nil
}

// client is the address that the request came from, as limits count it. It is an error that the request names another
// one and comes from none of the trusted proxies.
func (h *handler) client(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = ""
	}
	if len(r.Header[http.CanonicalHeaderKey(admission.IPHeader)]) > 0 {
		address, _ := netip.ParseAddr(host) // the zero address is in no network
		address = address.Unmap().WithZone("")
		if !slices.ContainsFunc(h.options.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address) }) {
			return "", &admission.RequestError{Field: admission.IPHeader,
				Reason: fmt.Sprintf("is taken from http.trusted_proxies only, and %q is none of them", host)}
		}
	}
	return admission.ClientIP(host), nil
}

// queryCost reads the query of a check, whose one parameter is the cost. Anything else is most likely a misspelt cost,
// or the rest of a key with a question mark in it.
func queryCost(query string) (int64, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, &admission.RequestError{Field: "query", Reason: "cannot be parsed"}
	}
	for name, given := range values {
		switch {
		case name != "cost":
			return 0, &admission.RequestError{Field: fmt.Sprintf("%.64s", name),
				Reason: "is not a query parameter of a check; a question mark in a key is written %3F"}
		case len(given) > 1:
			return 0, &admission.RequestError{Field: name, Reason: "is given twice"}
		}
	}
	cost, err := strconv.ParseInt(values.Get("cost"), 10, 64)
	if err != nil {
		return 0, &admission.RequestError{Field: "cost", Reason: "must be a whole number of at least 1"}
	}
	return cost, nil
}

// decode splits the rest of a path into a policy and a key.
func decode(path string) (policy string, key queue.Key, err error) {
	escaped, rest, found := strings.Cut(path, "/")
	if !found {
		return "", "", &admission.RequestError{Field: "key", Reason: "is missing; the empty key is a slash at the end"}
	}
	if policy, err = url.PathUnescape(escaped); err != nil {
		return "", "", &admission.RequestError{Field: "policy", Reason: "is not escaped correctly"}
	}
	if key, err = decodeKey(rest); err != nil {
		return "", "", err
	}
	return policy, key, nil
}

// decodeKey reads a key as it is escaped in a path.
func decodeKey(escaped string) (queue.Key, error) {
	raw, err := url.PathUnescape(escaped)
	if err != nil {
		return "", &admission.RequestError{Field: "key", Reason: "is not escaped correctly"}
	}
	key, err := queue.EncodeKey(raw)
	if err != nil {
		return "", admission.InvalidKey(err)
	}
	return key, nil
}

func write(w http.ResponseWriter, a answer.Answer) {
	header := w.Header()
	for _, field := range a.Header {
		header[field.Name] = []string{field.Value} // as the draft spells it: RateLimit, not Ratelimit
	}
	if a.Status != http.StatusNoContent {
		header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // when it fails the client is gone, and nobody is left to tell
}
