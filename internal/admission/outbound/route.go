package outbound

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/base/answers"
	"github.com/penstock-mq/penstock/internal/base/clienttls"
	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	// DefaultMaxWait is shorter than SDKs wait for a first byte (Stripe's 80 s, Node's 300 s).
	DefaultMaxWait, MostWait = 30 * time.Second, 10 * time.Minute
	// Defaults and bounds of [Route.Timeout].
	DefaultTimeout, MostTimeout = 10 * time.Minute, time.Hour

	allKeys = "all"
)

// Route leads requests to an upstream. Routes with a host, then those with the longest prefix and
// path, take precedence.
type Route struct {
	// Host of the requests, without a port, for SDKs whose base URL has no path; empty: any.
	Host string `json:"host"`
	// Prefix of the requests' paths, which the upstream does not get: /openai.
	Prefix string `json:"prefix"`
	// Path limits the route to paths below it, after Prefix; the upstream gets it: /v1/files.
	// Requests that servers may read as such ones, /v1/%66iles, are refused.
	Path string `json:"path"`
	// Upstream is the URL that precedes the rest of the path: https://api.openai.com.
	Upstream string `json:"upstream"`
	// TLS of connections to the upstream.
	TLS policy.ClientTLS `json:"tls"`
	// Policy decides when requests start; it has a queue.
	Policy string `json:"policy"`
	// Key of the bucket, with the placeholders {credential} (a hash of Authorization or X-Api-Key),
	// {header.NAME}, {path.N} (a segment of the path, from 1, without Prefix) and {client}; by
	// default the key "all".
	Key string `json:"key"`
	// MaxWait bounds the wait for the start, 1ms to 10m, default 30s: less than the callers'
	// time-out. Requests that would start later are refused at once. SDKs that send their time-out
	// (X-Stainless-Timeout) wait for three quarters of it; Penstock-Wait asks for less.
	MaxWait time.Duration `json:"max_wait"`
	// Timeout bounds the time from the end of a request to the begin of its answer, and the time
	// that the upstream does not read, 1ms to 1h, default 10m. Then the caller gets 504.
	Timeout time.Duration `json:"timeout"`
	// OnThrottle selects the caller's answer when the upstream throttles, which pauses the bucket:
	// pass (default) returns the upstream's; absorb retries within MaxWait if the body has at most
	// 8 MiB.
	OnThrottle string `json:"on_throttle"`
	// Tokens names a cost, for limits that count tokens. Its value is Penstock-Cost-NAME, or an
	// estimate: max_tokens (or the like), a quarter of the body's bytes, and 1000 for each image in
	// base64. The usage in the answer (JSON or server-sent events) of OpenAI, Anthropic and Gemini
	// settles it.
	Tokens string `json:"tokens"`
	// CostFromResponse says where answers report actual costs, by name: a header, or a number in
	// the JSON answer, in the last event of a stream, or in the messages of a WebSocket (their
	// sum).
	CostFromResponse policy.CostFromResponse `json:"cost_from_response"`
	// Like names the API whose answers are read as a well-known one's; default: by the upstream's
	// host.
	Like string `json:"like"`
	// Answers say what answers mean, before Like's rules. JSON of a success is read if a rule asks
	// for it, up to 64 KiB, and passes at once, except with absorb.
	Answers []policy.AnswerRule `json:"answers"`
	// IncludeUsage requests the usage of streams (stream_options of OpenAI's chat completions).
	IncludeUsage bool `json:"include_usage"`
}

// Pass hands an upstream's 429 to the caller; Absorb waits for the next permit and calls again.
const (
	Pass   = "pass"
	Absorb = "absorb"
)

var part = regexp.MustCompile(`\{([a-z]+)(?:\.([A-Za-z0-9-]+))?\}`)

var pathPattern = regexp.MustCompile(`^(/[^/?#\s]+)*$`)

