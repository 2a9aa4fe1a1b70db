package workerstest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

func TestJobsStartAtTheirRate(t *testing.T) {
	kit := workerstest.New(t, workerstest.Policy("stripe", "50/s"))
	kit.Handle("stripe", nil)
	kit.Publish("stripe", "tenant 1", []byte("charge"), 60)
	for _, end := range kit.Wait("stripe", 60) {
		if end.Type != queue.EventDone {
			t.Errorf("job %s: %s", end.Job, end.Type)
		}
	}
	kit.AssertRate("stripe", "tenant 1")
	if jobs := kit.Jobs("stripe", "tenant 1"); len(jobs) != 60 || string(jobs[0].Body) != "charge" {
		t.Errorf("%d jobs", len(jobs))
	}
}

type judge struct {
	testing.TB
	errors int
	fatal  string
}

func (j *judge) Errorf(format string, args ...any) {
	j.errors++
	j.Logf(format, args...)
}

func (j *judge) Fatalf(format string, args ...any) {
	j.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestAnUnknownPolicyIsNamed(t *testing.T) {
	judge := &judge{TB: t}
	kit := workerstest.New(judge, workerstest.Policy("mail", "100/s"))
	err := kit.TryPublish("male", "ann", nil)
	if err == nil || !strings.Contains(err.Error(), `no policy "male"`) {
		t.Errorf("publish: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		kit.Wait("male", 1)
	}()
	if <-done; !strings.Contains(judge.fatal, `no policy "male"`) {
		t.Errorf("%q", judge.fatal)
	}
}

func TestAssertRateOfATotal(t *testing.T) {
	p := workerstest.Policy("mail", "100/s")
	p.Outflow, p.OutflowTotal = p.OutflowTotal, p.Outflow
	judge := &judge{TB: t}
	kit := workerstest.New(judge, p)
	kit.Handle("mail", nil)
	for _, key := range []string{"a", "b", ""} {
		kit.Publish("mail", key, nil, 20)
	}
	kit.Wait("mail", 60)
	if n := len(kit.Jobs("mail", "")); n != 60 {
		t.Errorf("%d jobs of all buckets", n)
	}
	slower := func(total, own string) {
		t.Helper()
		p := p
		p.OutflowTotal = workerstest.Policy("x", total).Outflow
		if own != "" {
			p.Outflow = workerstest.Policy("x", own).Outflow
		}
		kit.SetPolicy(p)
	}
	for _, c := range []struct {
		total, own, key string
		errors          int
	}{
		{"100/s", "", "a", 0}, {"100/s", "", "", 0}, {"10/s", "", "a", 1}, {"10/s", "", "", 1},
		{"100/s", "1000/s", "a", 0}, {"100/s", "5/s", "a", 1}, {"100/s", "5/s", "", 3},
		{"10/s", "5/s", "b", 2},
	} {
		slower(c.total, c.own)
		judge.errors = 0
		if kit.AssertRate("mail", c.key); judge.errors != c.errors {
			t.Errorf("at %s in all and %q each, key %q: %d complaints, want %d", c.total, c.own,
				c.key, judge.errors, c.errors)
		}
	}
}

func TestAssertRateJudgesLimits(t *testing.T) {
	limited := func(limit int64, key, cost string) policy.Policy {
		p := workerstest.Policy("llm", "1000/s")
		p.Limits = policy.Limits{{Name: "budget", Key: key, Cost: cost, Rule: policy.Rule{
			Algorithm: policy.SlidingLog, Limit: limit, Window: policy.Duration(time.Minute)}}}
		return p
	}
	judge := &judge{TB: t}
	kit := workerstest.New(judge, limited(60, "", "tokens"))
	kit.Handle("llm", func(_ context.Context, j workers.Job) error {
		j.Settle("tokens", 2)
		return nil
	})
	for _, key := range []string{"a", "b"} {
		kit.Publish("llm", key, nil, 10)
	}
	kit.Wait("llm", 20)
	for _, c := range []struct {
		limit     int64
		key, cost string
		of        string
		errors    int
	}{
		{20, "", "tokens", "", 0}, {18, "", "tokens", "a", 1}, {18, "", "tokens", "", 2},
		{10, "", "", "", 0}, {9, "", "", "b", 1},
		{40, "global", "tokens", "a", 0}, {30, "global", "tokens", "a", 1},
	} {
		kit.SetPolicy(limited(c.limit, c.key, c.cost))
		judge.errors = 0
		if kit.AssertRate("llm", c.of); judge.errors != c.errors {
			t.Errorf("%+v: %d complaints", c, judge.errors)
		}
	}
}

// Without an outflow the limits alone pace a policy.
func TestAssertRateNeedsAPacedPolicy(t *testing.T) {
	judge := &judge{TB: t}
	p := workerstest.Policy("api", "1/s")
	p.Outflow = workerstest.Policy("api", "1/s").OutflowTotal
	p.Limits = policy.Limits{{Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 100,
		Refill: workerstest.Policy("x", "100/s").Outflow}}}
	kit := workerstest.New(judge, p, policy.Policy{Name: "door", Rule: policy.Rule{
		Algorithm: policy.FixedWindow, Limit: 1, Window: policy.Duration(time.Minute)}})
	kit.Handle("api", nil)
	kit.Publish("api", "k", nil, 5)
	kit.Wait("api", 5)
	kit.AssertRate("api", "k")
	if judge.errors != 0 {
		t.Error("the limit was kept")
	}
	for _, name := range []string{"door", "apy"} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			kit.AssertRate(name, "")
		}()
		if <-done; !strings.Contains(judge.fatal, `no policy "`+name+`" that paces its jobs`) {
			t.Errorf("%s: %q", name, judge.fatal)
		}
	}
}

