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
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func TestMain(m *testing.M) { proctest.Main(m, "-race", "../../cmd/admitter") }

type world struct {
	t                                        *testing.T
	openai, anthropic, stripe, files, github *fake
	api, proxy                               string
	told                                     string
}

const settings = `
http: {listen: '127.0.0.1:0'}
nats: {embedded: {dir: '%[1]s', listen: ''}}
outbound:
  - listen: 127.0.0.1:0
    routes:
      - &openai {prefix: /openai, upstream: '%[2]s', policy: openai, tokens: tokens,
                 include_usage: true, max_wait: %[7]s}
      - {<<: *openai, prefix: /anthropic, upstream: '%[3]s', policy: anthropic,
         include_usage: false}
      - &github {prefix: /github, upstream: '%[4]s', policy: github, max_wait: %[7]s}
      - &stripe {host: localhost, upstream: '%[5]s', policy: stripe, on_throttle: absorb,
                 max_wait: %[7]s}
      - {<<: *stripe, path: /v1/files, upstream: '%[6]s'}
policies:
  - &paced
    name: openai
    algorithm: leaking_bucket
    outflow: 8/s
    capacity: 1000
    retry: {backoff: 500ms, max_backoff: 500ms}
    limits: [{name: tokens, algorithm: sliding_log, limit: 900, window: 1s, cost: tokens}]
  - {<<: *paced, name: anthropic}
  - {<<: *paced, name: stripe, limits: []}
  - {<<: *paced, name: github, limits: []}
`

func begin(t *testing.T, maxWait string) *world {
	w := &world{t: t, openai: newOpenAI(t), anthropic: newAnthropic(t), stripe: newStripe(t),
		files: newFiles(t), github: newGitHub(t)}
	arrivals := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch part, api := path.Split(r.URL.Path); part {
		case "/arrived/":
			w.fakes()[api].arrived <- struct{}{}
		case "/held/":
			<-w.fakes()[api].held
		}
	}))
	t.Cleanup(arrivals.Close)
	w.told = strings.TrimPrefix(arrivals.URL, "http://")
	w.admit(fmt.Sprintf(settings, t.TempDir(), w.openai.URL, w.anthropic.URL, w.github.URL,
		w.stripe.URL, w.files.URL, maxWait))
	return w
}

func (w *world) admit(settings string) {
	t := w.t
	file := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	admitter := proctest.Start(t, exec.Command(proctest.Program("admitter"), "--drain", "--config",
		file))
	words, err := admitter.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.api, w.proxy = words["http"], words["outbound"]
}

func (w *world) fakes() map[string]*fake {
	return map[string]*fake{"openai": w.openai, "anthropic": w.anthropic, "stripe": w.stripe,
		"github": w.github}
}

func (w *world) node(dir, part string) string {
	w.t.Helper()
	return w.run(exec.CommandContext(w.t.Context(), "node", "sdks.js", part, w.proxy, w.told), dir)
}

func (w *world) run(c *exec.Cmd, dir string) string {
	w.t.Helper()
	c.Dir = dir
	c.Env = append(os.Environ(), "PENSTOCK_OUTBOUND="+w.proxy, "OPENAI_API_KEY=sk-openai",
		"ANTHROPIC_API_KEY=sk-anthropic", "STRIPE_API_KEY=sk_test_stripe", "GITHUB_TOKEN=ghp_x")
	var wrong strings.Builder
	c.Stderr = &wrong
	out, err := c.Output()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s%s", c, err, out, wrong.String())
	}
	return strings.TrimSpace(string(out))
}

func modules(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{"testdata/node", "recipes"} {
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund",
		"--ignore-scripts", "--prefer-offline")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

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

type sdks interface {
	work() string
	streams() string
	pages() string
	cancel()
	refused() string
	recipes() string
}

type inNode struct {
	*world
	dir string
}

func (n inNode) work() string    { return n.node(n.dir, "work") }
func (n inNode) streams() string { return n.node(n.dir, "streams") }
func (n inNode) pages() string   { return n.node(n.dir, "pages") }
func (n inNode) cancel()         { n.node(n.dir, "cancel") }
func (n inNode) refused() string { return n.node(n.dir, "refused") }

func (n inNode) recipes() string {
	got := map[string]any{}
	for _, name := range []string{"openai", "anthropic", "stripe", "github"} {
		out := n.run(exec.CommandContext(n.t.Context(), "node", name+".mjs"), n.dir)
		got[name] = strings.TrimSpace(out)
	}
	return encoded(got)
}

func TestSDKsOfNode(t *testing.T) {
	dir := modules(t)
	testSDKs(t, func(w *world) sdks { return inNode{w, dir} })
}

func TestSDKsOfGo(t *testing.T) { testSDKs(t, func(w *world) sdks { return inGo{w} }) }

func TestRecipesHaveTenLines(t *testing.T) {
	files, err := filepath.Glob("recipes/*")
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		recipes := []string{string(text)}
		if strings.HasSuffix(file, ".go") {
			recipes = regexp.MustCompile(`(?ms)^func .*?^}`).FindAllString(string(text), -1)
		}
		for _, recipe := range recipes {
			if n := strings.Count(strings.TrimSpace(recipe), "\n"); n > 10 {
				t.Errorf("%s: %d lines:\n%s", file, n, recipe)
			}
		}
	}
}

