package gates

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

type run struct{ runs, cleared bool }

func (r *run) Probing() bool { return r.runs }
func (r *run) Cleared()      { r.cleared = true }

var retry = policy.Retry{Backoff: policy.Duration(time.Second),
	MaxBackoff: policy.Duration(time.Hour)}

const second = pace.Instant(time.Second)

func fails(h *Health, t *Target, key queue.Key, began, now pace.Instant) (counts bool, o Turned) {
	f := Failure{Key: key, Run: &run{}, Began: began, First: true, Jobs: MostSuspectJobs}
	return h.Failed(t, f, retry, now)
}

func TestABucketsBreakerOpensAtDifferentJobsAndClosesByAProbe(t *testing.T) {
	h, of := NewHealth(func() float64 { return 0.5 }), &Target{}
	for i := range MostSuspectJobs {
		counts, opened := fails(&h, of, "a", 1, second)
		if !counts || opened.Bucket != (i == MostSuspectJobs-1) || opened.All {
			t.Fatalf("failure %d: counts %v, opened %+v", i, counts, opened)
		}
	}
	if counts, _ := fails(&h, of, "a", 1, second); counts || h.Broken != 1 {
		t.Errorf("an attempt counts: %v; %d are broken", counts, h.Broken)
	}
	if clears, _ := h.Succeeded(of, second); clears {
		t.Error("a run that began before the breaker opened closes it")
	}
	if clears, closed := h.Succeeded(of, second+1); !clears || !closed.Bucket || closed.All {
		t.Errorf("a probe clears %v, closes %+v", clears, closed)
	}
	if closed := h.Clear(of); !closed || h.Broken != 0 || !of.jobs[0].(*run).cleared {
		t.Errorf("closed %v, %d are broken, jobs %+v", closed, h.Broken, of.jobs)
	}
}

func TestBucketsInARowOpenTheBreakerOfAll(t *testing.T) {
	h := NewHealth(func() float64 { return 0.5 })
	targets := map[queue.Key]*Target{"a": {}, "b": {}, "c": {}}
	for _, key := range []queue.Key{"a", "b"} {
		fails(&h, targets[key], key, 1, second)
	}
	h.Succeeded(nil, 2)
	fails(&h, targets["a"], "a", 1, second)
	fails(&h, targets["b"], "b", 1, second)
	if _, opened := fails(&h, targets["c"], "c", 1, second); !opened.All {
		t.Fatal("the breaker of all is closed")
	}
	at, down := h.Down(nil)
	if !down || at <= second || h.OthersAnswer(targets["a"]) {
		t.Errorf("down %v, probed at %v", down, at)
	}
	if _, closed := h.Succeeded(nil, 2*second); !closed.All || h.Recovered() != second {
		t.Errorf("a probe closes %+v", closed)
	}
}

func TestAProbeIsWaitedForUnlessItWillNotReport(t *testing.T) {
	h := NewHealth(func() float64 { return 0.5 })
	of, probe := h.Inherit(3, 2*second, second), &run{runs: true}
	h.Started(of, probe, 2*second)
	if at, _ := h.Down(of); at != (2*second).Add(MostProbeWait) || !h.Probing(of) {
		t.Errorf("the next probe is at %v", at)
	}
	if n := h.ProbeSooner(of, second); n != 0 {
		t.Errorf("%d probes are due sooner while one runs", n)
	}
	probe.runs = false
	if at, _ := h.Down(of); at != 2*second || h.ProbeSooner(of, second) != 1 || of.At != second {
		t.Errorf("the next probe is at %v, and sooner at %v", at, of.At)
	}
	h.Forget(of)
	if h.Broken != 0 {
		t.Errorf("%d are broken", h.Broken)
	}
}