func TestDeadLettersAreOutcomes(t *testing.T) {
	p := workerstest.Policy("api", "1000/s")
	p.Retry = policy.Retry{MaxAttempts: 2, Backoff: policy.Duration(time.Millisecond)}
	kit := workerstest.New(t, p)
	kit.Handle("api", func(context.Context, workers.Job) error { return errors.New("no") })
	kit.Publish("api", "k", nil, 1)
	end := kit.Wait("api", 1)[0]
	if end.Type != queue.EventDead || end.Reason != "attempts" || end.Error != "no" ||
		end.Attempt != 2 {
		t.Errorf("%+v", end)
	}
}

func TestFullBucketRefuses(t *testing.T) {
	p := workerstest.Policy("slow", "1/h")
	p.Capacity = 2
	kit := workerstest.New(t, p)
	running := make(chan struct{})
	kit.Handle("slow", func(ctx context.Context, _ workers.Job) error {
		close(running)
		<-ctx.Done()
		return nil
	})
	kit.Publish("slow", "k", nil, 2)
	<-running
	if err := kit.TryPublish("slow", "k", nil); !errors.Is(err, jet.ErrFull) {
		t.Errorf("third job: %v", err)
	}
}

func TestCheckRateFindsTheClump(t *testing.T) {
	base := time.Unix(0, 0)
	var starts []time.Time
	for i := range 30 {
		starts = append(starts, base.Add(time.Duration(i)*100*time.Millisecond))
	}
	if err := workerstest.CheckRate(starts, 10, 1); err != nil {
		t.Error(err)
	}
	starts[11] = starts[10]
	starts[12] = starts[10]
	if workerstest.CheckRate(starts, 10, 1) == nil {
		t.Error("a clump of three passed")
	}
}

func TestAPolicyCanChangeWhileJobsArePublished(t *testing.T) {
	kit := workerstest.New(t, workerstest.Policy("mail", "1000/s"))
	kit.Handle("mail", nil)
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for range 5 {
			kit.SetPolicy(workerstest.Policy("mail", "2000/s"))
		}
	}()
	kit.Publish("mail", "k", nil, 20)
	kit.Wait("mail", 20)
	<-changed
}