func testSDKs(t *testing.T, of func(*world) sdks) {
	t.Run("keep the limits", func(t *testing.T) {
		w := begin(t, "30s")
		wants(t, of(w).work(), map[string]any{
			"chats":     times(15, func(int) any { return "hi" }),
			"customers": times(8, func(i int) any { return fmt.Sprintf("customer %d", i) }),
			"issues":    times(6, func(i int) any { return i + 1 }),
			"message":   "hi", "file": "file_1"})
		w.all(15, 1, 8, 1, 3)
	})
	t.Run("stream", func(t *testing.T) {
		w := begin(t, "30s")
		wants(t, of(w).streams(), map[string]any{"openai": "hello", "anthropic": "hello"})
		w.all(1, 1, 0, 0, 0)
	})
	t.Run("page inside the proxy", func(t *testing.T) {
		w := begin(t, "30s")
		both := []string{"one", "two"}
		wants(t, of(w).pages(), map[string]any{"openai": both, "anthropic": both, "stripe": both})
		w.all(2, 2, 2, 0, 0)
	})
	t.Run("cancel", func(t *testing.T) {
		w := begin(t, "30s")
		of(w).cancel()
		for name, f := range w.fakes() {
			waittest.Until(t, name+" sees that the caller is gone", func() bool {
				_, _, gone := f.counts()
				return gone == 1
			})
		}
	})
	t.Run("retry while paused", func(t *testing.T) {
		w := begin(t, "30s")
		for policy := range w.fakes() {
			w.ask("POST", "/v1/pause/"+policy)
		}
		w.retried(of(w), 429, "throttled", func(policy string) {
			w.ask("POST", "/v1/resume/"+policy)
		})
		w.all(1, 1, 1, 0, 0)
	})
	t.Run("retry while the upstream is down", func(t *testing.T) {
		w := begin(t, "20ms") // less than the breaker's pauses
		up := map[string]chan struct{}{}
		for policy := range w.fakes() {
			up[policy] = make(chan struct{})
			w.trip(policy, up[policy])
		}
		w.retried(of(w), 503, "down", func(policy string) { close(up[policy]) })
		w.all(1, 1, 1, 0, 0)
	})
	t.Run("follow recipes", func(t *testing.T) {
		wants(t, of(begin(t, "30s")).recipes(), map[string]any{"openai": "hi", "anthropic": "hi",
			"stripe": "Ada", "github": "1 2 3 4 5 6"})
	})
}

// retried lets each SDK call once, and then removes the cause of the refusal.
func (w *world) retried(by sdks, status int, code string, mend func(policy string)) {
	w.t.Helper()
	before := map[string]int{}
	for policy := range w.fakes() {
		before[policy] = w.requests(policy, "refused")
	}
	got := make(chan string)
	go func() { got <- by.refused() }()
	for len(before) > 0 {
		waittest.Until(w.t, fmt.Sprintf("%d policies refuse", len(before)), func() bool {
			for policy, n := range before {
				if w.requests(policy, "refused") > n {
					mend(policy)
					delete(before, policy)
					return true
				}
			}
			return false
		})
	}
	var github struct {
		Status     int
		RetryAfter string
		By         string
	}
	text := <-got
	if err := json.Unmarshal([]byte(text), &github); err != nil {
		w.t.Fatal(text, err)
	}
	if github.Status != status || github.RetryAfter == "" || github.By != code {
		w.t.Errorf("GitHub's SDK, which does not retry, got %+v", github)
	}
	for _, part := range []string{`"chat":"hi"`, `"customer":"customer 1"`, `"message":"hi"`} {
		if !strings.Contains(text, part) {
			w.t.Errorf("got %s, without %s", text, part)
		}
	}
}

// trip opens the breaker of a policy by permits that report the target as down, and keeps it open
// until up is closed.
func (w *world) trip(policy string, up <-chan struct{}) {
	w.t.Helper()
	ask := func(method, query, body string) (permit, problem string) {
		r, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.api+
			"/v1/permits/"+policy+"/all?"+query, strings.NewReader(body))
		if err != nil {
			w.t.Error(err)
			return "", ""
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", ""
		}
		defer response.Body.Close()
		var document struct{ Permit, Reason string }
		_ = json.NewDecoder(response.Body).Decode(&document)
		return document.Permit, document.Reason
	}
	opened, wait := make(chan struct{}), "1ms"
	go func() {
		for w.t.Context().Err() == nil {
			permit, problem := ask("POST", "wait="+wait, "")
			if wait == "1ms" && problem == "target-down" {
				wait = "10s"
				close(opened)
			}
			result := "unavailable"
			select {
			case <-up:
				result = "done"
			default:
			}
			if permit == "" {
				continue
			}
			if ask("PUT", "permit="+permit, `{"status":"`+result+`"}`); result == "done" {
				return
			}
		}
	}()
	<-opened
}

func times(n int, f func(int) any) (all []any) {
	for i := range n {
		all = append(all, f(i))
	}
	return all
}

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
