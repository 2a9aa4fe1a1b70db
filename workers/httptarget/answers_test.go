package httptarget_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/httptarget"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

func handlerOf(t *testing.T, to policy.HTTPTarget, answer http.HandlerFunc) workers.Handler {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	to.URL = server.URL
	handle, err := httptarget.New(httptarget.Options{Client: httptarget.Client()})(
		inforce.Entry{Policy: policy.Policy{Name: "api", Target: &policy.Target{HTTP: &to}}})
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

// 50 jobs meet a limit that only the body of a 403 names: one call is refused, and all jobs are
// done after the pause.
func TestAThrottleInOtherWordsBuriesNoJob(t *testing.T) {
	var calls atomic.Int64
	handle := handlerOf(t, policy.HTTPTarget{Like: "github"},
		func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				w.Header().Set("X-Ratelimit-Remaining", "4000")
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"message": "You have exceeded a secondary rate limit."}`)
			}
		})
	p := workerstest.Policy("api", "1000/s")
	p.Concurrency, p.Retry.MaxCooldown = 1, policy.Duration(time.Second)
	kit := workerstest.New(t, p)
	kit.Handle("api", handle)
	kit.Publish("api", "a", nil, 50)
	for _, end := range kit.Wait("api", 50) {
		if end.Type != queue.EventDone || end.Attempt != 1 {
			t.Errorf("%+v", end)
		}
	}
	runs := kit.Jobs("api", "a")
	if paused := runs[1].Started.Sub(runs[0].Started); len(runs) != 51 || paused < time.Second {
		t.Errorf("%d runs, the second %v after the first", len(runs), paused)
	}
}

// A wrong right of one job reads like a limit, by a header that the target sends with any refusal.
func TestAJobThatAlwaysLooksThrottledBecomesADeadLetter(t *testing.T) {
	var kit *workerstest.Kit
	handle := handlerOf(t, policy.HTTPTarget{}, func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) == "good" {
			return
		}
		w.Header().Set("Retry-After-Ms", "20")
		w.WriteHeader(http.StatusForbidden)
		if err := kit.TryPublish("api", "a", []byte("good")); err != nil {
			t.Error(err)
		}
	})
	p := workerstest.Policy("api", "1000/s")
	p.Concurrency, p.Retry.MaxAttempts = 1, 1
	kit = workerstest.New(t, p)
	kit.Handle("api", handle)
	kit.Publish("api", "a", []byte("bad"), 1)
	for n := 1; kit.Wait("api", n)[n-1].Type != queue.EventDead; n++ {
	}
	bad := 0
	for _, run := range kit.Jobs("api", "a") {
		if string(run.Body) == "bad" {
			bad++
		}
	}
	if bad < 3 {
		t.Errorf("dead after %d runs", bad)
	}
}

func TestRulesOfTheTargetDecide(t *testing.T) {
	busy := policy.AnswerRule{Status: []int{200},
		AnswerPlace: policy.AnswerPlace{JSON: "state"}, Values: []string{"busy"},
		Means: policy.MeansThrottled,
		Wait:  policy.AnswerWait{AnswerPlace: policy.AnswerPlace{JSON: "again"}}}
	locked := policy.AnswerRule{Status: []int{409}, Means: "retry"}
	target := policy.HTTPTarget{Answers: []policy.AnswerRule{busy, locked,
		{Status: []int{404}, Means: "done"}, {Status: []int{500}, Means: "permanent"}}}
	for _, c := range []struct {
		status int
		body   string
		check  func(err error) bool
	}{
		{200, `{"state": "well"}`, func(err error) bool { return err == nil }},
		{200, `{"state": "busy", "again": "7s"}`, func(err error) bool {
			pause, throttled := workers.IsRetryAfter(err)
			return throttled && pause == 7*time.Second
		}},
		{404, "", func(err error) bool { return err == nil }},
		{500, "", workers.IsPermanent},
		{400, "", workers.IsPermanent},
		{502, "", workers.IsUnavailable},
		{409, "", func(err error) bool {
			_, throttled := workers.IsRetryAfter(err)
			return err != nil && !throttled && !workers.IsPermanent(err) &&
				!workers.IsUnavailable(err)
		}},
	} {
		handle := handlerOf(t, target, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		if err := handle(t.Context(), workers.Job{}); !c.check(err) {
			t.Errorf("%d %s: %v", c.status, c.body, err)
		}
	}
}

// The job is tried again when its target says, and others of its bucket meanwhile.
func TestALockedJobDelaysNoOther(t *testing.T) {
	var calls atomic.Int64
	handle := handlerOf(t, policy.HTTPTarget{Like: "stripe"},
		func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				w.Header().Set("Retry-After", "2")
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, `{"error": {"code": "lock_timeout"}}`)
			}
		})
	p := workerstest.Policy("api", "1000/s")
	p.Concurrency, p.Retry.Backoff = 1, policy.Duration(time.Millisecond)
	kit := workerstest.New(t, p)
	kit.Handle("api", handle)
	kit.Publish("api", "a", nil, 3)
	ends := kit.Wait("api", 3)
	for i, end := range ends {
		if end.Type != queue.EventDone || end.Attempt != 1+i/2 {
			t.Errorf("%d: %+v", i, end)
		}
	}
	runs := kit.Jobs("api", "a")
	if len(runs) != 4 || runs[3].ID != runs[0].ID {
		t.Fatalf("%+v", runs)
	}
	if waited := runs[3].Started.Sub(runs[0].Started); waited < 2*time.Second {
		t.Errorf("tried again after %v", waited)
	}
}
