// Package httptarget runs jobs as HTTP requests: the response's status decides the attempt. A start
// is exactly one request: if the connection breaks, the attempt has failed, and the next one starts
// at the policy's rate.
package httptarget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/base/answers"
	"github.com/penstock-mq/penstock/internal/base/clienttls"
	"github.com/penstock-mq/penstock/internal/base/files"
	"github.com/penstock-mq/penstock/internal/base/oneshot"
	"github.com/penstock-mq/penstock/internal/base/reach"
	"github.com/penstock-mq/penstock/internal/base/redact"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
)

const (
	mostHeader = 1 << 20
	// mostAnswer bounds the part of a body that is read, for reuse of the connection.
	mostAnswer = 64 << 10
	// mostDetail bounds the part of a body that an error quotes.
	mostDetail = 256
	// keepIdle is shorter than servers usually keep a connection (5 s and more): a request on one
	// being closed is a failed attempt.
	keepIdle = 4 * time.Second
	// mostSilence on an HTTP/2 connection leads to a ping, and without an answer in 15 s to its
	// end. gRPC servers end connections with more pings.
	mostSilence = 30 * time.Second
)

// Options are the settings of [New]. The zero value works.
type Options struct {
	// Allow lists networks that all targets may reach. Otherwise targets from a file
	// ([inforce.Entry.TargetSource]) may not use link-local addresses, where clouds serve metadata;
	// all others may not use the drainer's own machine either. Connections are checked, so a DNS
	// change cannot bypass it. A proxy from the environment is not restricted.
	Allow []netip.Prefix
	// Client makes all requests, without the checks above. It should follow no redirects: limits
	// count only the first request, from the last one's answer. Default: see [Client].
	Client *http.Client
}

// New returns a function for [workers.Options.Target]: the handlers of policies with an HTTP
// target.
func New(o Options) func(inforce.Entry) (workers.Handler, error) {
	file, others := o.Client, o.Client
	if o.Client == nil {
		file = guarded(reach.Rules{Operator: true, Allow: o.Allow}, http.ProxyFromEnvironment)
		others = guarded(reach.Rules{Allow: o.Allow}, http.ProxyFromEnvironment)
	}
	return func(entry inforce.Entry) (workers.Handler, error) {
		p := entry.Policy
		if p.Target == nil || p.Target.HTTP == nil {
			return nil, nil
		}
		base, err := url.Parse(p.Target.HTTP.URL)
		if err != nil {
			return nil, fmt.Errorf("target of policy %s: %w", p.Name, err)
		}
		t := &target{client: others, base: base, policy: p.Target,
			maxDelay: time.Duration(p.MaxDelay)}
		if entry.TargetSource == inforce.SourceFile {
			if !p.Target.Calls() { // the operator does not choose the URLs of callbacks
				t.client = file
			}
			t.secrets = newSecrets(p.Target.HTTP.Headers)
			t.key = newKey(p.Target.HTTP.Sign)
			if of := p.Target.HTTP.OAuth2; of != nil {
				client, err := withTLS(file, of.TLS)
				if err != nil {
					return nil, fmt.Errorf("oauth2 of policy %s: %w", p.Name, err)
				}
				t.tokens = newTokens(of, ending(client))
			}
			if t.client, err = withTLS(t.client, p.Target.HTTP.TLS); err != nil {
				return nil, fmt.Errorf("target of policy %s: %w", p.Name, err)
			}
		}
		t.client = ending(t.client)
		return t.handle, nil
	}
}

// ending returns a client whose bodies end with the request's context. Those of a 101 do not, and
// nobody asks for one.
func ending(client *http.Client) *http.Client {
	made := *client
	made.Transport = switchless{cmp.Or(client.Transport, http.DefaultTransport)}
	return &made
}

type switchless struct{ http.RoundTripper }

func (s switchless) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close()
		response.Body = http.NoBody
	}
	return response, err
}

// Client returns an HTTP client without restrictions, redirects or a timeout.
func Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            oneshot.Dial(dialer().DialContext),
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: mostHeader,
			MaxIdleConns:           1024,
			MaxIdleConnsPerHost:    256,
			IdleConnTimeout:        keepIdle,
			TLSHandshakeTimeout:    10 * time.Second,
			ExpectContinueTimeout:  time.Second,
			// Requests that time out do not end their connection.
			HTTP2: &http.HTTP2Config{SendPingTimeout: mostSilence},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// withTLS returns a client with other connections.
func withTLS(client *http.Client, files policy.ClientTLS) (*http.Client, error) {
	if files == (policy.ClientTLS{}) {
		return client, nil
	}
	base, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil, errors.New("tls needs a client with an http.Transport")
	}
	made := *client
	made.Transport = clienttls.Files(files).Transport(base)
	return &made, nil
}

type target struct {
	client   *http.Client
	base     *url.URL
	policy   *policy.Target
	maxDelay time.Duration // 0: no limit counts from the answer
	secrets  []*secret
	key      *secret
	tokens   *tokens
}

