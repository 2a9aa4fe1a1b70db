package valve

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/calls"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

func bucketOf(p *Part, key queue.Key) *bucket { return newBucket(p, key, &limits{weight: 1}) }

func bareParts() (a, b *Part) {
	deep := keyqueue.NewStore[*heldJob](time.Second)
	return &Part{holding: holding{deep: deep}}, &Part{holding: holding{deep: deep}}
}

func TestABucketIsAtOnePlaceOfTheAgenda(t *testing.T) {
	p, _ := bareParts()
	a, b := &agenda{}, bucketOf(p, "a")
	heaps := func() [5]int {
		return [5]int{len(a.marked), len(a.sched), len(a.due), len(a.unread), len(a.callers)}
	}
	for _, c := range []struct {
		what  string
		place func(*bucket)
		want  [5]int
	}{
		{"it waits for an event", func(*bucket) {}, [5]int{}},
		{"it is scheduled", func(b *bucket) { a.schedule(b, 7) }, [5]int{0, 1}},
		{"it is due", func(b *bucket) { a.compete(b, 7, spotDue) }, [5]int{0, 0, 1}},
		{"its text is wanted", func(b *bucket) { a.compete(b, 7, spotUnread) }, [5]int{0, 0, 0, 1}},
		{"its call is due", func(b *bucket) { a.compete(b, 7, spotCaller) },
			[5]int{0, 0, 0, 0, 1}},
	} {
		a.mark(b)
		if got := heaps(); got != [5]int{1} {
			t.Errorf("marked before %s: %v", c.what, got)
		}
		if a.place(c.place); heaps() != c.want {
			t.Errorf("%s: %v, want %v", c.what, heaps(), c.want)
		}
	}
	if a.competing() != 1 || b.spot != spotCaller {
		t.Errorf("%d compete, want the one that was placed last", a.competing())
	}
}

func TestPlacingPlacesWhatItMarks(t *testing.T) {
	p, _ := bareParts()
	a, first, second := &agenda{}, bucketOf(p, "first"), bucketOf(p, "second")
	a.mark(first)
	var placed []queue.Key
	a.place(func(b *bucket) {
		if placed = append(placed, b.queue.Key); b == first {
			a.mark(second)
		}
	})
	if !slices.Equal(placed, []queue.Key{"first", "second"}) || len(a.marked) > 0 {
		t.Errorf("placed %v, and %d remain marked", placed, len(a.marked))
	}
}

func TestDueBucketsGoByTurnThenByTime(t *testing.T) {
	p, _ := bareParts()
	a := &agenda{}
	for _, c := range []struct {
		key   queue.Key
		turns float64
		at    pace.Instant
	}{{"late", 1, 30}, {"early", 1, 10}, {"owing", 2, 5}, {"middle", 1, 20}} {
		b := bucketOf(p, c.key)
		b.turns = c.turns
		a.compete(b, c.at, spotDue)
	}
	order := func(probes bool) (keys []queue.Key) {
		taken := map[*bucket]bool{}
		for {
			b := a.nextDue(probes, func(b *bucket) bool { return !taken[b] })
			if b == nil {
				return keys
			}
			taken[b] = true
			keys = append(keys, b.queue.Key)
		}
	}
	if got := order(false); !slices.Equal(got, []queue.Key{"early", "middle", "late", "owing"}) {
		t.Errorf("in turn: %v", got)
	}
	if got := order(true); !slices.Equal(got, []queue.Key{"owing", "early", "middle", "late"}) {
		t.Errorf("a probe is of the bucket that waited longest: %v", got)
	}
}

func TestACallStartsOnceItIsClaimed(t *testing.T) {
	p, _ := bareParts()
	p.calls = calls.New(&claimant.Set[*heldJob]{})
	a, b, due := &agenda{}, bucketOf(p, "a"), bucketOf(p, "due")
	k := p.calls.Add(&job.Claim{ID: "x"}, newJob(b), b.calls(), origin)
	p.calls.Take(k, claimant.Ask, pace.Never)
	b.callers.Choose(false, false)
	a.compete(b, 5, spotCaller)
	if a.caller(false) != nil {
		t.Error("a call starts that nobody claims")
	}
	p.calls.Take(k, claimant.Offer, pace.Never)
	p.calls.Take(k, claimant.Claim, pace.Never)
	a.compete(due, 1, spotDue)
	if a.caller(false) != b || a.caller(true) != nil {
		t.Error("an earlier due job goes first if, and only if, it finds a worker")
	}
}

func TestTheAgendaWakesForTheFirstOfAll(t *testing.T) {
	p, _ := bareParts()
	a, b := &agenda{}, bucketOf(p, "a")
	soon, later := newJob(b), newJob(b)
	soon.Seq, later.Seq = 1, 2
	a.lookAt(later, 5)
	a.lookAt(soon, 50)
	a.lookAt(later, 100)
	a.schedule(b, 20)
	if at := a.wake(true); at != 20 {
		t.Errorf("with starts: %v, want the bucket's 20", at)
	}
	if at := a.wake(false); at != 50 {
		t.Errorf("without starts: %v, want the job's 50", at)
	}
	if a.timedOut(49) != nil || a.timedOut(50) != soon || a.timedOut(99) != nil {
		t.Error("a job's time comes once, and not before")
	}
	a.lookAway(later)
	if a.come(19); len(a.marked) != 0 {
		t.Error("a bucket is marked before its time")
	}
	if a.come(20); len(a.marked) != 1 || a.wake(true) != pace.Never {
		t.Errorf("%d marked, and it wakes at %v", len(a.marked), a.wake(true))
	}
}

func TestAPartitionLeavesTheAgenda(t *testing.T) {
	mine, others := bareParts()
	a := &agenda{}
	for i, in := range []spot{spotSched, spotDue, spotUnread, spotCaller, spotChanged} {
		for _, p := range []*Part{mine, others} {
			b := bucketOf(p, queue.Key(rune('a'+i)))
			switch in {
			case spotSched:
				a.schedule(b, 1)
			case spotChanged:
				a.mark(b)
			default:
				a.compete(b, 1, in)
			}
			a.lookAt(newJob(b), 1)
		}
	}
	a.leave(mine)
	if len(a.sched) != 1 || a.competing() != 3 || len(a.marked) != 1 || len(a.timers) != 5 {
		t.Errorf("%d scheduled, %d compete, %d marked, %d timed: want 1, 3, 1 and 5",
			len(a.sched), a.competing(), len(a.marked), len(a.timers))
	}
	if b := a.marked[0]; b.Part != others {
		t.Error("the other partition's bucket is gone")
	}
}
