package valve

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// limitsBench are 100,000 keys of a policy: with an outflow, or with three limits.
type limitsBench struct {
	v    *Valve
	part *Part
	keys []job.Key
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

func newLimitsBench(p policy.Policy) *limitsBench {
	p = p.WithDefaults()
	p.Workers = 1 << 20
	l := &limitsBench{now: origin}
	l.v = New(p, false, "self", func() float64 { return 0.5 }, wallOfTests, &Actions{})
	l.v.Local = true
	l.part = l.v.Own(handle.Partition{Policy: p.Name}, 1)
	l.v.Live(l.part, origin)
	for i := range benchedKeys {
		l.keys = append(l.keys, job.Key(fmt.Sprintf("key-%d", i)))
	}
	return l
}

// pass is a job's way through the valve, and a checkpoint of them now and then.
func (l *limitsBench) pass(body []byte) {
	l.seq++
	l.now = l.now.Add(2 * time.Microsecond)
	a := job.Arrived{Seq: l.seq, Key: l.keys[l.seq%benchedKeys], Stored: originWall, Cost: 1,
		Costs: map[string]int64{"tokens": 100}, Size: len(body), Body: body}
	l.v.arrive(l.part, &a, l.now, originWall)
	l.v.Advance(l.now, pace.Never)
	for _, r := range l.v.out.Starts {
		r.Decide(func() (fence, now pace.Instant) { return pace.Never, max(l.now, r.Due) }, nil)
		l.v.Finished(r.Number, record.Outcome{Seq: r.Seq, Kind: record.OutcomeDone}, l.now)
		l.v.Confirmed(l.part, r.Seq, l.now)
	}
	l.v.out.Reset()
	if l.seq%1000 == 0 {
		l.part.unnoted.gathered()
		l.part.Noted(true)
	}
}

// BenchmarkLimits measures 100,000 keys with three limits each, beside as many with an outflow:
// what a start costs, what is kept of a key that has started a job, and what a handover takes.
func BenchmarkLimits(b *testing.B) {
	outflow := leaky("api", "1000/s")
	for name, p := range map[string]policy.Policy{"outflow": outflow, "three": threeLimits()} {
		b.Run("starts/"+name, func(b *testing.B) {
			l, body := newLimitsBench(p), make([]byte, 128)
			for b.Loop() {
				l.pass(body)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
		})
		b.Run("memory/"+name, func(b *testing.B) {
			for b.Loop() {
				l := newLimitsBench(p)
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				for range benchedKeys {
					l.pass(nil)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(l.part.Buckets()),
					"B/key")
				b.ReportMetric(float64(l.part.Buckets()), "keys")
				runtime.KeepAlive(l)
			}
		})
		b.Run("handover/"+name, func(b *testing.B) {
			l := newLimitsBench(p)
			for range benchedKeys {
				l.pass(nil)
			}
			for b.Loop() {
				h := l.v.Handover(l.part, l.now, 0)
				h.Fit(1 << 30)
				data := record.Encode(record.Owner{V: record.Version, Handover: h})
				var r record.Owner
				if err := record.Decode(data, &r); err != nil {
					b.Fatal(err)
				}
				next := newLimitsBench(p)
				next.v.Opened(next.part, originWall, 0, &Inheritance{Handover: r.Handover,
					Elapsed: time.Millisecond, Age: time.Millisecond}, next.now)
				b.ReportMetric(float64(len(data))/float64(l.part.Buckets()), "B/key")
				b.ReportMetric(float64(len(r.Clocks)), "keys")
			}
		})
	}
}
