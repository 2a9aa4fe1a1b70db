package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func bodyOf(bytes int) func(*job.Arrived) {
	return func(a *job.Arrived) { a.Size, a.Lean, a.Body = bytes, true, nil }
}

func (b *valveBench) load() (n int) {
	fetches := b.out.Fetches
	b.out.Fetches = nil
	for _, r := range fetches {
		b.p.Fetched(Text{Ref: r, Body: make([]byte, b.p.jobs[r.Seq].Size)}, b.now)
	}
	return len(fetches)
}

func (b *valveBench) bodies() (bytes int64) {
	for _, j := range b.p.jobs {
		if j.stage == stageWaiting && (j.fetching || j.Size > leanSize && j.Body != nil) {
			bytes += int64(j.Size)
		}
	}
	return bytes
}

func TestBodiesAreReadWithinABudget(t *testing.T) {
	const keys = 1000
	for name, p := range map[string]int{"one worker": 1, "many": 500} {
		t.Run(name, func(t *testing.T) {
			policy := leaky("api", "10/s")
			policy.Workers = p
			b := newValveBench(t, policy)
			for i := range keys {
				b.arrive(fmt.Sprintf("k%d", i), bodyOf(1<<20))
				b.arrive(fmt.Sprintf("k%d", i), bodyOf(1<<20))
			}
			started := map[queue.Key]int{}
			for turn := 0; len(b.p.jobs) > 0; turn++ {
				if turn > 100*keys {
					t.Fatalf("%d jobs are left", len(b.p.jobs))
				}
				b.load()
				for _, r := range b.start() {
					if len(r.Body) != 1<<20 {
						t.Fatalf("job %d starts with a body of %d bytes", r.Seq, len(r.Body))
					}
					started[r.Key]++
					if n := started[r.Key]; n == 2 && len(started) < keys {
						t.Errorf("key %s starts a second job before others have started one", r.Key)
					}
					b.done(r)
				}
				if held := b.bodies(); held > mostBodies+1<<20 || held != b.v.texts.bytes {
					t.Fatalf("%d bytes of bodies are held, %d counted", held, b.v.texts.bytes)
				}
				b.now = b.now.Add(ms)
			}
			if b.v.texts.bytes != 0 {
				t.Errorf("%d bytes are counted of no job", b.v.texts.bytes)
			}
		})
	}
}

func TestBodiesOfBucketsThatDoNotStartAreLetGo(t *testing.T) {
	p := leaky("api", "10/s")
	p.Workers = 1000
	b := newValveBench(t, p)
	for i := range 100 {
		b.arrive(fmt.Sprintf("k%d", i), bodyOf(1<<20))
	}
	throttled := 0
	for range 50 {
		b.load()
		for _, r := range b.start() {
			throttled++
			b.end(r, record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: time.Hour,
				Error: "429"})
		}
	}
	if held := b.bodies(); throttled != 100 || held != 0 || b.v.texts.bytes != 0 {
		t.Errorf("%d jobs wait for an hour, with %d bytes of bodies, %d counted", throttled, held,
			b.v.texts.bytes)
	}
	b.at(time.Hour + second)
	ran := 0
	for range 50 {
		b.load()
		for _, r := range b.start() {
			ran++
			b.done(r)
		}
		b.now = b.now.Add(100 * ms)
	}
	if ran != 100 {
		t.Errorf("%d of 100 ran an hour later", ran)
	}
}

func TestBodiesOfHangingKeysDelayNoOthers(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Workers = 400
	b := newValveBench(t, p)
	for i := range 100 {
		for range 100 {
			b.arrive(fmt.Sprintf("hangs%d", i), bodyOf(1<<20))
		}
	}
	for range 1000 {
		b.load()
		b.start()
		b.now = b.now.Add(ms)
	}
	if b.v.Crew.Free() == 0 || b.v.texts.bytes < mostBodies {
		t.Fatalf("%d workers are free, %d bytes of bodies are held", b.v.Crew.Free(),
			b.v.texts.bytes)
	}
	b.arrive("other", bodyOf(1<<20))
	ran := false
	for range 10 {
		b.load()
		for _, r := range b.start() {
			ran = ran || r.Key == "other"
		}
		b.now = b.now.Add(ms)
	}
	if !ran {
		t.Error("a key whose target is well does not start")
	}
	b.p.Drop()
	if b.v.texts.bytes != 0 {
		t.Errorf("%d bytes are counted of a partition that is lost", b.v.texts.bytes)
	}
}
