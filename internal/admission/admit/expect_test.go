package admit

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

// slowValves answers after a round trip; negative: never.
func slowValves(roundTrip time.Duration) *valveFunc {
	return &valveFunc{roundTrip: roundTrip}
}

type valveFunc struct {
	roundTrip time.Duration

	mu      sync.Mutex
	batches []int
}

func (v *valveFunc) AskValve(ctx context.Context, _ string, _ int,
	q job.Question) (job.Answer, error) {
	v.mu.Lock()
	v.batches = append(v.batches, len(q.Jobs))
	v.mu.Unlock()
	if v.roundTrip < 0 {
		<-ctx.Done()
		return job.Answer{}, ctx.Err()
	}
	select {
	case <-time.After(v.roundTrip):
		return startsIn(5)(0, q)
	case <-ctx.Done():
		return job.Answer{}, ctx.Err()
	}
}

func TestQuestionsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := slowValves(time.Millisecond)
		e := newExpectations(v)
		var asking sync.WaitGroup
		ask := func(p int, seq uint64) {
			asking.Go(func() {
				got := e.ask(t.Context(), partition{"stripe", p}, seq)
				if !got.known || got.delay != 5*time.Millisecond {
					t.Errorf("job %d: %+v", seq, got)
				}
			})
		}
		ask(0, 1)
		synctest.Wait()
		for seq := range uint64(100) {
			ask(0, seq+2)
		}
		ask(1, 500)
		asking.Wait()
		synctest.Wait()
		v.mu.Lock()
		defer v.mu.Unlock()
		if len(v.batches) != 3 {
			t.Errorf("batches of %v, want 1, 1 and 100", v.batches)
		}
		if len(e.lines) != 0 {
			t.Errorf("%d idle partitions are remembered", len(e.lines))
		}
	})
}

func TestAQuestionWaitsNoLongerThanItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExpectations(slowValves(-1))
		var asking sync.WaitGroup
		for i := range 100 {
			asking.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond)
				began := time.Now()
				if e.ask(t.Context(), partition{"stripe", 0}, uint64(i)).known {
					t.Error("a silent valve answered")
				}
				if took := time.Since(began); took > askTimeout {
					t.Errorf("question %d waited %s", i, took)
				}
			})
		}
		asking.Wait()
	})
}

func TestAFullBatchIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := slowValves(10 * time.Millisecond)
		e := newExpectations(v)
		var asking sync.WaitGroup
		asking.Go(func() { e.ask(t.Context(), partition{"stripe", 0}, 0) })
		synctest.Wait()
		for seq := range uint64(maxQuestions + 7) {
			asking.Go(func() { e.ask(t.Context(), partition{"stripe", 0}, seq+1) })
		}
		synctest.Wait()
		v.mu.Lock()
		if len(v.batches) != 2 || v.batches[1] != maxQuestions {
			t.Errorf("batches of %v, want 1 and %d at once", v.batches, maxQuestions)
		}
		v.mu.Unlock()
		asking.Wait()
	})
}

func TestACancelledRequestDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExpectations(slowValves(-1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if e.ask(ctx, partition{"stripe", 0}, 1).known || time.Since(began) != 0 {
			t.Error("waited for a client that had gone")
		}
		time.Sleep(askTimeout)
	})
}

type absentValves struct{ asked int }

func (v *absentValves) AskValve(context.Context, string, int, job.Question) (job.Answer, error) {
	v.asked++
	return job.Answer{}, nats.ErrNoResponders
}

func TestAnAbsentValveIsNotAskedForEachJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &absentValves{}
		e := newExpectations(v)
		for range 2 {
			for seq := range uint64(10) {
				e.ask(t.Context(), partition{"stripe", 0}, seq)
				synctest.Wait()
			}
			time.Sleep(absence)
		}
		if v.asked != 2 {
			t.Errorf("asked %d times, want once per absence", v.asked)
		}
	})
}
