// Package sdktest uses vendors' SDKs through the outbound proxy of a real admitter, in front of
// fake APIs that are strict.
package sdktest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/proctest"
	"github.com/penstock-mq/penstock/internal/waittest"
)

func TestMain(m *testing.M) { proctest.Main(m, "../../cmd/admitter") }

// world is an admitter with a proxy in front of the fakes.
type world struct {
	t                                        *testing.T
	openai, anthropic, stripe, files, github *fake
	api, proxy                               string // host:port
	told                                     string // host:port where callers tell of chunks
}

const settings = `
http: {listen: '127.0.0.1:0'}
nats: {embedded: {dir: '%[1]s', listen: ''}}
outbound:
  - listen: 127.0.0.1:0
    routes:
      - {prefix: /openai, upstream: '%[2]s', policy: openai, tokens: tokens, include_usage: true}
      - {prefix: /anthropic, upstream: '%[3]s', policy: anthropic, tokens: tokens}
      - {prefix: /github, upstream: '%[4]s', policy: github, key: '{credential}'}
      - {host: localhost, upstream: '%[5]s', policy: stripe, on_throttle: absorb}
      - {host: localhost, path: /v1/files, upstream: '%[6]s', policy: stripe}
policies:
  - &paced
    name: openai
    algorithm: leaking_bucket
    outflow: 8/s
    capacity: 1000
    limits: [{name: tokens, algorithm: sliding_log, limit: 900, window: 1s, cost: tokens}]
  - {<<: *paced, name: anthropic}
  - {<<: *paced, name: stripe, limits: []}
  - {<<: *paced, name: github, limits: []}
`

func begin(t *testing.T) *world {
	w := &world{t: t, openai: newOpenAI(t), anthropic: newAnthropic(t), stripe: newStripe(t),
		files: newFiles(t), github: newGitHub(t)}
	arrivals := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		map[string]*fake{"/arrived/openai": w.openai, "/arrived/anthropic": w.anthropic}[r.URL.
			Path].arrived <- struct{}{}
	}))
	t.Cleanup(arrivals.Close)
	w.told = strings.TrimPrefix(arrivals.URL, "http://")
	dir := t.TempDir()
	file := filepath.Join(dir, "penstock.yaml")
	text := fmt.Sprintf(settings, dir, w.openai.URL, w.anthropic.URL, w.github.URL, w.stripe.URL,
		w.files.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	admitter := proctest.Start(t, exec.Command(proctest.Program("admitter"), "--drain", "--config",
		file))
	words, err := admitter.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.api, w.proxy = words["http"], words["outbound"]
	return w
}

// node runs a part of the script, and returns what it prints.
func (w *world) node(dir, part string) string {
	w.t.Helper()
	c := exec.CommandContext(w.t.Context(), "node", "sdks.js", part, w.proxy, w.told)
	c.Dir = dir
	var wrong strings.Builder
	c.Stderr = &wrong
	out, err := c.Output()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s%s", part, err, out, wrong.String())
	}
	return strings.TrimSpace(string(out))
}

// modules returns the directory of the script with its packages.
func modules(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/node")); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund",
		"--ignore-scripts", "--prefer-offline")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// ask sends a request to the admitter's API.
func (w *world) ask(method, path string) string {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.api+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		w.t.Fatal(path, response.Status, string(text), err)
	}
	return string(text)
}

