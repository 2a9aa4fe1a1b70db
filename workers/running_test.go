package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// cutDrainer runs a drainer; cut closes its connection and waits for its end. The lease is long
// enough for a busy machine, because losing it counts as a crash, too.
func (b *bench) cutDrainer(handle Handler) (cut func()) {
	b.t.Helper()
	nc := b.connect()
	d, err := New(nc, Options{Lease: 4 * time.Second})
	if err != nil {
		b.t.Fatal(err)
	}
	d.Handle("api", handle)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	cut = sync.OnceFunc(func() {
		nc.Close()
		select {
		case err := <-done:
			if err == nil {
				b.t.Error("a drainer whose connection was closed says that all is well")
			}
		case <-time.After(deadline):
			b.t.Error("a drainer whose connection was closed goes on")
		}
		cancel()
	})
	b.t.Cleanup(cut)
	return cut
}

func TestPoisonJobCrashesThreeOwners(t *testing.T) {
	t.Parallel()
	p := leaky("api", "100/s")
	p.Partitions = 1
	b := newBench(t, p)
	b.publish("api", "poison", 0, 1)
	var calls atomic.Int32
	var before string
	for crash := range int32(valve.MostCrashes) {
		cut := b.cutDrainer(func(ctx context.Context, _ Job) error {
			calls.Add(1)
			<-ctx.Done()
			return ctx.Err()
		})
		b.until("the job runs", func() bool { return calls.Load() == crash+1 })
		b.until("that is noted", func() bool {
			var c record.Checkpoint
			if record.Decode([]byte(b.checkpoint("api.0")), &c) != nil || c.Owner == before ||
				len(c.Running) != 1 || c.Running[0].Holder != c.Owner {
				return false
			}
			before = c.Owner
			return true
		})
		cut()
	}
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.publish("api", "poison", 1, 1)
	b.empty("api")
	if got := b.deadLetter("api", "poison"); got != string(queue.ReasonCrashed) {
		t.Errorf("dead letter %q", got)
	}
	if got := ran.bodies("poison"); len(got) != 1 || got[0] != "1" {
		t.Errorf("ran %v, want only the job behind it", got)
	}
}

func (b *bench) checkpoint(share string) string {
	r, err := b.broker.Tables().Partitions.Read(b.t.Context(), share+record.CheckpointSuffix)
	if err != nil {
		return ""
	}
	return string(r.Value)
}

func TestAttemptsSurviveACrash(t *testing.T) {
	t.Parallel()
	p := leaky("api", "1000/s")
	p.Retry = policy.Retry{MaxAttempts: 4, Backoff: policy.Duration(ms),
		MaxBackoff: policy.Duration(ms)}
	b := newBench(t, p)
	b.publish("api", "a", 0, 1)
	var mu sync.Mutex
	var attempts []int
	note := func(job Job) int {
		mu.Lock()
		defer mu.Unlock()
		attempts = append(attempts, job.Attempt)
		return len(attempts)
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(attempts)
	}
	cut := b.cutDrainer(func(ctx context.Context, job Job) error {
		if note(job) <= 2 {
			return errors.New("no")
		}
		<-ctx.Done()
		return ctx.Err()
	})
	b.until("it failed twice and runs again", func() bool { return count() == 3 })
	cut()
	b.drain(Options{}, map[string]Handler{"api": func(_ context.Context, job Job) error {
		note(job)
		return errors.New("no")
	}})
	b.empty("api")
	if got := attempts[len(attempts)-2:]; got[0] != 3 || got[1] != 4 {
		t.Errorf("attempts %v; the crash must neither count nor forget any", attempts)
	}
	if got := b.deadLetter("api", "a"); got != string(queue.ReasonAttempts) {
		t.Errorf("dead letter %q", got)
	}
}

// TestAttemptsTimeOut times out a handler that returns its context's error, locally and remotely.
// The dead letter names the timeout, the policy's or the job's own.
func TestAttemptsTimeOut(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Timeout = policy.Duration(50 * ms)
	p.Retry = policy.Retry{MaxAttempts: 2, Backoff: policy.Duration(ms),
		MaxBackoff: policy.Duration(ms)}
	patient := p
	patient.Name, patient.Timeout = "patient", policy.Duration(time.Hour)
	patient.Retry.MaxAttempts = 9
	for name, run := range map[string]func(*bench, map[string]Handler){
		"here": func(b *bench, h map[string]Handler) { b.drain(Options{}, h) },
		"elsewhere": func(b *bench, h map[string]Handler) {
			b.lend(Options{}, h)
			b.valve(Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, p, patient)
			var calls atomic.Int32
			handle := func(ctx context.Context, _ Job) error {
				calls.Add(1)
				<-ctx.Done()
				return Unavailable(fmt.Errorf("call target: %w", ctx.Err()))
			}
			run(b, map[string]Handler{"api": handle, "patient": handle})
			b.publish("api", "a", 0, 1)
			b.send("patient", "a", "", job.HeaderTimeout, "50ms", job.HeaderMaxAttempts, "2")
			for _, policy := range []string{"api", "patient"} {
				b.empty(policy)
				letter := b.letter(policy, "a")
				reason := queue.Reason(letter.Get(jet.HeaderDeadReason))
				if reason != queue.ReasonAttempts {
					t.Errorf("%s: dead letter %q", policy, reason)
				}
				said := letter.Get(jet.HeaderDeadError)
				if said != "call target: no answer within 50ms, the timeout" {
					t.Errorf("%s: the dead letter says %q", policy, said)
				}
			}
			if calls.Load() != 4 {
				t.Errorf("%d calls, want two for each job", calls.Load())
			}
		})
	}
}

