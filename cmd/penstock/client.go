package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/internal/clienttls"
	"github.com/penstock-mq/penstock/internal/nearest"
)

type settings struct {
	server, token, tokenFile string
	caCert, cert, certKey    string
	timeout                  time.Duration
}

const envPrefix = "PENSTOCK"

const defaultServer = "http://127.0.0.1:8080"

// variables are the flags that PENSTOCK_… variables can set. A flag overrides its variable and its
// partner's.
func (s *settings) variables() []variable {
	return []variable{
		{&s.server, "server", "server", "`URL` of the admitter"},
		{&s.token, "token", "token-file", "bearer `token`"},
		{&s.tokenFile, "token-file", "token", "`file` with the token"},
		{&s.caCert, "cacert", "cacert",
			"PEM `file` of trusted authorities, replacing the system's"},
		{&s.cert, "cert", "cert-key", "PEM `file` of the client certificate"},
		{&s.certKey, "cert-key", "cert", "PEM `file` of the certificate's key"},
	}
}

type variable struct {
	to                   *string
	flag, partner, usage string
}

func (v variable) name() string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(v.flag, "-", "_"))
}

func (s *settings) flags(flags *pflag.FlagSet) {
	s.server = defaultServer
	for _, v := range s.variables() {
		flags.StringVar(v.to, v.flag, *v.to, v.usage+" ("+v.name()+")")
	}
	s.timeout = 30 * time.Second
	flags.Var((*length)(&s.timeout), "timeout", "how long to wait for an answer")
}

func (s *settings) client(flags *pflag.FlagSet) (*client, error) {
	resolved := viper.New()
	resolved.SetEnvPrefix(envPrefix)
	resolved.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	for _, v := range s.variables() {
		_ = resolved.BindPFlag(v.flag, flags.Lookup(v.flag))
		if !flags.Changed(v.partner) {
			_ = resolved.BindEnv(v.flag)
		}
		*v.to = resolved.GetString(v.flag)
	}
	full := s.server
	if !strings.Contains(full, "://") {
		full = "http://" + full
	}
	server, err := url.Parse(full)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" ||
		strings.Trim(server.Path, "/") != "" || server.RawQuery != "" || server.Fragment != "" ||
		server.User != nil || !isPort(cmp.Or(server.Port(), "80")) {
		return nil, fmt.Errorf("server: %q: want a URL such as %s", s.server, defaultServer)
	}
	if s.timeout <= 0 {
		return nil, fmt.Errorf("timeout: %v: want more than 0", s.timeout)
	}
	token := s.token
	if token == "" && s.tokenFile != "" {
		text, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("token: contains an invalid character")
	}
	if s.cert == "" && s.certKey != "" {
		return nil, errors.New("cert-key: requires --cert")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, err = clienttls.Files{CA: s.caCert, Cert: s.cert,
		Key: cmp.Or(s.certKey, s.cert)}.Config()
	return &client{
		server:  server.Scheme + "://" + server.Host,
		token:   token,
		timeout: s.timeout,
		http:    &http.Client{Transport: transport, CheckRedirect: noRedirect},
	}, err
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// noRedirect keeps the token from other hosts; an admitter never redirects.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

type client struct {
	server, token string
	timeout       time.Duration
	http          *http.Client
}

// problem is an error response (RFC 9457).
type problem struct {
	api.Rejected
	body []byte
}

func (p *problem) Error() string {
	if len(p.Problems) > 1 {
		lines := make([]string, len(p.Problems))
		for i, one := range p.Problems {
			lines[i] = strings.TrimPrefix(one.Field+": "+one.Reason, ": ")
		}
		return strings.Join(lines, "\n")
	}
	said := cmp.Or(p.Detail, p.Title, http.StatusText(p.Status))
	if p.Status >= 500 && p.Reason != "" {
		said += " (" + p.Reason + ")"
	}
	if p.Status == http.StatusUnauthorized {
		said += ": set PENSTOCK_TOKEN, --token-file or --cert"
	}
	return fmt.Sprintf("%s [%d]", said, p.Status)
}

// noAnswer is the error when no admitter answered.
type noAnswer struct {
	server  string
	timeout time.Duration
	err     error
}

func (n *noAnswer) Error() string {
	err := n.err
	if n.timeout > 0 && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer from %s within %v", n.server,
			n.timeout.Round(time.Millisecond))
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Sprintf("no answer from %s: %v", n.server, err)
}

func (n *noAnswer) Unwrap() error { return n.err }

// largeBody is asked for first (Expect: 100-continue).
const largeBody = 512 << 10

type request struct {
	method string
	path   string
	body   []byte
	header http.Header
}

func (c *client) prepare(ctx context.Context, q request) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, c.server+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, q.header)
	r.Header.Set("User-Agent", "penstock/"+buildinfo.Version())
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if len(q.body) > largeBody {
		r.Header.Set("Expect", "100-continue")
	}
	return r, nil
}

