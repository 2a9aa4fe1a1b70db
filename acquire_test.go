//go:build unix

package penstock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestCallsStartAtTheRateOfTheirBucket(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("api", 50, 100)}})
	run(t, p)
	var first, last time.Time
	const calls = 20
	for i := range calls {
		permit, err := p.Acquire(t.Context(), penstock.Call{Policy: "api", Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if last = time.Now(); i == 0 {
			first = last
		}
		permit.Settle(permits.Result{Status: permits.Done})
	}
	const rate = 20 * time.Millisecond
	if took := last.Sub(first); took < (calls-2)*rate {
		t.Errorf("%d calls began within %v", calls, took)
	}
}

func TestACallThatWouldStartTooLateIsRefusedAtOnce(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("api", 1, 100)}})
	run(t, p)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := p.Acquire(ctx, penstock.Call{Policy: "api", Key: "a"}); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	_, err := p.Acquire(t.Context(),
		penstock.Call{Policy: "api", Key: "a", Wait: 100 * time.Millisecond})
	refused, ok := errors.AsType[*penstock.RefusedError](err)
	if !ok || !errors.Is(err, penstock.ErrTooLate) || refused.RetryAfter < 100*time.Millisecond {
		t.Errorf("%v", err)
	}
	if _, err := p.Acquire(t.Context(), penstock.Call{Policy: "none", Key: "a"}); !errors.Is(err,
		penstock.ErrUnknownPolicy) {
		t.Errorf("an unknown policy: %v", err)
	}
	eventually(t, "the refused call is counted", func() bool {
		_, stats := ask(t, p, "GET", "/v1/stats", "")
		return strings.Contains(stats, `"refused":1,`)
	})
}

func TestACallThatALimitNeverLetsPassIsAnError(t *testing.T) {
	api := paced("api", 50, 100)
	api.Limits = []policy.Limit{{Name: "tokens", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 100, Window: policy.Duration(time.Minute)}}}
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	_, err := p.Acquire(t.Context(), penstock.Call{Policy: "api", Key: "a",
		Costs: map[string]int64{"tokens": 101}})
	if bad, ok := errors.AsType[*admission.RequestError](err); !ok {
		t.Errorf("%v, want a %T", err, bad)
	}
}

// Its target requested a pause while it waited.
func TestACallThatWaitedInVainIsRefused(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("api", 1, 100)}})
	run(t, p)
	call := penstock.Call{Policy: "api", Key: "a", Wait: 3 * time.Second}
	first, err := p.Acquire(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := p.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked, err := nc.SubscribeSync("penstock.>")
	if err != nil || nc.Flush() != nil {
		t.Fatal(err, nc.LastError())
	}
	second := make(chan error)
	go func() {
		_, err := p.Acquire(t.Context(), call)
		second <- err
	}()
	for { // the second question comes before the first settlement
		m, err := asked.NextMsgWithContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(m.Data, []byte(`"op":"claim"`)) {
			break
		}
	}
	first.Settle(permits.Result{Status: permits.Throttled, RetryAfter: time.Hour})
	refused, ok := errors.AsType[*penstock.RefusedError](<-second)
	if !ok || !errors.Is(refused, penstock.ErrTooLate) || refused.RetryAfter < 30*time.Minute {
		t.Errorf("%v", refused)
	}
}

