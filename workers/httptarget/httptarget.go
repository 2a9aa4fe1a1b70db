// Package httptarget runs jobs as HTTP requests: a job's payload goes to its policy's target, and
// the answer's status says how the attempt ended. A start is one request: when the connection
// breaks before the answer, the attempt has failed, and the next one starts when the rate allows
// it.
package httptarget

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/reach"
	"github.com/penstock-mq/penstock/internal/redact"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/internal/hints"
)

const (
	// mostAnswer is how much of an answer's body is read, so that its connection can be used again.
	mostAnswer = 64 << 10
	// mostDetail is how much of it an error quotes.
	mostDetail = 256
	// keepIdle is how long an idle connection is kept: not as long as servers usually do (5 s and
	// more), because a request on one that its server is just closing is a failed attempt.
	keepIdle = 4 * time.Second
)

// Options are what [New] can do without. The zero value works.
type Options struct {
	// Allow are networks that targets may be in, whatever they are. Others may not be where they
	// reach more than their author could: those that a file wrote ([policy.Entry.TargetSource]) at
	// no link-local address, where clouds have their metadata, and all others, which come through
	// the API or from Go, at no address of the drainer's own machine either. It is checked where
	// the connection is made, so what a name leads to cannot change in between. A proxy that the
	// environment names is the operator's choice, and reaches what it reaches.
	Allow []netip.Prefix
	// Client makes all requests in place of this package's own clients. Where it connects is its
	// own choice. Default: see [Client].
	Client *http.Client
}

// New returns the handler of a policy with an HTTP target, nil for a policy without one. It is what
// [workers.Options.Target] wants.
func New(o Options) func(policy.Entry) (workers.Handler, error) {
	// Two clients, because a kept connection serves whoever asks for its address.
	file, others := o.Client, o.Client
	if o.Client == nil {
		file = guarded(reach.Rules{Operator: true, Allow: o.Allow}, http.ProxyFromEnvironment)
		others = guarded(reach.Rules{Allow: o.Allow}, http.ProxyFromEnvironment)
	}
	return func(entry policy.Entry) (workers.Handler, error) {
		p := entry.Policy
		if p.Target == nil || p.Target.HTTP == nil {
			return nil, nil
		}
		base, err := url.Parse(p.Target.HTTP.URL)
		if err != nil {
			return nil, fmt.Errorf("target of policy %s: %w", p.Name, err)
		}
		t := &target{client: others, base: base, policy: p.Target}
		if entry.TargetSource == policy.SourceFile {
			if !p.Target.Calls() { // where those go is no word of the operator's
				t.client = file
			}
			t.secrets = newSecrets(p.Target.HTTP.Headers)
			t.key = newKey(p.Target.HTTP.Sign)
		}
		return t.handle, nil
	}
}

// Client is an HTTP client for targets that connects anywhere: connections are kept, redirects are
// answers and not followed, and the job's context is the only time-out.
func Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           dialer().DialContext,
			ForceAttemptHTTP2:     true,
			MaxIdleConns:          1024,
			MaxIdleConnsPerHost:   256,
			IdleConnTimeout:       keepIdle,
			TLSHandshakeTimeout:   10 * time.Second,
			ExpectContinueTimeout: time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

type target struct {
	client  *http.Client
	base    *url.URL
	policy  *policy.Target
	secrets []*secret
	key     *secret // nil: requests are not signed
}

func (t *target) handle(ctx context.Context, j workers.Job) error {
	request, err := t.request(ctx, j)
	if err != nil {
		return workers.Permanent(err)
	}
	hidden := redact.Values(job.Forwarded(j.Header))
	for _, s := range t.secrets {
		if err := s.add(request.Header); err != nil {
			// a mistake on the drainer's machine, which costs no job its attempts
			return workers.Unavailable(err)
		}
		hidden = append(hidden, request.Header.Get(s.name))
	}
	if t.key != nil {
		if err := t.key.sign(request.Header, j.Body, time.Now()); err != nil {
			return workers.Unavailable(err)
		}
		hidden = append(hidden, request.Header.Get(signatureHeader))
	}
	response, err := t.client.Do(request)
	if errors.Is(err, errOutOfReach) && t.policy.Calls() {
		return workers.Permanent(fmt.Errorf("call target: %w", withoutURL(err)))
	}
	if err != nil {
		return t.down(fmt.Errorf("call target: %w", withoutURL(err)))
	}
	defer response.Body.Close()
	// The status is the answer. When the rest of it is lost the request was served all the same,
	// and must not be repeated.
	most := int64(mostAnswer)
	from := t.policy.HTTP.Settle
	for _, at := range from {
		if at.JSON != "" {
			most = mostSettled
		}
	}
	if j.Awaited() {
		most = job.MaxReply + 1
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, most))
	settle(j, from, response.Header, body)
	if j.Awaited() || j.Kept() {
		j.Reply(response.StatusCode, shown(response.Header, hidden),
			[]byte(redact.Text(string(body), hidden)))
	}
	if response.StatusCode >= 300 { // what it says of the request is kept, and shown
		body = []byte(redact.Text(string(body), hidden))
	}
	now, left := time.Now(), noHints
	if t.policy.HTTP.ReadsHints() {
		left = hints.Pause(response.Header, now)
		j.CoolDown(left)
	}
	err = judge(response, body, left, now)
	if workers.IsUnavailable(err) {
		return t.down(err)
	}
	return err
}

// down is the error of a target that is down. Where each job has a target of its own, one that is
// says nothing of others: it opens no breaker, and costs its job an attempt.
func (t *target) down(err error) error {
	if t.policy.Calls() {
		return errors.New(err.Error())
	}
	return workers.Unavailable(err)
}

