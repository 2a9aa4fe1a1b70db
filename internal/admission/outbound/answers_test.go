package outbound_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

const (
	second = `{"message": "You have exceeded a secondary rate limit."}`
	points = `{"errors": [{"extensions": {"code": "THROTTLED"}}], "extensions": {"cost": {
		"requestedQueryCost": 52, "throttleStatus": {"currentlyAvailable": 2, "restoreRate": 1000}}}}`
)

// It pauses the bucket before the caller has the answer, and is passed on as it came, or absorbed.
func TestAThrottleInOtherWordsPausesTheBucket(t *testing.T) {
	for name, c := range map[string]struct {
		like   string
		status int
		body   string
		pause  int64
	}{
		"a 403":          {"github", 403, second, 60_000},
		"a 200":          {"shopify", 200, points, 50},
		"a 200 in parts": {"shopify", 200, points, 50},
		"packed":         {"shopify", 200, points, 50},
	} {
		for _, mode := range []string{outbound.Pass, outbound.Absorb} {
			var n atomic.Int64
			w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
				if n.Add(1) > 1 {
					fmt.Fprint(w, "done")
					return
				}
				w.Header().Set("Content-Type", "application/json")
				body := io.Writer(w)
				if name == "packed" {
					w.Header().Set("Content-Encoding", "gzip")
					packed := gzip.NewWriter(w)
					defer packed.Close()
					body = packed
				}
				w.WriteHeader(c.status)
				for i, half := range []string{c.body[:9], c.body[9:]} {
					if i > 0 && name == "a 200 in parts" {
						http.NewResponseController(w).Flush()
					}
					fmt.Fprint(body, half)
				}
			}, outbound.Options{}, outbound.Route{OnThrottle: mode, Like: c.like})
			response := w.ask("GET", "/", "", "Accept-Encoding: gzip")
			body := response.Body
			if response.Header.Get("Content-Encoding") == "gzip" {
				unpacked, err := gzip.NewReader(body)
				if err != nil {
					t.Fatal(err)
				}
				body = unpacked
			}
			text, err := io.ReadAll(body)
			want, status := c.body, c.status
			if mode == outbound.Absorb && c.pause < 1000 {
				want, status = "done", 200
			}
			if err != nil || string(text) != want || response.StatusCode != status {
				t.Errorf("%s, %s: %d %s, %v", name, mode, response.StatusCode, text, err)
			}
			if r := w.end(1); r.Status != job.SettledThrottled || r.RetryAfterMS != c.pause {
				t.Errorf("%s, %s: settled %+v", name, mode, r)
			}
		}
	}
}

func TestAStreamPassesAtOnceThoughARuleReadsAnswers(t *testing.T) {
	for _, kind := range []string{"application/json", "text/event-stream"} {
		for _, mode := range []string{outbound.Pass, outbound.Absorb} {
			if kind == "application/json" && mode == outbound.Absorb {
				continue // it is held, to be repeated
			}
			next := make(chan struct{})
			w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				fmt.Fprint(w, `{"data":`)
				http.NewResponseController(w).Flush()
				<-next
				fmt.Fprint(w, `{}}`)
			}, outbound.Options{}, outbound.Route{Like: "shopify", OnThrottle: mode})
			goOn := sync.OnceFunc(func() { close(next) })
			t.Cleanup(goOn)
			ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience()/4)
			defer cancel()
			response := w.askWith(ctx, "GET", "/", "")
			begin := make([]byte, 8)
			if _, err := io.ReadFull(response.Body, begin); err != nil || string(begin) != `{"data":` {
				t.Errorf("%s: %q, %v", kind, begin, err)
			}
			goOn()
			if rest := text(t, response); rest != `{}}` {
				t.Errorf("%s: %q", kind, rest)
			}
		}
	}
}

// A larger answer is no throttle, and whole.
func TestOfAnAnswerAtMost64KiBAreHeld(t *testing.T) {
	large := `{"errors": [{"extensions": {"code": "THROTTLED"}}], "x": "` +
		strings.Repeat("x", 64<<10) + `"}`
	for _, mode := range []string{outbound.Pass, outbound.Absorb} {
		w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, large)
		}, outbound.Options{}, outbound.Route{Like: "shopify", OnThrottle: mode, Policy: "one"})
		if got := text(t, w.ask("GET", "/", "")); got != large {
			t.Errorf("%s: %d bytes of %d", mode, len(got), len(large))
		}
		if r := w.end(1); r.Status != job.SettledDone {
			t.Errorf("%s: settled %+v", mode, r)
		}
	}
}

// Neither pauses the bucket.
func TestA429ThatIsNoThrottlePassesOn(t *testing.T) {
	for name, c := range map[string]struct{ like, body string }{
		"never":  {"openai", `{"error": {"code": "insufficient_quota"}}`},
		"a lock": {"stripe", `{"error": {"code": "lock_timeout"}}`},
	} {
		w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(429)
			fmt.Fprint(w, c.body)
		}, outbound.Options{}, outbound.Route{Like: c.like, OnThrottle: outbound.Absorb,
			Policy: "one"})
		response := w.ask("GET", "/", "")
		if got := text(t, response); got != c.body || response.StatusCode != 429 {
			t.Errorf("%s: %d %s", name, response.StatusCode, got)
		}
		if r := w.end(1); r.Status != job.SettledDone || r.RetryAfterMS != 0 {
			t.Errorf("%s: settled %+v", name, r)
		}
	}
}

// A server that fails may have done the work: only the bucket waits.
func TestAFailureWithATimeIsNotRepeated(t *testing.T) {
	var n atomic.Int64
	w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Retry-After-Ms", "20")
		w.WriteHeader(502)
	}, outbound.Options{}, outbound.Route{OnThrottle: outbound.Absorb})
	if response := w.ask("POST", "/", "x"); response.StatusCode != 502 || n.Load() != 1 {
		t.Errorf("%d after %d requests", response.StatusCode, n.Load())
	}
	if r := w.end(1); r.Status != job.SettledThrottled || r.RetryAfterMS != 20 {
		t.Errorf("settled %+v", r)
	}
}

func TestRulesOfARouteDecide(t *testing.T) {
	busy := policy.AnswerRule{Status: []int{409}, Means: policy.MeansThrottled,
		Wait: policy.AnswerWait{AnswerPlace: policy.AnswerPlace{Header: "X-Busy-For"}}}
	w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Busy-For", "40")
		w.WriteHeader(409)
	}, outbound.Options{}, outbound.Route{Answers: []policy.AnswerRule{busy}})
	w.ask("GET", "/", "")
	if r := w.end(1); r.Status != job.SettledThrottled || r.RetryAfterMS != 40_000 {
		t.Errorf("settled %+v", r)
	}
}
