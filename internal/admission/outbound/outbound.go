// Package outbound is a reverse proxy whose requests start when a policy lets them. Requests wait
// in memory in the policy's bucket, are sent once, and stream both ways unchanged. Only configured
// upstreams can be reached. SDKs understand the refusals.
package outbound

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/httptarget"
)

const (
	// mostHeld is read of a body before the request starts: for the estimate, to repeat it, and
	// because net/http notices that a caller has gone only after the body was read.
	mostHeld  = 8 << 20
	firstHeld = 4 << 10
	// keepIdle is shorter than load balancers keep connections (60 s and more).
	keepIdle = 50 * time.Second
)

// DefaultStall is the default of [Options.Stall].
const DefaultStall = 30 * time.Second

// Outcomes of calls, as metrics name them.
const (
	OutcomeAnswered  = "answered"
	OutcomeThrottled = "throttled"
	OutcomeFailed    = "failed"
	OutcomeRefused   = "refused"
	OutcomeWithdrawn = "withdrawn" // by the caller, while it waited
)

// Options of a proxy.
type Options struct {
	Routes  []Route
	Acquire func(context.Context, permits.Request) (*permits.Permit, error)
	Clients func() *access.Clients // nil: no access control
	// Budget bounds the bodies held at once; default [admit.DefaultBudget] bytes.
	Budget *admit.Budget
	// Stall bounds the time between two reads of a body; default [DefaultStall].
	Stall  time.Duration
	Called func(policy, outcome string, waited time.Duration)
	// Trace makes the spans of a request that has waited since an instant, and now is sent, or
	// refused with err. It may add to the upstream's header, to. end ends the answer's span.
	Trace func(policy, key string, since time.Time, from, to http.Header,
		err error) (end func(status int, err error))
	Transport *http.Transport // to the upstreams; nil: its own
	Logger    *slog.Logger
}

// Proxy forwards calls to APIs once their policies permit it. Routes may be replaced meanwhile.
type Proxy struct {
	options  Options
	routes   atomic.Pointer[[]*route]
	reverse  httputil.ReverseProxy
	again    refusals
	stopping context.Context
	stop     context.CancelFunc
}

// New returns a proxy; an error names the route that cannot be used.
func New(o Options) (*Proxy, error) {
	o.Transport = cmp.Or(o.Transport, NewTransport())
	o.Budget = cmp.Or(o.Budget, admit.NewBudget(admit.DefaultBudget()))
	o.Stall = cmp.Or(o.Stall, DefaultStall)
	if o.Called == nil {
		o.Called = func(string, string, time.Duration) {}
	}
	if o.Trace == nil {
		o.Trace = func(string, string, time.Time, http.Header, http.Header,
			error) func(int, error) {
			return func(int, error) {}
		}
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	p := &Proxy{options: o, reverse: httputil.ReverseProxy{FlushInterval: -1,
		BufferPool: buffers, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug)}}
	p.stopping, p.stop = context.WithCancel(context.Background())
	return p, p.SetRoutes(o.Routes)
}

// SetRoutes is for later requests.
func (p *Proxy) SetRoutes(of []Route) error {
	routes, err := newRoutes(of, p.options.Transport)
	if err == nil {
		p.routes.Store(&routes)
	}
	return err
}

// NewTransport is for proxies to share.
func NewTransport() *http.Transport {
	t := httptarget.Client().Transport.(*http.Transport)
	t.IdleConnTimeout, t.DisableCompression = keepIdle, true
	return t
}

// Stop refuses new and waiting requests; started ones continue.
func (p *Proxy) Stop() { p.stop() }

// ServeHTTP waits for a permit, forwards the request, and settles by the answer.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Proxy: p, routes: *p.routes.Load(), in: r}
	defer func() { p.options.Budget.Release(c.from, c.held) }()
	if r.ContentLength != 0 {
		c.source = &source{ReadCloser: r.Body, conn: http.NewResponseController(w),
			stall: p.options.Stall}
		// net/http reads the rest of a refused request.
		_ = c.source.conn.SetReadDeadline(time.Now().Add(p.options.Stall))
		in := *r // net/http checks its own request's body
		c.in, in.Body = &in, c.source
	}
	if err := c.prepare(); err != nil {
		c.refuse(w, r, err)
		return
	}
	reverse := p.reverse
	reverse.Rewrite, reverse.Transport, reverse.ErrorHandler = c.rewrite, c, c.refuse
	reverse.ModifyResponse = func(response *http.Response) error {
		w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
		c.modify(response.Header)
		withoutOurs(response.Trailer)
		return nil
	}
	reverse.ServeHTTP(w, c.in)
	withoutOurs(w.Header()) // of the trailers, which follow
}

// source is a caller's body. A stall of the caller ends its connection.
type source struct {
	io.ReadCloser
	conn  *http.ResponseController
	stall time.Duration
	until atomic.Pointer[time.Time] // of a read
}