// Check calls add for each field that is wrong.
func (r Route) Check(add func(field, format string, args ...any)) {
	if strings.ContainsAny(r.Host, "/:* ") {
		add("host", "%.80q: want a host name without a port", r.Host)
	}
	for field, path := range map[string]string{"prefix": r.Prefix, "path": r.Path} {
		if !pathPattern.MatchString(path) || dotted(path) {
			add(field, "%.80q: want a path such as /v1, without a slash at the end", path)
		}
	}
	if u, err := url.Parse(r.Upstream); err != nil || u.Scheme != "http" && u.Scheme != "https" ||
		u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		add("upstream", "want a URL such as https://api.example.com")
	}
	if (r.TLS.Cert == "") != (r.TLS.Key == "") {
		add("tls", "requires both cert and key, or neither")
	}
	if !policy.IsName(r.Policy) {
		add("policy", "%.80q: want the name of a policy", r.Policy)
	}
	for _, p := range part.FindAllStringSubmatch(r.Key, -1) {
		n, err := strconv.Atoi(p[2])
		switch known := p[1] == "credential" || p[1] == "client"; {
		case known && p[2] == "", p[1] == "header" && p[2] != "",
			p[1] == "path" && err == nil && n > 0:
		default:
			add("key", "%s: want {credential}, {client}, {header.NAME} or {path.N}", p[0])
		}
	}
	if strings.ContainsAny(part.ReplaceAllString(r.Key, ""), "{}") {
		add("key", "%.80q: want {credential}, {client}, {header.NAME} or {path.N}", r.Key)
	}
	if r.MaxWait < 0 || r.MaxWait > MostWait {
		add("max_wait", "must be 1ms to 10m, not %s", r.MaxWait)
	}
	if r.Timeout < 0 || r.Timeout > MostTimeout {
		add("timeout", "must be 1ms to 1h, not %s", r.Timeout)
	}
	if !slices.Contains([]string{"", Pass, Absorb}, r.OnThrottle) {
		add("on_throttle", "%.80q: want %s or %s", r.OnThrottle, Pass, Absorb)
	}
	for cost, at := range r.CostFromResponse {
		at.Check(func(of, format string, args ...any) {
			add("cost_from_response."+cost+of, format, args...)
		})
	}
	policy.CheckAnswers(r.Like, r.Answers, add)
	if r.IncludeUsage && r.Tokens == "" {
		add("include_usage", "requires tokens, the name of the cost to settle")
	}
}

type route struct {
	Route
	base      *url.URL
	rules     answers.Set
	transport http.RoundTripper
}

// newRoutes orders by precedence.
func newRoutes(all []Route, transport *http.Transport) (routes []*route, err error) {
	for _, r := range all {
		base, err := url.Parse(r.Upstream)
		if err != nil {
			return nil, fmt.Errorf("upstream of policy %s: %w", r.Policy, err)
		}
		r.Key = cmp.Or(r.Key, allKeys)
		r.MaxWait = cmp.Or(r.MaxWait, DefaultMaxWait)
		r.Timeout = cmp.Or(r.Timeout, DefaultTimeout)
		rules := answers.For(r.Answers, r.Like, base.Hostname())
		routes = append(routes, &route{r, base, rules, clienttls.Files(r.TLS).Transport(transport)})
	}
	slices.SortStableFunc(routes, func(a, b *route) int {
		if (a.Host == "") != (b.Host == "") {
			return len(b.Host) - len(a.Host)
		}
		return len(b.Prefix+b.Path) - len(a.Prefix+a.Path)
	})
	return routes, nil
}

// match cuts off the prefix.
func (r *route) match(host, path string) (rest string, ok bool) {
	if r.Host != "" && !strings.EqualFold(r.Host, host) {
		return "", false
	}
	if rest, ok = below(path, r.Prefix); ok {
		_, ok = below(rest, r.Path)
	}
	return rest, ok
}

func below(path, prefix string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, prefix)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// dotted reports whether a path has segments "." or "..", also for servers that decode twice.
func dotted(path string) bool {
	for range 3 { // as it is, and after each time
		if job.DotSegment(path) != "" {
			return true
		}
		if decoded, err := url.PathUnescape(path); err == nil {
			path = decoded
		}
	}
	return false
}

// plain is a path as servers may read it that decode twice, read a backslash as a slash, merge
// slashes or drop text after a semicolon.
func plain(path string) string {
	for range 2 {
		if decoded, err := url.PathUnescape(path); err == nil {
			path = decoded
		}
	}
	var b strings.Builder
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool {
		return r == '/' || r == '\\'
	}) {
		segment, _, _ = strings.Cut(segment, ";")
		b.WriteString("/" + segment)
	}
	return b.String()
}

func hostName(host string) string { return (&url.URL{Host: host}).Hostname() }

func (r *route) to(rest string, request *url.URL) (*url.URL, error) {
	u := *r.base
	u.RawPath = strings.TrimSuffix(r.base.EscapedPath(), "/") + rest
	path, err := url.PathUnescape(u.RawPath)
	u.Path, u.RawQuery, u.ForceQuery = path, request.RawQuery, request.ForceQuery
	return &u, err
}

