package valve

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// look asks a valve all that a view answers.
func look(b *valveBench) {
	w := b.view()
	for _, key := range []queue.Key{"a", "b", "nobody"} {
		w.bucketState(b.p, key)
		w.room(b.p, key)
		w.tail(b.p, job.Question{Key: key, Priority: 3})
	}
	for seq := range b.seq + 2 {
		w.jobState(b.p, seq)
		w.expect(b.p, seq)
	}
	for _, by := range []string{job.ByDepth, job.ByAge, job.ByLate} {
		l := w.listBuckets(b.p, by, 0, 10)
		for !l.find() {
		}
		for !l.tell(b.now) {
		}
	}
	w.LeftOfAll()
	w.OpenOfKeys()
}

// A valve that is asked all the time starts the same jobs at the same instants as one that nobody
// asks, and hands the same state over.
func TestAViewChangesNothing(t *testing.T) {
	for seed := range uint64(60) {
		draw := rand.New(rand.NewPCG(seed, 47))
		p := costly("", policy.Rule{})
		p.Limits = drawnLimits(draw)
		run := func(ask func(*valveBench)) (told []string) {
			rng := rand.New(rand.NewPCG(seed, 48))
			b := newValveBench(t, p)
			for step := range 40 {
				b.at(time.Duration(step) * 250 * time.Millisecond)
				if key := []string{"a", "b"}[rng.IntN(2)]; step < 20 {
					b.arrive(key, tokens(1+rng.Int64N(20)), priority(rng.IntN(5)))
				}
				ask(b)
				for _, r := range b.start() {
					told = append(told, fmt.Sprint(b.now.Since(origin), " ", r.Seq, " ", r.Due))
					ask(b)
					o := record.Outcome{Kind: record.OutcomeDone}
					if rng.IntN(4) == 0 {
						o = record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: second}
					}
					b.end(r, o)
				}
				ask(b)
				told = append(told, fmt.Sprint(b.v.Wake(true)))
			}
			return append(told, fmt.Sprintf("%+v", b.p.Handover(b.now)))
		}
		asked, quiet := run(look), run(func(*valveBench) {})
		if !reflect.DeepEqual(asked, quiet) {
			for i := range min(len(asked), len(quiet)) {
				if asked[i] != quiet[i] {
					t.Fatalf("seed %d, line %d: asked %s, else %s", seed, i, asked[i], quiet[i])
				}
			}
			t.Fatalf("seed %d: %d lines when asked, else %d", seed, len(asked), len(quiet))
		}
	}
}

func TestAViewIsOfItsInstant(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	b.arrive("a")
	b.arrive("a")
	b.start()
	before := b.view()
	later := b.v.View(b.now.Add(40 * time.Millisecond))
	for _, c := range []struct {
		w    View
		want time.Duration
	}{{before, 100 * time.Millisecond}, {later, 60 * time.Millisecond}} {
		if wait, known := c.w.expect(b.p, 2); !known || wait != c.want {
			t.Errorf("job 2 starts in %v, %v, want %v", wait, known, c.want)
		}
		by, until := c.w.held(b.p.buckets["a"])
		if by != job.BlockedByRate || until != b.now.Add(100*time.Millisecond) {
			t.Errorf("held by %s until %v", by, until.Since(origin))
		}
	}
	if at := before.expectBucket(b.p.buckets["a"], 0, oneSlot); at == pace.Never {
		t.Error("the bucket's next start is unpredictable")
	}
}