func (s *source) Read(p []byte) (int, error) {
	until := time.Now().Add(s.stall)
	s.until.Store(&until)
	_ = s.conn.SetReadDeadline(until)
	n, err := s.ReadCloser.Read(p)
	if err == nil || err == io.EOF {
		s.until.Store(nil)
		_ = s.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// stalled is known before Read returns, since net/http cancels the request first.
func (s *source) stalled() bool {
	if s == nil {
		return false
	}
	until := s.until.Load()
	return until != nil && time.Now().After(*until)
}

type call struct {
	*Proxy
	routes  []*route
	in      *http.Request
	source  *source // nil: without a body
	route   *route
	target  *url.URL
	request permits.Request
	id      uint64        // hash of its Idempotency-Key, or 0
	wait    time.Duration // at most
	waited  time.Duration // for its starts
	trace   func(status int, err error)

	from  admit.Client
	body  []byte
	whole bool
	held  int64
}

func (c *call) prepare() error {
	r := c.in
	path := job.EscapedPath(r.URL)
	switch {
	case r.Method == http.MethodConnect:
		return &refusal{http.StatusMethodNotAllowed, "connect", "CONNECT is refused: requests " +
			"in a tunnel cannot be paced; set the SDK's base URL instead of HTTPS_PROXY", 0,
			"false"}
	case c.stopping.Err() != nil:
		return stopping
	case dotted(path):
		return &admission.RequestError{Field: "path", Reason: `must not have segments "." or ".."`}
	}
	host, read := hostName(r.Host), plain(path)
	rest, found := "", false
	for _, c.route = range c.routes {
		if rest, found = c.route.match(host, path); found {
			break
		}
		if _, misread := c.route.match(host, read); misread {
			return &admission.RequestError{Field: "path",
				Reason: "could be read as one of another route"}
		}
	}
	if !found {
		c.route = nil
		return &refusal{http.StatusNotFound, "route", "no route matches this host and path", 0,
			"false"}
	}
	client := access.Everyone
	if c.options.Clients != nil {
		var err error
		given := r.Header["Penstock-Authorization"]
		if len(given) == 0 {
			given = r.Header["Proxy-Authorization"]
		}
		if client, err = c.options.Clients().Of(&http.Request{TLS: r.TLS,
			Header: http.Header{"Authorization": given}}); err != nil {
			return err
		}
	}
	key, err := c.route.key(r, rest, client.Name)
	if err != nil {
		return &admission.RequestError{Field: "key", Reason: err.Error()}
	}
	if !client.MayKey(access.Submit, c.route.Policy, key.Raw()) {
		return fmt.Errorf("%w: the client %q has no right to submit for key %.64q of policy %q",
			admit.ErrForbidden, client.Name, key.Raw(), c.route.Policy)
	}
	if c.target, err = c.route.to(rest, r.URL); err != nil {
		return &admission.RequestError{Field: "path", Reason: err.Error()}
	}
	if c.from.Name = client.Name; c.from.Name == "" {
		c.from.Name = hostName(r.RemoteAddr)
	}
	if err = c.read(); err != nil {
		return errBody
	}
	return c.ask(key)
}

var errBody = &admission.RequestError{Field: "body", Reason: "ended early or cannot be read"}

var stalled = &refusal{http.StatusRequestTimeout, "stalled", "the body came too slowly", 0, ""}

var stopping = &refusal{http.StatusServiceUnavailable, admit.ReasonStopping,
	"the process is stopping", time.Second, "true"}

// read stops where the budget does.
func (c *call) read() error {
	if c.in.ContentLength == 0 {
		c.whole = true
		return nil
	}
	for len(c.body) < mostHeld {
		if len(c.body) == cap(c.body) {
			room := max(firstHeld, 2*int64(cap(c.body)))
			if n := c.in.ContentLength; n > 0 {
				room = max(int64(cap(c.body))+1, min(room, n))
			}
			if c.options.Budget.Reserve(c.from, room-c.held) != nil {
				return nil
			}
			c.held = room
			c.body = append(make([]byte, 0, room), c.body...)
		}
		n, err := c.in.Body.Read(c.body[len(c.body):cap(c.body)])
		c.body = c.body[:len(c.body)+n]
		if c.whole = err == io.EOF; c.whole {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// others are read elsewhere, or come from a drainer whose target is the proxy.
var others = []string{"Penstock-Authorization", admit.WaitHeader, job.HeaderJob,
	job.HeaderPolicy, job.HeaderKey, job.HeaderAttempt, job.HeaderTag, "Penstock-Signature"}

func (c *call) ask(key queue.Key) error {
	header := maps.Clone(c.in.Header)
	maps.DeleteFunc(header, func(name string, _ []string) bool {
		return !strings.HasPrefix(name, job.HeaderPrefix) || slices.Contains(others, name)
	})
	cost, costs, priority, err := admit.ReadCallHeader(header)
	if err != nil {
		return err
	}
	c.wait = c.route.MaxWait
	theirs, err := strconv.ParseFloat(c.in.Header.Get("X-Stainless-Timeout"), 64)
	if err == nil && theirs > 0 {
		theirs = min(theirs, MostWait.Seconds())
		c.wait = min(c.wait, time.Duration(theirs*0.75*float64(time.Second)))
	}
	if text := c.in.Header.Get(admit.WaitHeader); text != "" {
		wait, err := admit.ParseWait(admit.WaitHeader, text)
		if err != nil {
			return err
		}
		c.wait = min(c.wait, wait)
	}
	// Retries of SDKs would starve behind later requests, and their last ones behind others.
	n, err := strconv.Atoi(c.in.Header.Get("X-Stainless-Retry-Count"))
	if id := c.in.Header.Get("Idempotency-Key"); id != "" {
		c.id = maphash.String(seed, c.route.Policy+" "+key.Raw()+" "+id)
	}
	if err != nil || n <= 0 {
		n = 0
		if c.again.take(c.id) {
			n = 1
		}
	}
	priority = min(priority+min(n, job.MaxPriority), job.MaxPriority)
	if name := c.route.Tokens; name != "" {
		if c.whole && c.route.IncludeUsage {
			c.body = includeUsage(c.body)
		}
		if _, given := costs[name]; !given {
			all := map[string]int64{name: estimate(c.body)}
			maps.Copy(all, costs)
			costs = all
		}
	}
	c.request = permits.Request{Policy: c.route.Policy, Key: key.Raw(), Cost: cost,
		Costs: costs, Priority: priority}
	return nil
}

func (c *call) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL, r.Out.Host = c.target, ""
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
		"X-Forwarded-Proto"} {
		if values := r.In.Header[name]; values != nil {
			r.Out.Header[name] = values
		}
	}
	withoutOurs(r.Out.Header)
	// Other protocols could carry requests that bypass routes and limits.
	if !strings.EqualFold(r.Out.Header.Get("Upgrade"), "websocket") {
		r.Out.Header.Del("Connection")
		r.Out.Header.Del("Upgrade")
	}
}

func withoutOurs(header http.Header) {
	for name := range header {
		if strings.HasPrefix(strings.TrimPrefix(name, http.TrailerPrefix), job.HeaderPrefix) {
			delete(header, name)
		}
	}
}

var linked = regexp.MustCompile(`<[^>]*>`)

// modify makes an answer's references lead through the proxy.
func (c *call) modify(h http.Header) {
	withoutOurs(h)
	for _, name := range []string{"Location", "Content-Location", "Operation-Location"} {
		if text := h.Get(name); text != "" {
			h.Set(name, c.own(text))
		}
	}
	for i, text := range h["Link"] {
		h["Link"][i] = linked.ReplaceAllStringFunc(text, func(m string) string {
			return "<" + c.own(m[1:len(m)-1]) + ">"
		})
	}
}

// own leaves URLs of other hosts unchanged.
func (c *call) own(text string) string {
	reference, err := url.Parse(text)
	if err != nil {
		return text
	}
	u := c.target.ResolveReference(reference)
	for _, r := range append([]*route{c.route}, c.routes...) {
		path, ok := r.from(u)
		if !ok {
			continue
		}
		u.Scheme, u.Host = "http", c.in.Host
		if _, port, err := net.SplitHostPort(c.in.Host); r.Host != "" && err == nil {
			u.Host = net.JoinHostPort(r.Host, port)
		} else if r.Host != "" {
			u.Host = r.Host
		}
		if c.in.TLS != nil {
			u.Scheme = "https"
		}
		if reference.Host == "" && r == c.route {
			u.Scheme, u.Host = "", ""
		}
		if u.Path, err = url.PathUnescape(path); err == nil {
			u.RawPath = path
			return u.String()
		}
	}
	return text
}

func (c *call) refuse(w http.ResponseWriter, _ *http.Request, err error) {
	r := refused(err)
	if c.source.stalled() {
		r = stalled
	} else if c.in.Context().Err() != nil {
		c.called(OutcomeWithdrawn)
		panic(http.ErrAbortHandler) // otherwise net/http answers 200
	}
	if r.code == codeUpstream {
		c.called(OutcomeFailed)
	} else {
		c.called(OutcomeRefused)
		c.again.add(c.id)
	}
	r.write(w, c.in.UserAgent())
}

func (c *call) called(outcome string) {
	if c.route != nil {
		c.options.Called(c.route.Policy, outcome, c.waited)
	}
}

var buffers = &pool{sync.Pool{New: func() any { return new(buffer) }}}

type (
	buffer [32 << 10]byte
	pool   struct{ free sync.Pool }
)

func (p *pool) Get() []byte { return p.free.Get().(*buffer)[:] }

func (p *pool) Put(b []byte) { p.free.Put((*buffer)(b)) }