func (t *target) handle(ctx context.Context, j workers.Job) error {
	j.Unsent() // so far
	request, err := t.request(ctx, j)
	if err != nil {
		return workers.Permanent(err)
	}
	hidden := redact.Values(job.Forwarded(j.Header))
	for _, s := range t.secrets {
		if err := s.add(request.Header); err != nil {
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
	token := ""
	if t.tokens != nil {
		if token, err = t.tokens.get(ctx); err != nil {
			return workers.Unavailable(err)
		}
		request.Header.Set("Authorization", token)
		hidden = append(hidden, token)
	}
	exchange := oneshot.Exchange{MaxDelay: t.maxDelay}
	whole, used := false, false // the answer was read; the connection was used before
	defer func() {
		if !whole {
			exchange.Wait()
		}
	}()
	dialing, done := exchange.Dialing(ctx)
	defer done()
	response, err := t.client.Do(request.WithContext(httptrace.WithClientTrace(dialing,
		&httptrace.ClientTrace{GetConn: exchange.GetConn, GotConn: func(c httptrace.GotConnInfo) {
			used = c.Reused
			exchange.GotConn(c)
		}})))
	switch {
	case err == nil && !answers.Gateways(response.StatusCode):
		j.Answered() // net/http returns the header of the final answer
	case !exchange.Unsent() && !workers.IsMisconfigured(marked(err)):
		j.Unanswered()
	}
	if used && oneshot.Leaving(err) {
		return workers.Again(0)
	}
	if errors.Is(err, errOutOfReach) && t.policy.Calls() {
		return workers.Permanent(fmt.Errorf("call target: %w", withoutURL(err)))
	}
	if err != nil {
		return t.down(fmt.Errorf("call target: %w", oneshot.Cause(withoutURL(err))))
	}
	defer response.Body.Close()
	// The status decides: a request was served even if the rest of the response is lost.
	most := int64(mostAnswer)
	from := t.policy.HTTP.CostFromResponse
	for _, at := range from {
		if at.JSON != "" {
			most = mostSettled
		}
	}
	if j.Awaited() {
		most = max(most, queue.MaxReply+1)
	}
	part := &io.LimitedReader{R: response.Body, N: most}
	body, broken := io.ReadAll(part)
	whole = broken == nil && (part.N > 0 || response.ContentLength == most)
	settle(j, from, response.Header, body)
	if broken == nil && (j.Awaited() || j.Kept()) { // a part would pass for the whole
		j.Reply(response.StatusCode, shown(response.Header, hidden),
			[]byte(redact.Text(string(body), hidden)))
	}
	now := time.Now()
	rules := answers.For(t.policy.HTTP.Answers, t.policy.HTTP.Like, request.URL.Hostname())
	rules.Silent = !t.policy.HTTP.ReadsRateLimitHeaders()
	means := rules.Judge(response.StatusCode, response.Header, body, now)
	j.CoolDown(means.Pause(response.StatusCode))
	if t.tokens != nil && response.StatusCode == http.StatusUnauthorized {
		t.tokens.refused(token)
		if means.Means == answers.Permanent {
			means.Means = answers.Retry
		}
	}
	if err = workers.ReadAgain(response.Header, now); err == nil && means.Means != answers.Done {
		err = failure(response.StatusCode, means, detail(redact.Text(string(body), hidden)))
	}
	if workers.IsUnavailable(err) {
		return t.down(err)
	}
	return err
}

// down returns the error of an unreachable target. A callback opens no breaker, because each has
// its own target.
func (t *target) down(err error) error {
	if files.Short(err) {
		return err
	}
	if t.policy.Calls() {
		return errors.New(err.Error())
	}
	return workers.Unavailable(marked(err))
}

// connections are fields of the connection (RFC 9110, 7.6.1), and others not to be shown.
var connections = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Set-Cookie"}

// shown returns a response's header for waiting submitters.
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
	if kind := job.ContentType(header.Get("Content-Type"), j.Body, false); kind != "" {
		header.Set("Content-Type", kind)
	}
	for name, values := range job.Forwarded(j.Header) {
		header[http.CanonicalHeaderKey(name)] = values
	}
	to, err := t.resolve(path)
	if t.policy.Calls() {
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
	oneshot.SetBody(request, j.Body)
	return request, nil
}

func control(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }

// sendable rejects header fields that HTTP cannot carry (RFC 9110, section 5).
func sendable(header http.Header) error {
	const separators = `"(),/:;<=>?@[\]{}`
	for name, values := range header {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r >= 0x7F || strings.ContainsRune(separators, r)
		}) {
			return fmt.Errorf("%q cannot be the name of a header field", name)
		}
		for _, value := range values {
			if strings.ContainsFunc(value, control) {
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

// resolve appends a job's path to the base URL, which it cannot leave.
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

// failure returns an attempt's error; see docs/guide.md, "Targets". The detail may quote parts of
// the request, which are stored and shown.
func failure(status int, v answers.Verdict, detail string) error {
	answer := fmt.Errorf("target answered %d: %s", status, detail)
	switch {
	case v.Means == answers.Throttled && v.Doubtful:
		return workers.Doubtful(workers.RetryAfter(v.Wait, answer))
	case v.Means == answers.Throttled:
		return workers.RetryAfter(v.Wait, answer)
	case v.Means == answers.Permanent:
		return workers.Permanent(answer)
	case status >= http.StatusInternalServerError:
		return workers.Unavailable(answer)
	}
	return workers.Later(v.Wait, answer)
}

func detail(body string) string {
	text := strings.ToValidUTF8(body[:min(len(body), mostDetail)], "�")
	return strings.Join(strings.Fields(text), " ")
}

// withoutURL removes the URL, which may hold credentials.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// mostSettled bounds the part of a body that is searched for costs.
const mostSettled = 8 << 20

// settle reports actual costs, from Penstock's headers and the policy's places. If a value is
// missing or not a number, the estimate counts.
func settle(j workers.Job, from policy.CostFromResponse, header http.Header, body []byte) {
	for cost, used := range job.ReadUsed(header) {
		j.Settle(cost, used)
	}
	for cost, at := range from {
		if n, ok := job.UsedAt(at, header, body); ok {
			j.Settle(cost, n)
		}
	}
}