// TestQuestionsOfCallersAreAnsweredWhateverTheySay asks over plain NATS, and finds no leaks.
func TestQuestionsOfCallersAreAnsweredWhateverTheySay(t *testing.T) {
	api := paced("api", 1000, 100)
	api.Partitions = 2
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	nc, err := p.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked := func(partition int, question string) (string, error) {
		a, err := nc.Request(fmt.Sprintf("penstock.claim.api.%d", partition), []byte(question),
			waittest.Patience())
		if err != nil {
			return "", err
		}
		return string(a.Data), nil
	}
	eventually(t, "both partitions are owned", func() bool {
		_, first := asked(0, "")
		_, second := asked(1, "")
		return first == nil && second == nil
	})
	question := func(key, call, more string) string {
		return fmt.Sprintf(`{"v":1,"op":"claim","want":"permit","key":%q,"id":"x","n":1,`+
			`"partitions":2,"wait_ms":1000%s%s}`, key, call, more)
	}
	const never, begins = `"reason":"never"`, `"state":"go"`
	for i, x := range []struct{ question, answer string }{
		{`{`, "not JSON"},
		{`{"v":2,"op":"claim"}`, "format 2"},
		{`{"v":1,"op":"claim","key":"k"}`, never},
		{`{"v":1,"op":"purge","key":"k"}`, "want claim, progress, answered or settle"},
		{question("k", ``, `,"cost":NaN`), "not JSON"},
		{question("k", ``, `,"cost":1e99`), "not JSON"},
		{question("k", ``, `,"cost":9007199254740993`), never},
		{question("k", ``, `,"cost":-5,"priority":-9223372036854775808,"unknown":{}`), begins},
		{question("k", ``, `,"costs":{"tokens":0}`), never},
		{question("k", ``, `,"costs":{"tokens":9223372036854775807}`), never},
		{question("k", ``, `,"costs":{"":1}`), never},
		{question("k", ``, `,"costs":{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`), never},
		{question("free", `,"wait_ms":-1,"age_ms":-9223372036854775808`, ``), begins},
		{question("k", `,"wait_ms":9223372036854775807,"age_ms":9223372036854775807`, ``), begins},
		{question("k", `,"id":""`, ``), never},
		{question("k", `,"id":"`+strings.Repeat("x", 65)+`"`, ``), never},
		{question("%C3%BC", ``, ``), begins},
		{question("ü", ``, ``), never},
		{question("", ``, ``), never},
		{question(strings.Repeat("k", 900_000), ``, ``), never},
		{question("k", `,"partitions":-1`, ``), never},
		{question("k", `,"partitions":1`, ``), `"state":"moved"`},
	} {
		// The owner may learn of a start after its caller, and answers no question of an id twice.
		unique := strings.NewReplacer(`"id":"x"`, fmt.Sprintf(`"id":"x%d"`, i))
		var answers [2]string
		for partition := range answers {
			if answers[partition], err = asked(partition, unique.Replace(x.question)); err != nil {
				t.Fatalf("%.200s: %v", x.question, err)
			}
		}
		// No key has a bucket, and a rate, in two partitions.
		if n := strings.Count(answers[0]+answers[1], begins); x.answer == begins && n != 1 ||
			!strings.Contains(answers[0]+answers[1], x.answer) {
			t.Errorf("%.200s: %q", x.question, answers)
		}
		ended := `{"v":1,"op":"settle","key":"k","id":"x","n":2,"status":"returned"}`
		for partition := range answers {
			if _, err := asked(partition, unique.Replace(ended)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestWaitingCallersHearWhatBecomesOfTheirPolicy deletes and changes policies; callers get answers
// long before their wait ends.
func TestWaitingCallersHearWhatBecomesOfTheirPolicy(t *testing.T) {
	for name, x := range map[string]struct {
		change func(p *penstock.Penstock) (int, string)
		want   error
	}{
		"deleted": {func(p *penstock.Penstock) (int, string) {
			ask(t, p, "POST", "/v1/release/api", "")
			return ask(t, p, "DELETE", "/v1/policies/api", "")
		}, penstock.ErrUnknownPolicy},
		"paused": {func(p *penstock.Penstock) (int, string) {
			return ask(t, p, "POST", "/v1/pause/api", "")
		}, penstock.ErrPaused},
		"paused for a key": {func(p *penstock.Penstock) (int, string) {
			return ask(t, p, "POST", "/v1/pause/api/a", "")
		}, penstock.ErrPaused},
		"deleted and made anew": {func(p *penstock.Penstock) (int, string) {
			ask(t, p, "POST", "/v1/release/api", "")
			ask(t, p, "DELETE", "/v1/policies/api", "")
			return ask(t, p, "PUT", "/v1/policies/api",
				`{"algorithm":"leaking_bucket","outflow":"100/s","capacity":100}`)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := paced("api", 100, 100)
			api.Concurrency = 1
			p := open(t, penstock.Options{Policies: []policy.Policy{api}})
			run(t, p)
			call := penstock.Call{Policy: "api", Key: "a", Wait: permits.MaxWait}
			const waiters = 3
			heard := make(chan error, waiters)
			for range waiters + 1 {
				go func() {
					_, err := p.Acquire(t.Context(), call)
					heard <- err
				}()
			}
			if err := waittest.Receive(t, heard); err != nil {
				t.Fatal(err)
			}
			waiting(t, p, "api", "a", waiters)
			if status, answer := x.change(p); status >= 300 {
				t.Fatal(status, answer)
			}
			for range waiters {
				err := waittest.Receive(t, heard)
				meanwhile := x.want == nil && errors.Is(err, penstock.ErrUnknownPolicy)
				if !errors.Is(err, x.want) && !meanwhile {
					t.Errorf("%v, want %v", err, x.want)
				}
			}
		})
	}
}

// TestCallersOfAProcessThatStopsAreToldSo stops the callers' process; they leave the bucket, which
// another process owns.
func TestCallersOfAProcessThatStopsAreToldSo(t *testing.T) {
	api := paced("api", 100, 100)
	api.Concurrency = 1
	owner := open(t, penstock.Options{Policies: []policy.Policy{api},
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}})
	run(t, owner)
	if _, err := owner.Acquire(t.Context(), penstock.Call{Policy: "api", Key: "a"}); err != nil {
		t.Fatal(err)
	}
	front := open(t, penstock.Options{URL: owner.NATSURL(), DrainPolicies: []string{}})
	stop := run(t, front)
	server := httptest.NewServer(front.Handler())
	defer server.Close()
	answers := make(chan string, 2)
	go func() {
		_, err := front.Acquire(t.Context(),
			penstock.Call{Policy: "api", Key: "a", Wait: permits.MaxWait})
		answers <- fmt.Sprint(err)
	}()
	go func() {
		answer, err := http.Post(server.URL+"/v1/permits/api/a?wait=5m", "", nil)
		if err != nil {
			answers <- err.Error()
			return
		}
		defer answer.Body.Close()
		var body bytes.Buffer
		_, _ = body.ReadFrom(answer.Body)
		answers <- answer.Status + " " + body.String()
	}()
	waiting(t, owner, "api", "a", 2)
	if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for range 2 {
		if a := waittest.Receive(t, answers); !strings.Contains(a, "stopping") {
			t.Error(a)
		}
	}
	eventually(t, "nobody waits", func() bool {
		_, state := ask(t, owner, "GET", "/v1/buckets/api/a", "")
		return !strings.Contains(state, `"calls"`)
	})
}

// callsBench runs a Penstock with one policy for calls, and one permit of key "a" in use.
func callsBench(b *testing.B, concurrency int) *penstock.Penstock {
	p, err := penstock.Open(b.Context(), penstock.Options{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Policies: []policy.Policy{{Name: "api",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 5000, Burst: 1000,
				Outflow: penstock.MustRate("1000000/s")}, Concurrency: concurrency}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.Cleanup(func() {
		stop()
		p.Close()
	})
	go p.Run(ctx)
	<-p.Ready()
	if _, err := p.Acquire(b.Context(), penstock.Call{Policy: "api", Key: "a"}); err != nil {
		b.Fatal(err)
	}
	return p
}

// BenchmarkPermits measures calls per second without a limiting rate: callers, server and drainer
// are one process.
func BenchmarkPermits(b *testing.B) {
	p := callsBench(b, 0)
	before := processorTime(b)
	b.ResetTimer()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			permit, err := p.Acquire(b.Context(), penstock.Call{Policy: "api", Key: "a"})
			if err != nil {
				b.Error(err)
				return
			}
			permit.Settle(permits.Result{Status: permits.Done})
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "permits/s")
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/permit")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWaitingCalls measures the memory of a waiting call on both sides.
func BenchmarkWaitingCalls(b *testing.B) {
	const calls = 5000
	p := callsBench(b, 1)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := memory()
	ctx, cancel := context.WithCancel(b.Context())
	var wait sync.WaitGroup
	for range calls {
		wait.Go(func() {
			_, _ = p.Acquire(ctx, penstock.Call{Policy: "api", Key: "a", Wait: permits.MaxWait})
		})
	}
	for waits := false; !waits; {
		r := httptest.NewRequest("GET", "http://localhost/v1/buckets/api/a", nil)
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		waits = strings.Contains(w.Body.String(), `"calls":5000`)
	}
	b.ReportMetric(float64(memory()-before)/calls, "B/call")
	cancel()
	wait.Wait()
}
