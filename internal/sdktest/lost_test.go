package sdktest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	gpt "github.com/openai/openai-go/v3/option"
)

// strict is an API that allows 10 requests in any second, and 200 and 9,000 tokens in any minute.
type strict struct {
	url string

	mu              sync.Mutex
	starts          []time.Time
	served, refused int
}

func (s *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.starts = slices.DeleteFunc(s.starts, func(at time.Time) bool {
		return now.Sub(at) >= time.Minute
	})
	second := 0
	for _, at := range s.starts {
		if now.Sub(at) < time.Second {
			second++
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if second >= 10 || len(s.starts) >= 200 || (len(s.starts)+1)*tokensOfOne > 9000 {
		s.refused++
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":{"message":"too many requests","type":"rate_limit_error"}}`)
		return
	}
	s.served++
	s.starts = append(s.starts, now)
	fmt.Fprint(w, completion)
}

// Counted from the answer, these limits are exact at the API, however slow this machine is: its
// refusals would cost an SDK one of three tries.
const lossless = `
http: {listen: '127.0.0.1:0'}
nats: {embedded: {dir: '%s', listen: ''}}
outbound: [{listen: '127.0.0.1:0', routes: [%s]}]
policies:
  - &openai
    name: unused
    algorithm: leaking_bucket
    outflow: 576/m
    capacity: 1000
    limits:
      - {name: short, algorithm: sliding_log, limit: 10, window: 1s, count_from: answer}
      - {name: requests, algorithm: sliding_log, limit: 200, window: 1m, count_from: answer}
      - {name: tokens, algorithm: sliding_log, limit: 9000, window: 1m, cost: tokens,
         count_from: answer}
`

var python = flag.String("python", "", "a Python with OpenAI's SDK: make the 200 calls with it too")

// many makes a hundred calls at once at a base URL.
type many func(ctx context.Context, base string) (manyCalls, error)

type manyCalls struct {
	Done int
	Lost []string
}

func printed(name string, args ...string) many {
	return func(ctx context.Context, base string) (calls manyCalls, err error) {
		out, err := exec.CommandContext(ctx, name, append(args, base)...).Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return calls, fmt.Errorf("%w: %s", err, exit.Stderr)
		} else if err != nil {
			return calls, err
		}
		return calls, json.Unmarshal(out, &calls)
	}
}

func manyInGo(ctx context.Context, base string) (calls manyCalls, _ error) {
	client := openai.NewClient(gpt.WithAPIKey("sk-openai"), gpt.WithBaseURL(base))
	var all sync.WaitGroup
	lost := make(chan error, 100)
	for range cap(lost) {
		all.Go(func() {
			_, err := client.Chat.Completions.New(ctx, chat)
			lost <- err
		})
	}
	all.Wait()
	for range cap(lost) {
		if err := <-lost; err == nil {
			calls.Done++
		} else if !slices.Contains(calls.Lost, err.Error()) {
			calls.Lost = append(calls.Lost, err.Error())
		}
	}
	return calls, nil
}

// crowd is two processes that make a hundred calls each.
type crowd struct {
	sdk, wait, policy string // wait and policy are empty without Penstock
	calls             many
	api               *strict
	done              int
	lost              []string
	took              time.Duration
}

var waits = []string{"", "default", "4m"}

// begin makes a first call. Just after a policy's first owner is there, calls have no forecast, and
// wait in vain instead of being refused at once.
func (c *crowd) begin(t *testing.T, base string) {
	r, err := http.NewRequestWithContext(t.Context(), "POST", base+"/chat/completions",
		strings.NewReader(`{"model":"gpt-x","max_tokens":100}`))
	if err != nil {
		t.Error(err)
		return
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.Body.Close() != nil || response.StatusCode != http.StatusOK {
		t.Error(response, err)
	}
}

func (c *crowd) run(ctx context.Context, base string) error {
	began := time.Now()
	type result struct {
		manyCalls
		error
	}
	both := make(chan result, 2)
	for range cap(both) {
		go func() {
			calls, err := c.calls(ctx, base)
			both <- result{calls, err}
		}()
	}
	var problems []error
	for range cap(both) {
		got := <-both
		c.done += got.Done
		c.lost = append(c.lost, got.Lost...)
		problems = append(problems, got.error)
	}
	c.took = time.Since(began).Round(time.Second)
	return errors.Join(problems...)
}

// Two processes call at once, a hundred times each, what takes more than two minutes. With the
// default max_wait of 30s calls are refused, and come back at their turn: SDKs try three times.
func TestNoCallOfTwoHundredIsLost(t *testing.T) {
	sdks := map[string]many{"go": manyInGo, "node": printed("node", modules(t)+"/sdks.js", "many")}
	if *python != "" {
		sdks["python"] = printed(*python, "testdata/python/many.py")
	}
	var crowds []*crowd
	var routes, policies strings.Builder
	for _, sdk := range slices.Sorted(maps.Keys(sdks)) {
		for _, wait := range waits {
			c := &crowd{sdk: sdk, wait: wait, calls: sdks[sdk], api: &strict{}}
			upstream := httptest.NewServer(c.api)
			t.Cleanup(upstream.Close)
			c.api.url = upstream.URL
			crowds = append(crowds, c)
			if wait == "" {
				continue
			}
			c.policy = sdk + "-" + wait
			fmt.Fprintf(&policies, "  - {<<: *openai, name: %s}\n", c.policy)
			fmt.Fprintf(&routes, "{prefix: /%s, upstream: '%s', policy: %[1]s, tokens: tokens",
				c.policy, c.api.url)
			if wait != "default" {
				routes.WriteString(", max_wait: " + wait)
			}
			routes.WriteString("}, ")
		}
	}
	w := &world{t: t}
	w.admit(fmt.Sprintf(lossless, t.TempDir(), routes.String()) + policies.String())
	for _, wait := range waits { // all at once would be too much for a small machine
		var all sync.WaitGroup
		for _, c := range crowds {
			if c.wait != wait {
				continue
			}
			all.Go(func() {
				base := c.api.url + "/v1"
				if c.policy != "" {
					base = "http://" + w.proxy + "/" + c.policy + "/v1"
					c.begin(t, base)
				}
				if err := c.run(t.Context(), base); err != nil {
					t.Errorf("%s: %v", c.sdk, err)
				}
			})
		}
		all.Wait()
	}
	t.Log("SDK      through    done       in  refused by Penstock  by the API")
	for _, c := range crowds {
		t.Logf("%-7s  %-10s %4d  %7s %20d %11d", c.sdk, cmp.Or(c.policy, "directly"), c.done,
			c.took, w.requests(c.policy, "refused"), c.api.refused)
		switch {
		case c.policy != "" && c.done != 200:
			t.Errorf("%d of 200 calls were lost: %q", 200-c.done, c.lost)
		case c.policy == "" && c.done == 200:
			t.Error("no call was lost: the API is not strict")
		}
	}
}