// requests counts the requests of a policy with an outcome, by the admitter's metrics.
func (w *world) requests(policy, outcome string) int {
	w.t.Helper()
	found := regexp.MustCompile(fmt.Sprintf(
		`(?m)^penstock_outbound_requests_total\{outcome="%s",policy="%s"\} (\d+)$`, outcome, policy)).
		FindStringSubmatch(w.ask("GET", "/metrics"))
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// all checks that no fake refused anything, and that every request came through the proxy.
func (w *world) all(openai, anthropic, stripe, files, github int) {
	w.t.Helper()
	got := map[string]int{}
	for _, c := range []struct {
		policy string
		fake   *fake
		want   int
	}{{"openai", w.openai, openai}, {"anthropic", w.anthropic, anthropic},
		{"stripe", w.stripe, stripe}, {"stripe", w.files, files}, {"github", w.github, github}} {
		requests, refused, _ := c.fake.counts()
		if requests != c.want || refused > 0 {
			w.t.Errorf("%s got %d requests and refused %d, want %d and none", c.policy, requests,
				refused, c.want)
		}
		got[c.policy] += requests
	}
	for policy, n := range got {
		if through := w.requests(policy, "answered"); through != n {
			w.t.Errorf("%d of %d requests to %s came through the proxy", through, n, policy)
		}
	}
}

// sdks are the SDKs of a language.
type sdks interface {
	work() string
	streams() string
	cancel()
	paused() string
}

// inNode runs testdata/node/sdks.js.
type inNode struct {
	*world
	dir string
}

func (n inNode) work() string    { return n.node(n.dir, "work") }
func (n inNode) streams() string { return n.node(n.dir, "streams") }
func (n inNode) cancel()         { n.node(n.dir, "cancel") }
func (n inNode) paused() string  { return n.node(n.dir, "paused") }

func TestSDKsOfNode(t *testing.T) {
	dir := modules(t)
	testSDKs(t, func(w *world) sdks { return inNode{w, dir} })
}

func TestSDKsOfGo(t *testing.T) { testSDKs(t, func(w *world) sdks { return inGo{w} }) }

func testSDKs(t *testing.T, of func(*world) sdks) {
	t.Run("keep the limits", func(t *testing.T) {
		w := begin(t)
		wants(t, of(w).work(), map[string]any{
			"chats":     times(15, func(int) any { return "hi" }),
			"customers": times(8, func(i int) any { return fmt.Sprintf("customer %d", i) }),
			"issues":    times(6, func(i int) any { return i + 1 }),
			"message":   "hi", "file": "file_1"})
		w.all(15, 1, 8, 1, 3)
	})
	t.Run("stream", func(t *testing.T) {
		w := begin(t)
		wants(t, of(w).streams(), map[string]any{"openai": "hello", "anthropic": "hello"})
		w.all(1, 1, 0, 0, 0)
	})
	t.Run("cancel", func(t *testing.T) {
		w := begin(t)
		of(w).cancel()
		waittest.Until(t, "the upstream sees that the caller is gone", func() bool {
			_, _, gone := w.openai.counts()
			return gone == 1
		})
	})
	t.Run("retry what is refused", func(t *testing.T) {
		w := begin(t)
		policies := []string{"openai", "anthropic", "stripe", "github"}
		for _, policy := range policies {
			w.ask("POST", "/v1/pause/"+policy)
		}
		got := make(chan string)
		go func() { got <- of(w).paused() }()
		for _, policy := range policies {
			waittest.Until(t, policy+" refuses", func() bool {
				return w.requests(policy, "refused") > 0
			})
		}
		for _, policy := range policies {
			w.ask("POST", "/v1/resume/"+policy)
		}
		var github struct {
			Status     int
			RetryAfter string
			By         string
		}
		text := <-got
		if err := json.Unmarshal([]byte(text), &github); err != nil {
			t.Fatal(err)
		}
		if github.Status != 429 || github.RetryAfter == "" || github.By != "throttled" {
			t.Errorf("GitHub's SDK, which does not retry, got %+v", github)
		}
		for _, name := range []string{`"chat":"hi"`, `"customer":"customer 1"`, `"message":"hi"`} {
			if !strings.Contains(text, name) {
				t.Errorf("got %s, without %s", text, name)
			}
		}
		w.all(1, 1, 1, 0, 0)
	})
}

func times(n int, f func(int) any) (all []any) {
	for i := range n {
		all = append(all, f(i))
	}
	return all
}

// wants compares JSON.
func wants(t *testing.T, got string, want map[string]any) {
	t.Helper()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal(text, &b) != nil ||
		fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("got %s, want %s", got, text)
	}
}
