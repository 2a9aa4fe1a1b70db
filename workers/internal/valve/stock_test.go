package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// bareStock is a stock without a valve, and a bucket of it.
func bareStock() (*stock, *bucket) {
	s := &stock{settings: &settings{Policy: policy.Policy{MaxAge: policy.Duration(time.Hour)}},
		agenda: &agenda{}, texts: &texts{memory: &Memory{}}, wall: wallOfTests, out: &Actions{}}
	p, _ := bareParts()
	p.agenda, p.state, p.legacy = s.agenda, partitionLive, inheritance.New()
	p.jobs, p.begun = map[uint64]*heldJob{}, map[uint64]*heldJob{}
	return s, bucketOf(p, "a")
}

func (s *stock) arrives(b *bucket, seq uint64, size int) *heldJob {
	a := job.Arrived{Seq: seq, Key: b.queue.Key, Stored: originWall, Cost: 1, Size: size,
		Body: make([]byte, 4)}
	return s.add(b, &a, record.Edit{}, origin)
}

func TestAJobIsInOrderOrDelayedOrGone(t *testing.T) {
	s, b := bareStock()
	j := s.arrives(b, 1, 4)
	s.makeReady(j, origin)
	if b.queue.Len() != 1 || b.queue.Later() != 0 || j.At != origin.Add(time.Hour) {
		t.Errorf("ready: %d in order, %d later, and its time is %v", b.queue.Len(),
			b.queue.Later(), j.At.Since(origin))
	}
	s.detach(j)
	s.delay(j, origin.Add(2*time.Hour))
	if b.queue.Len() != 0 || b.queue.Later() != 1 || j.At != j.expires {
		t.Errorf("delayed: %d in order, %d later, and its time is %v, want its deadline",
			b.queue.Len(), b.queue.Later(), j.At.Since(origin))
	}
	if n := s.dismiss(j, queue.EndCancelled); n != 1 || j.stage != stageAcking ||
		len(s.out.Acks) != 1 || len(s.out.Cancelled) != 1 {
		t.Errorf("cancelled: %d dropped, %d acknowledged, stage %d", n, len(s.out.Acks), j.stage)
	}
	if s.dismiss(j, queue.EndCancelled) != 0 {
		t.Error("it is cancelled twice")
	}
	if s.remove(j); j.stage != stageGone || b.held != 0 || len(b.Part.jobs) != 0 ||
		s.texts.memory.near != 0 || s.agenda.wake(true) != pace.Never {
		t.Errorf("%d jobs and %d bytes are left, and it wakes at %v", b.held,
			s.texts.memory.near, s.agenda.wake(true))
	}
}

func TestOnlyTheFirstLargeTextIsKept(t *testing.T) {
	s, b := bareStock()
	first, second := s.arrives(b, 1, leanSize+1), s.arrives(b, 2, leanSize+1)
	s.makeReady(first, origin)
	s.makeReady(second, origin)
	if first.Lean || !second.Lean || s.texts.bytes != leanSize+1 {
		t.Errorf("lean: %v and %v, %d bytes kept", first.Lean, second.Lean, s.texts.bytes)
	}
	if s.fetch(b); len(s.out.Fetches) != 1 || !second.fetching {
		t.Errorf("%d texts are read, want the second one's", len(s.out.Fetches))
	}
	if s.detach(first); s.texts.bytes != leanSize+1 {
		t.Errorf("%d bytes are kept once the first left", s.texts.bytes)
	}
}

func TestASavedFailureBacksOffOrEnds(t *testing.T) {
	s, b := bareStock()
	again, over := s.arrives(b, 1, 4), s.arrives(b, 2, 4)
	for _, j := range []*heldJob{again, over} {
		s.out.recordFailure(j, time.Second)
	}
	over.crashes = MostCrashes
	s.saved(again, origin)
	s.saved(over, origin)
	if again.stage != stageDelayed || again.At != origin.Add(time.Second) {
		t.Errorf("stage %d until %v", again.stage, again.At.Since(origin))
	}
	if over.stage != stageBurying || s.out.Burials[0].Reason != queue.ReasonCrashed {
		t.Errorf("after %d crashes: stage %d", MostCrashes, over.stage)
	}
	if s.lose(over); s.out.Vanished != 1 || len(s.out.Forgets) != 1 {
		t.Errorf("%d vanished, and %d records are forgotten", s.out.Vanished, len(s.out.Forgets))
	}
}