// A status of 300 or more is an error.
func (c *client) send(r *http.Request) (*http.Response, error) {
	response, err := c.http.Do(r)
	if err != nil {
		if why := context.Cause(r.Context()); errors.Is(why, context.Canceled) {
			return nil, why
		}
		return nil, &noAnswer{c.server, c.timeout, err}
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, readProblem(response)
}

const mostOfAProblem = 1 << 20

func readProblem(response *http.Response) error {
	p := &problem{}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostOfAProblem))
	if err != nil || json.Unmarshal(body, p) != nil {
		*p = problem{}
		p.Detail = "the server is not an admitter; check --server"
	}
	if p.Status, p.body = response.StatusCode, body; p.RetryAfterMS == 0 {
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err == nil && seconds > 0 {
			p.RetryAfterMS = int64(seconds) * 1000
		}
	}
	return p
}

// ask repeats a GET that is answered with 503 and a Retry-After.
func (c *client) ask(ctx context.Context, q request) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for {
		answer, err = c.once(ctx, q)
		p, no := errors.AsType[*problem](err)
		if !no || q.method != "" || p.Status != http.StatusServiceUnavailable ||
			p.RetryAfterMS <= 0 {
			return answer, err
		}
		pause := milliseconds(p.RetryAfterMS)
		if end, _ := ctx.Deadline(); time.Until(end) <= pause {
			return nil, p
		}
		if !wait(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

func (c *client) once(ctx context.Context, q request) (answer []byte, err error) {
	r, err := c.prepare(ctx, q)
	if err != nil {
		return nil, err
	}
	response, err := c.send(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return nil, &noAnswer{c.server, c.timeout, err}
	}
	if len(answer) == 0 && response.StatusCode != http.StatusNoContent {
		return nil, fmt.Errorf("%w (it is empty)", errForeign)
	}
	return answer, nil
}

func (c *client) get(ctx context.Context, path string, into any) (answer []byte, err error) {
	return c.askFor(ctx, request{path: path}, into)
}

func (c *client) askFor(ctx context.Context, q request, into any) (answer []byte, err error) {
	if answer, err = c.ask(ctx, q); err != nil {
		return nil, err
	}
	if len(answer) == 0 {
		answer = []byte("{}")
	}
	return answer, read(answer, into)
}

var errForeign = errors.New("the answer is not an admitter's")

func read(answer []byte, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	return nil
}

// call prints an answer, unchanged with --json.
func call[T any](ctx context.Context, a *app, q request, words func(T) error) error {
	var answer T
	text, err := a.askFor(ctx, q, &answer)
	if err != nil {
		return err
	}
	return a.show(text, func() error { return words(answer) })
}

func (a *app) show(answer []byte, words func() error) error {
	if a.json {
		return a.printf("%s\n", answer)
	}
	return words()
}

// query has the flags of these names that are given or have a default.
func query(cmd *cobra.Command, names ...string) string {
	values := url.Values{}
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f != nil && (f.Changed || f.DefValue != "" && f.DefValue != "0") {
			values.Set(name, f.Value.String())
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// document shows one that is no answer of the API.
func (a *app) document(document any, words func() error) error {
	if a.json {
		return json.NewEncoder(a.out).Encode(document)
	}
	return words()
}

func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

func (a *app) hinted(ctx context.Context, err error) error {
	p, ok := errors.AsType[*problem](err)
	if !ok || p.Status != http.StatusNotFound || a.policy == "" {
		return err
	}
	names, listErr := a.policyNames(ctx)
	if listErr != nil {
		return err
	}
	if hint := nearest.Hint(a.policy, names); hint != "" && !slices.Contains(names, a.policy) {
		return fmt.Errorf("%w%s", err, hint)
	}
	return err
}