// from is the reverse of to.
func (r *route) from(u *url.URL) (path string, ok bool) {
	rest, ok := below(u.EscapedPath(), strings.TrimSuffix(r.base.EscapedPath(), "/"))
	if ok {
		_, ok = below(rest, r.Path)
	}
	return r.Prefix + rest, ok && origin(u) == origin(r.base)
}

func origin(u *url.URL) string {
	host := strings.TrimSuffix(u.Host, map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
	return strings.ToLower(u.Scheme + "://" + host)
}

func (r *route) used(header http.Header) map[string]int64 {
	used := map[string]int64{}
	for cost, at := range r.CostFromResponse {
		if n, ok := job.UsedAt(at, header, nil); ok {
			used[cost] = n
		}
	}
	maps.Copy(used, job.ReadUsed(header))
	return used
}

func (r *route) key(request *http.Request, rest, client string) (queue.Key, error) {
	var missing error
	text := part.ReplaceAllStringFunc(r.Key, func(p string) (value string) {
		name := part.FindStringSubmatch(p)
		switch name[1] {
		case "credential":
			value = request.Header.Get("Authorization") + request.Header.Get("X-Api-Key")
			if value != "" {
				sum := sha256.Sum256([]byte(value))
				value = hex.EncodeToString(sum[:8])
			}
		case "header":
			value = request.Header.Get(name[2])
		case "path":
			n, _ := strconv.Atoi(name[2])
			if segments := strings.Split(rest, "/"); n < len(segments) {
				value, _ = url.PathUnescape(segments[n])
			}
		case "client":
			value = client
		}
		if value == "" {
			missing = fmt.Errorf("the request has no %s, which the key requires", p)
		}
		return value
	})
	key, err := queue.EncodeKey(text)
	if missing != nil {
		err = missing
	}
	return key, err
}

// Kinds of faults.
const (
	FaultPolicy = "policy" // it does not exist, or cannot pace calls: requests get 502
	FaultCost   = "cost"   // no limit of the policy counts it
	FaultTLS    = "tls"    // its files cannot be read: requests get 502
)

// Fault is a mistake of a route that only the policies or the files of its TLS reveal. Both may
// come after the route.
type Fault struct {
	Route  string // its host, prefix and path
	Policy string
	Kind   string
	Field  string // of the route
	Reason string
}

// Faults compares routes with the known policies, and reads their files.
func Faults(routes []Route, known inforce.Entries) (faults []Fault) {
	for _, r := range routes {
		faults = append(faults, r.faults(known)...)
	}
	return faults
}

// Faults compares the routes in force with the known policies, and reads their files.
func (p *Proxy) Faults(known inforce.Entries) (faults []Fault) {
	for _, r := range *p.routes.Load() {
		faults = append(faults, r.faults(known)...)
	}
	return faults
}

func (r Route) faults(known inforce.Entries) (faults []Fault) {
	add := func(kind, field, format string, args ...any) {
		faults = append(faults, Fault{r.Host + r.Prefix + r.Path + "/", r.Policy, kind, field,
			fmt.Sprintf(format, args...)})
	}
	if _, err := clienttls.Files(r.TLS).Config(); err != nil {
		add(FaultTLS, "tls", "requests get 502 until its files can be read: %v", err)
	}
	entry := known[r.Policy]
	switch {
	case entry == nil:
		add(FaultPolicy, "policy", "requests get 502 until there is a policy %q%s", r.Policy,
			nearest.Hint(r.Policy, slices.Sorted(maps.Keys(known))))
		return faults
	case !entry.Policy.Paced():
		add(FaultPolicy, "policy", "requests get 502, because policy %q cannot pace calls: want a "+
			"leaking bucket with a queue", r.Policy)
		return faults
	}
	var costs []string
	for _, l := range entry.Policy.Limits {
		costs = append(costs, l.Cost)
	}
	counted := func(field, cost string) {
		if !slices.Contains(costs, cost) {
			add(FaultCost, field, "no limit of policy %s has the cost %q, so it limits nothing%s",
				r.Policy, cost, nearest.Hint(cost, costs))
		}
	}
	if r.Tokens != "" {
		counted("tokens", r.Tokens)
	}
	for _, cost := range slices.Sorted(maps.Keys(r.CostFromResponse)) {
		counted("cost_from_response."+cost, cost)
	}
	return faults
}