// noHints stands for the pause that an answer asks for where nobody looks at that.
const noHints = time.Duration(-1)

// connections are header fields of an answer that are about its way here (RFC 9110, 7.6.1).
var connections = []string{"Connection", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	"Set-Cookie"}

// shown is the header of an answer as who waits for the job sees it: without the hidden texts, and
// without what is the connection's or is meant to be sent by who asked.
func shown(header http.Header, hidden []string) http.Header {
	header = header.Clone()
	for _, name := range connections {
		header.Del(name)
	}
	for _, values := range header {
		for i, value := range values {
			values[i] = redact.Text(value, hidden)
		}
	}
	return header
}

// request makes the HTTP request of a job.
func (t *target) request(ctx context.Context, j workers.Job) (*http.Request, error) {
	if err := job.CheckTarget(t.policy, j.Header); err != nil {
		return nil, err
	}
	method, path := t.policy.HTTP.Method(), ""
	header := http.Header{}
	for name, values := range j.Header {
		lower := strings.ToLower(name)
		switch {
		case len(values) == 0:
		case lower == "penstock-method":
			method = strings.ToUpper(strings.TrimSpace(values[0]))
		case lower == "penstock-path":
			path = strings.TrimSpace(values[0])
		case job.BelongsToBody(name):
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if kind := job.ContentType(header.Get("Content-Type"), j.Body); kind != "" {
		header.Set("Content-Type", kind)
	}
	for name, values := range job.Forwarded(j.Header) { // these go before the others
		header[http.CanonicalHeaderKey(name)] = values
	}
	to, err := t.resolve(path)
	if t.policy.Calls() { // where it goes is in its header
		to = job.HeaderValue(j.Header, job.HeaderCallbackTo)
		_, err = job.ParseCallback(to)
	}
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, to, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	header.Set(job.HeaderJob, j.ID)
	header.Set(job.HeaderPolicy, j.Policy)
	header.Set(job.HeaderKey, string(j.Key))
	header.Set(job.HeaderAttempt, strconv.Itoa(j.Attempt))
	if tags := j.Tags(); tags != nil {
		header.Set(job.HeaderTag, strings.Join(tags, ", "))
	}
	header.Set("Idempotency-Key", j.IdempotencyKey)
	if err := sendable(header); err != nil {
		return nil, err
	}
	request.Header = header
	sendOnce(request, j.Body)
	return request, nil
}

// sendOnce gives a request a body that net/http cannot send twice. It repeats requests by itself,
// on one kept connection after the other, when they have an Idempotency-Key or a method such as
// GET, and no body or one that it can rewind.
func sendOnce(request *http.Request, body []byte) {
	// known to be in memory: it shares a packet with the header
	request.Body = io.NopCloser(bytes.NewReader(body))
	request.ContentLength = int64(len(body))
	if len(body) > 0 {
		return
	}
	// With a body, net/http takes the length 0 for an unknown one and would send chunks.
	request.TransferEncoding = []string{"identity"}
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch: // servers may want to see a length
		// HTTP/1 leaves out the canonical spelling, HTTP/2 any
		request.Header["content-length"] = []string{"0"}
	}
}

// sendable refuses header fields that HTTP cannot carry (RFC 9110, section 5).
func sendable(header http.Header) error {
	const separators = `"(),/:;<=>?@[\]{}`
	for name, values := range header {
		if name == "" ||
			strings.ContainsFunc(name, func(r rune) bool {
				return r <= ' ' || r >= 0x7F || strings.ContainsRune(separators, r)
			}) {
			return fmt.Errorf("%q cannot be the name of a header field", name)
		}
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool {
				return r < ' ' && r != '\t' || r == 0x7F
			}) {
				if redact.IsSecret(name) {
					value = redact.Mark
				}
				return fmt.Errorf("header field %s cannot hold %q", name,
					value[:min(len(value), mostDetail)])
			}
		}
	}
	return nil
}

// resolve appends a job's path to the base URL. A path cannot name another host, nor lead out of
// the base with "..".
func (t *target) resolve(path string) (string, error) {
	if path == "" {
		return t.base.String(), nil
	}
	relative, err := job.ParsePath(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", job.HeaderPath, err)
	}
	to := *t.base
	to.RawPath = strings.TrimSuffix(t.base.EscapedPath(), "/") + relative.EscapedPath()
	if to.Path, err = url.PathUnescape(to.RawPath); err != nil {
		return "", fmt.Errorf("Penstock-Path %q: %w", path, err)
	}
	if relative.RawQuery != "" {
		to.RawQuery = relative.RawQuery
	}
	return to.String(), nil
}

// judge says how an attempt ended that was answered: see docs/guide.md, "Targets". A date is
// judged by the target's own clock where it tells it, for that is the clock that the date is of.
//
// Where the target has nothing left for a while, that is how long a pause is for which it names no
// time; and a 403 is what GitHub answers then, as it does with Retry-After for its other limits.
func judge(response *http.Response, body []byte, left time.Duration, now time.Time) error {
	status := response.StatusCode
	after, named := hints.RetryAfter(response.Header.Get("Retry-After"),
		hints.Clock(response.Header, now))
	if !named {
		after = max(0, left)
	}
	answer := fmt.Errorf("target answered %d: %s", status, detail(body))
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && named,
		status == http.StatusForbidden && (left > 0 || left == 0 && named):
		return workers.RetryAfter(after, answer)
	case status >= 500:
		return workers.Unavailable(answer)
	case status == http.StatusRequestTimeout:
		return answer
	}
	return workers.Permanent(answer)
}

func detail(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), mostDetail)]), "�")
	return strings.Join(strings.Fields(text), " ")
}

// withoutURL drops the URL that http.Client puts into its errors: it may hold credentials.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
