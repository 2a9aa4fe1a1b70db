package valve

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

type limitsBench struct {
	v    *Valve
	part *Part
	keys []queue.Key
	seq  uint64
	now  pace.Instant
}

const benchedKeys = 100_000

func threeLimits() policy.Policy {
	p := leaky("api", "1000/s")
	window := policy.Duration(time.Hour)
	p.Limits = policy.Limits{
		{Name: "requests", Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 100_000,
			Refill: algorithms.Rate{Count: 1000, Per: time.Second}}},
		{Name: "tokens", Cost: "tokens", Rule: policy.Rule{Algorithm: policy.SlidingCounter,
			Limit: 100_000_000, Window: window}},
		{Name: "daily", Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 1_000_000,
			Window: 24 * window, Zone: "Europe/Berlin"}}}
	return p
}

// fifty is a limit of 50 requests a minute for each key.
func fifty(from policy.CountFrom) policy.Policy {
	p := leaky("api", "1000/s")
	p.Limits = policy.Limits{{Name: "api", CountFrom: from, Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 50, Window: policy.Duration(time.Minute)}}}
	return p
}

func newLimitsBench(p policy.Policy) *limitsBench {
	l := ownLimitsBench(p)
	l.part.GoLive(origin)
	return l
}

// ownLimitsBench owns its partition, without starts. Its windows began earlier: at first no job
// starts in one, and then a burst keeps maps large.
func ownLimitsBench(p policy.Policy) *limitsBench {
	p = p.WithDefaults()
	p.Workers = 1 << 20
	l := &limitsBench{now: origin.Add(time.Minute)}
	l.v = New(p, false, "self", func() float64 { return 0.5 }, wallOfTests, &Actions{})
	l.v.Crew.Local = true
	l.part = l.v.Own(handle.Partition{Policy: p.Name}, 1)
	for i := range benchedKeys {
		l.keys = append(l.keys, queue.Key(fmt.Sprintf("key-%d", i)))
	}
	return l
}

func (l *limitsBench) arrive(body []byte) {
	l.seq++
	l.now = l.now.Add(2 * time.Microsecond)
	a := job.Arrived{Seq: l.seq, Key: l.keys[l.seq%benchedKeys], Stored: originWall, Cost: 1,
		Costs: map[string]int64{"tokens": 100}, Size: len(body), Body: body}
	l.part.arrive(&a, l.now)
}

func (l *limitsBench) pass(body []byte) {
	l.arrive(body)
	l.v.Advance(l.now, pace.Never)
	for _, r := range l.v.out.Starts {
		r.Decide(func() (fence, now pace.Instant) { return pace.Never, max(l.now, r.Due) }, nil)
		if l.v.Policy.CountsArrivals() {
			l.v.Answered(r.Number, l.now, l.now)
		}
		l.v.Finished(r.Number, record.Outcome{Seq: r.Seq, Kind: record.OutcomeDone}, l.now)
		l.part.Confirmed(r.Seq, l.now)
	}
	l.v.out.Reset()
	if l.seq%1000 == 0 {
		l.checkpoint()
	}
}

func (l *limitsBench) checkpoint() {
	begin(l.part)
	l.part.Checkpoints.Store()
}

func (l *limitsBench) record() []byte {
	h := l.part.Handover(l.now)
	h.Fit(1 << 30)
	return record.Encode(record.Owner{V: record.Version, Handover: h})
}

func (l *limitsBench) inherit(b *testing.B, data []byte) (keys int) {
	var r record.Owner
	if err := record.Decode(data, &r); err != nil {
		b.Fatal(err)
	}
	l.part.Opened(originWall, 0, &inheritance.State{Handover: r.Handover, Elapsed: time.Millisecond,
		Age: time.Millisecond}, l.now)
	return len(r.Clocks)
}

// BenchmarkLimits measures 100,000 keys with three limits each against an outflow: a start, the
// memory of a key that has started a job and of one with a waiting job, and its bytes in a record,
// also with a window full of starts, a handover, and the time from a successor's reading of the
// record to each key's next start.
func BenchmarkLimits(b *testing.B) {
	outflow := leaky("api", "1000/s")
	for name, p := range map[string]policy.Policy{"outflow": outflow, "three": threeLimits(),
		"50-from-start":  fifty(policy.CountFromStart),
		"50-from-answer": fifty(policy.CountFromAnswer)} {
		b.Run("starts/"+name, func(b *testing.B) {
			l, body := newLimitsBench(p), make([]byte, 128)
			for b.Loop() {
				l.pass(body)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
		})
		b.Run("memory/"+name, func(b *testing.B) { benchLimitsMemory(b, p, 1) })
		if len(p.Limits) == 1 {
			b.Run("filled/"+name, func(b *testing.B) { benchLimitsMemory(b, p, 50) })
		}
		b.Run("handover/"+name, func(b *testing.B) {
			l := newLimitsBench(p)
			for range benchedKeys {
				l.pass(nil)
			}
			for b.Loop() {
				data := l.record()
				keys := newLimitsBench(p).inherit(b, data)
				b.ReportMetric(float64(len(data))/float64(l.part.Buckets()), "B/key")
				b.ReportMetric(float64(keys), "keys")
			}
		})
		b.Run("takeover/"+name, func(b *testing.B) { benchLimitsTakeover(b, p) })
	}
}

func benchLimitsMemory(b *testing.B, p policy.Policy, startsPerKey int) {
	for b.Loop() {
		l := newLimitsBench(p)
		var stats runtime.MemStats
		heap := func() uint64 {
			runtime.GC()
			runtime.ReadMemStats(&stats)
			return stats.HeapAlloc
		}
		before := heap()
		for range startsPerKey * benchedKeys {
			l.pass(nil)
		}
		perKey := func() float64 { return float64(heap()-before) / float64(l.part.Buckets()) }
		b.ReportMetric(perKey(), "B/idle-key")
		b.ReportMetric(float64(l.part.Buckets()), "idle-keys")
		for range benchedKeys {
			l.arrive(nil)
		}
		b.ReportMetric(perKey(), "B/active-key")
		b.ReportMetric(float64(len(l.record()))/float64(l.part.Buckets()), "B/key-in-record")
		runtime.KeepAlive(l)
	}
}

func benchLimitsTakeover(b *testing.B, p policy.Policy) {
	l := newLimitsBench(p)
	for range benchedKeys {
		l.pass(nil)
	}
	data, inherited := l.record(), time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		next := ownLimitsBench(p)
		next.now, next.seq = l.now, l.seq
		runtime.GC()
		b.StartTimer()
		began := time.Now()
		next.inherit(b, data)
		inherited += time.Since(began)
		for range benchedKeys {
			next.arrive(nil)
		}
		next.part.GoLive(next.now)
		next.checkpoint() // jobs under limits wait for it
		for ; len(next.v.out.Starts) < benchedKeys; next.v.Advance(next.now, pace.Never) {
			if next.now = next.now.Add(time.Millisecond); next.now.Since(l.now) > time.Second {
				b.Fatalf("only %d keys have started a job", len(next.v.out.Starts))
			}
		}
	}
	perOp := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
	b.ReportMetric(perOp(inherited), "ms-inherited")
	b.ReportMetric(perOp(b.Elapsed()), "ms-all-started")
}
