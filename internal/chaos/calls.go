//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

const (
	// callWait exceeds a lease.
	callWait = 20 * time.Second
	// until a started admitter answers
	restart = 10 * time.Second
)

type call struct {
	bucket
	over           string
	asked          string
	sent, answered time.Duration
	outcome        outcome
	why            string
}

type outcome int

const (
	failed outcome = iota
	begun
	declined // with the time to come back, or no drainer answered
)

func outlets(rules []rule, port int, target string) string {
	text := fmt.Sprintf("outbound:\n  - listen: %s\n    routes:\n", address(port))
	for _, r := range rules {
		if r.calls > 0 {
			text += fmt.Sprintf("      - {prefix: /%[1]s, upstream: %[2]q, policy: %[1]s, "+
				"key: '{path.1}', max_wait: %[3]v}\n", r.name, target+"/call/"+r.name, callWait)
		}
	}
	return text
}

func (c *clients) call(ctx context.Context) {
	var all sync.WaitGroup
	for i, rule := range c.w.history.rules {
		for key := range rule.keys {
			r := rand.New(rand.NewPCG(c.w.seed, 3<<32+uint64(i*100+key)))
			all.Go(func() {
				for rule.calls > 0 && pause(ctx,
					time.Duration(r.ExpFloat64()/rule.calls*float64(time.Second))) {
					is := call{bucket: bucket{rule.name, "k" + strconv.Itoa(key)},
						over: []string{"proxy", "http", "nats"}[r.IntN(3)], sent: c.w.now()}
					admitter := r.IntN(admitters)
					all.Go(func() { c.make(is, admitter) })
				}
			})
		}
	}
	all.Wait()
}

func (c *clients) make(is call, admitter int) {
	ctx, cancel := context.WithTimeout(context.Background(), callWait+restart)
	defer cancel()
	var err error
	switch is.over {
	case "nats":
		err = c.acquire(ctx, is.bucket)
	case "proxy":
		_, err = c.ask(ctx, http.MethodGet, fmt.Sprintf("http://%s/%s/%s",
			address(c.w.ports[admitter].proxy), is.policy, is.key), "")
	default:
		err = c.overPermit(ctx, is.bucket, admitter)
	}
	if is.over != "nats" {
		is.asked = c.w.admitters[admitter].name
	}
	is.answered = c.w.now()
	switch {
	case err == nil:
		is.outcome = begun
	case errors.Is(err, errDeclined):
		is.outcome = declined
	default:
		is.why = err.Error()
	}
	note(c.w.history, &c.w.history.calls, is)
}

func (c *clients) acquire(ctx context.Context, b bucket) error {
	p, err := c.permits.Acquire(ctx, permits.Request{Policy: b.policy, Key: b.key, Wait: callWait})
	if _, refused := errors.AsType[*admission.RefusedError](err); refused ||
		errors.Is(err, admission.ErrNoDrainer) {
		return errDeclined
	}
	if err == nil {
		_, err = c.ask(ctx, http.MethodGet, c.w.target.url+"/call/"+b.String(), "")
		p.Settle(permits.Result{Status: permits.Done})
	}
	return err
}

func (c *clients) overPermit(ctx context.Context, b bucket, admitter int) error {
	at := fmt.Sprintf("http://%s/v1/permits/%s", address(c.w.ports[admitter].http), b)
	answer, err := c.ask(ctx, http.MethodPost, fmt.Sprintf("%s?wait=%v", at, callWait), "")
	if err != nil {
		return err
	}
	var p struct{ Permit string }
	if err := json.Unmarshal(answer, &p); err != nil {
		return err
	}
	_, err = c.ask(ctx, http.MethodGet, c.w.target.url+"/call/"+b.String(), "")
	// If this is lost, the lease expires.
	_, _ = c.ask(ctx, http.MethodPut, at+"?permit="+p.Permit, `{"status":"done"}`)
	return err
}

var errDeclined = errors.New("declined")

func (c *clients) ask(ctx context.Context, method, url, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	a, err := c.calls.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	answer, err := io.ReadAll(a.Body)
	switch refused := a.StatusCode == http.StatusTooManyRequests ||
		a.StatusCode == http.StatusServiceUnavailable; {
	case err != nil:
		return nil, err
	case refused && a.Header.Get("Retry-After") != "":
		return nil, errDeclined
	case a.StatusCode >= http.StatusMultipleChoices:
		return nil, fmt.Errorf("%s: %.200s", a.Status, answer)
	}
	return answer, nil
}

// called answers a call, whose path is its bucket.
func (t *target) called(r *http.Request) {
	policy, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/call/"), "/")
	note(t.w.history, &t.w.history.requests, request{bucket{policy, key}, t.w.now()})
}

// calls must succeed unless their admitter had a fault, and each request has a start. Law 2 covers
// all starts.
func (f *facts) calls(v *verdict) {
	for _, c := range f.h.calls {
		switch c.outcome {
		case begun:
			v.begun++
			v.waited = max(v.waited, c.answered-c.sent)
		case declined:
			v.declined++
		case failed:
			v.failed++
			if !f.broken(c) {
				v.violated("a clear no", "a call over %s in %s, sent at %v to %q, failed at %v: %s",
					c.over, c.bucket, c.sent, c.asked, c.answered, c.why)
			}
		}
	}
	requests := map[bucket]int{}
	for _, r := range f.h.requests {
		requests[r.bucket]++
	}
	starts := map[bucket]int{}
	for _, s := range f.h.starts {
		if s.job == job.CallID(s.policy) {
			starts[s.bucket]++
			v.granted++
		}
	}
	for b, n := range requests {
		if n > starts[b] {
			v.violated("witnesses", "%s: %d requests of calls, and drainers tell of %d starts", b,
				n, starts[b])
		}
	}
}

func (f *facts) broken(c call) bool {
	for _, x := range f.h.faults {
		if x.overlaps(c.sent-restart, c.answered) && strings.HasPrefix(x.kind, "admitter ") &&
			x.struck(func(name string) bool { return name == c.asked }) {
			return true
		}
	}
	return false
}
