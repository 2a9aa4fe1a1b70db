package valve

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

func (b *valveBench) deepest(offset, limit int) (states []job.BucketState, total int) {
	return b.list(job.ByDepth, offset, limit)
}

func (b *valveBench) list(by string, offset, limit int) (states []job.BucketState, total int) {
	l := b.view().listBuckets(b.p, by, offset, limit)
	for !b.foreseen(b.now) || !l.find() {
	}
	for !l.tell(b.now) {
	}
	return l.states, l.total
}

func crowd(t *testing.T, buckets int) *valveBench {
	b := newValveBench(t, total("1000/s"))
	random := rand.New(rand.NewPCG(uint64(buckets), 1))
	for i := range buckets {
		key := fmt.Sprintf("tenant.%06d", i)
		if weight := 1 + random.Int64N(4); weight > 1 && i%3 == 0 {
			b.v.SetOverride(queue.Key(key), inforce.Override{Weight: &weight}, b.now)
		}
		for range 1 + random.IntN(6) {
			b.arrive(key, cost(1+random.Int64N(3)))
		}
	}
	return b
}

// A forecast exceeds the walk's result by at most a job of each other bucket.
func TestAForecastIsNearAWalk(t *testing.T) {
	b := crowd(t, 3*mostExact)
	b.until(second, b.done)
	if b.view().expectBucket(b.p.list.All()[0], 0, oneSlot) != pace.Never {
		t.Fatal("something is told before there is a forecast")
	}
	pieces := 0
	for !b.foreseen(b.now) {
		pieces++
	}
	if want := b.p.list.Len() / walkPiece; pieces < want-1 || pieces > want+1 {
		t.Errorf("made in %d pieces, want %d", pieces, want)
	}
	for i := 0; i < b.p.list.Len(); i += 7 {
		asked := b.p.list.All()[i]
		for _, slots := range []int64{0, 1, asked.queue.Waiting(), 40} {
			turn := max(asked.turns, b.v.turns.Now) + float64(slots)/float64(asked.weight)
			told, _, known := b.view().slotsOfOthers(asked, slots)
			var exact int64
			for _, other := range b.p.list.All() {
				if other != asked {
					exact += other.waits().Until(turn, b.v.turns.Now)
				}
			}
			if off := float64(told - exact); !known || off < -0.02*float64(exact)-2 ||
				off > 0.02*float64(exact)+2*float64(b.p.list.Len()) {
				t.Fatalf("bucket %d, %d slots: %d slots of others are told, a walk finds %d", i,
					slots, told, exact)
			}
		}
	}
}

func TestAForecastCountsTheAskingBucketOnce(t *testing.T) {
	b := newValveBench(t, total("1000/s"))
	for i := range mostExact {
		b.arrive(fmt.Sprint("other-", i))
	}
	for range 20_000 {
		b.arrive("asked")
	}
	for !b.foreseen(b.now) {
	}
	asked := b.p.buckets["asked"]
	told := b.view().expectBucket(asked, asked.queue.Waiting(), oneSlot).Since(b.now)
	if told < 20_900*ms || told > 22_100*ms {
		t.Errorf("told %v, want those of 20,000 jobs and 1000 others at 1000/s", told)
	}
}

func TestAForecastComesTrue(t *testing.T) {
	b := crowd(t, 2*mostExact)
	for !b.foreseen(b.now) {
	}
	told := map[uint64]time.Duration{}
	for seq := range b.p.jobs {
		wait, known := b.view().expect(b.p, seq)
		if !known {
			t.Fatalf("job %d: not known", seq)
		}
		told[seq] = wait
	}
	off, n := 0., 0.
	b.until(time.Minute, func(r Run) {
		actual := b.now.Since(origin)
		if early := actual - told[r.Seq]; early > max(second, actual/10) {
			t.Errorf("job %d was told %v and started after %v", r.Seq, told[r.Seq], actual)
		}
		off, n = off+math.Abs((told[r.Seq]-actual).Seconds()), n+1
		b.done(r)
	})
	if mean := off / n; mean > 2 {
		t.Errorf("starts are told wrong by %.2f s on average, of some 15 s", mean)
	}
}

func TestAListLooksAtEachBucketOnce(t *testing.T) {
	const buckets = 5000
	b := newValveBench(t, total("1000/s"))
	for i := range buckets {
		for range 1 + i%7 {
			b.arrive(fmt.Sprintf("tenant.%06d", i))
		}
	}
	pieces := 0
	l := b.view().listBuckets(b.p, job.ByDepth, 100, 50)
	for !b.foreseen(b.now) || !l.find() {
		pieces++
	}
	for !l.tell(b.now) {
		pieces++
	}
	if most := 2*buckets/walkPiece + 50/expectPiece + 2; pieces > most {
		t.Errorf("%d pieces of work, want at most %d", pieces, most)
	}
	if l.total != buckets || len(l.states) != 50 {
		t.Fatalf("%d listed of %d", len(l.states), l.total)
	}
	for i, s := range l.states {
		if want := queue.Key(fmt.Sprintf("tenant.%06d", 6+7*(100+i))); s.Key != want ||
			s.Depth != 7 || s.ETAMS == nil {
			t.Errorf("%d: %+v, want %s", i, s, want)
		}
	}
	for range 10 {
		if !b.foreseen(b.now.Add(forecastFor / 2)) {
			t.Fatal("another forecast is made at once")
		}
	}
	if b.foreseen(b.now.Add(forecastFor)) {
		t.Error("an old forecast is used")
	}
}

func TestAnAbandonedForecastStartsOver(t *testing.T) {
	b := crowd(t, 2*mostExact)
	if b.foreseen(b.now) {
		t.Fatal("made in one piece")
	}
	b.now = b.now.Add(time.Minute)
	for !b.foreseen(b.now) {
	}
	if b.view().expectBucket(b.p.list.All()[0], 0, oneSlot) == pace.Never {
		t.Error("nothing is told, for the forecast is too old")
	}
	if b.p.list.Walks() != 0 {
		t.Errorf("%d walks have not ended", b.p.list.Walks())
	}
}

// A new job is behind all jobs of its priority and above; its start is unknown if no job waits, or
// if unpredictable.
func TestTheForecastOfANewJob(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	if at := b.view().tail(b.p, job.Question{Key: "a", Priority: 0}); at != nil {
		t.Errorf("of a key that nobody has seen it is %d", *at)
	}
	for i := range 21 {
		b.arrive("a", func(a *job.Arrived) { a.Priority = i % 2 })
	}
	b.start()
	for priority, slots := range map[int]int64{0: 20, 1: 9, 2: 0} {
		asking := job.Question{Key: "a", Priority: priority}
		if at := b.view().tail(b.p, asking); at == nil || *at != 100*(slots+1) {
			t.Errorf("of priority %d it is %v, want %d", priority, at, 100*(slots+1))
		}
	}
	b.v.Change(b.v.Policy, true, b.now)
	if at := b.view().tail(b.p, job.Question{Key: "a", Priority: 0}); at != nil {
		t.Errorf("while it is paused it is %d", *at)
	}
}