func TestGraceEndsWithoutAnAttempt(t *testing.T) {
	b := newBench(t, leaky("api", "1000/s"))
	b.publish("api", "a", 0, 1)
	runs := make(chan struct{})
	first := b.drain(Options{Grace: 100 * ms}, map[string]Handler{"api": func(ctx context.Context,
		_ Job) error {
		close(runs)
		<-ctx.Done()
		return ctx.Err()
	}})
	<-runs
	first()
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.empty("api")
	if all := ran.all(); len(all) != 1 || all[0].Attempt != 1 {
		t.Errorf("ran %+v", all)
	}
}

func TestHeadersThroughADrainer(t *testing.T) {
	p := leaky("api", "100/s")
	b := newBench(t, p)
	b.send("api", "deadline", "x", "Penstock-Deadline", "1ms")
	b.send("api", "malformed", "x", "Penstock-Cost", "none")
	b.send("api", "far", "x", "Penstock-Deadline", "9999-12-31T23:59:59Z")
	b.send("api", "later", "x", "Penstock-Not-Before", "300ms")
	b.send("api", "costly", "0", "Penstock-Cost", "30")
	b.send("api", "costly", "1")
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.empty("api")
	for key, want := range map[string]queue.Reason{"deadline": queue.ReasonDeadline,
		"malformed": queue.ReasonMalformed} {
		if got := b.deadLetter("api", key); got != string(want) {
			t.Errorf("%s: dead letter %q", key, got)
		}
	}
	var costly []Job
	for _, job := range ran.all() {
		switch job.Key {
		case "deadline", "malformed":
			t.Errorf("%s ran", job.Key)
		case "later":
			if wait := job.Started.Sub(job.Accepted); wait < 295*ms {
				t.Errorf("it started after %v", wait)
			}
		case "costly":
			costly = append(costly, job)
		}
	}
	if len(ran.bodies("far")) != 1 || len(costly) != 2 {
		t.Fatalf("ran %+v", ran.all())
	}
	// the first start may be late by the envelope's tolerance of 10 ms
	if gap := costly[1].Started.Sub(costly[0].Started); gap < 289*ms {
		t.Errorf("the job after one of cost 30 started %v later, want 300 ms at 100/s", gap)
	}
}

func TestLargeBodiesThroughADrainer(t *testing.T) {
	b := newBench(t, leaky("api", "200/s"))
	const jobs = 40
	body := func(i int) string { return strconv.Itoa(i) + strings.Repeat("x", 64<<10) }
	for i := range jobs {
		b.send("api", "a", body(i))
	}
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": func(ctx context.Context, job Job) error {
		if job.Attempt == 1 && bytes.HasPrefix(job.Body, []byte("7x")) {
			return errors.New("once more")
		}
		return ran.handle(ctx, job)
	}})
	b.empty("api")
	got := map[string]bool{}
	for _, body := range ran.bodies("a") {
		got[body] = true
	}
	for i := range jobs {
		if !got[body(i)] {
			t.Errorf("body %d did not arrive as it was", i)
		}
	}
}

func TestDeadLettersOfLargeBodies(t *testing.T) {
	b := newBench(t, leaky("api", "1/m"))
	want := strings.Repeat("y", 64<<10)
	b.send("api", "a", want, "Penstock-Deadline", "1ms")
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.empty("api")
	js, err := b.nc.JetStream(nats.MaxWait(deadline))
	if err != nil {
		t.Fatal(err)
	}
	m, err := js.GetLastMsg("PENSTOCK_DEAD_api", "penstock.dead.api.a")
	if err != nil || string(m.Data) != want {
		t.Errorf("its letter: %v", err)
	}
}

func TestRunLeavesNothingBehind(t *testing.T) {
	b := newBench(t, leaky("api", "1000/s"))
	var ran seen
	before := 0
	for round := range 3 {
		n := len(ran.all())
		b.publish("api", "a", 0, 10)
		if round%2 == 0 {
			stop := b.drain(Options{}, map[string]Handler{"api": ran.handle})
			b.until("jobs ran", func() bool { return len(ran.all()) >= n+10 })
			stop()
		} else {
			cut := b.cutDrainer(ran.handle)
			b.until("jobs ran", func() bool { return len(ran.all()) >= n+10 })
			cut()
		}
		if round == 0 {
			before = ours()
			continue
		}
		b.until("its goroutines have ended", func() bool { return ours() <= before })
	}
}

func ours() (n int) {
	stacks := make([]byte, 4<<20)
	for _, stack := range bytes.Split(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
		has := func(text string) bool { return bytes.Contains(stack, []byte(text)) }
		if has("penstock/queue.(*") || has("penstock/workers.(*Drainer)") ||
			has("penstock/workers.(*") && !has("_test.go") {
			n++
		}
	}
	return n
}
