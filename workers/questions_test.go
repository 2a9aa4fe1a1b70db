package workers

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/handle"
)

// Starts wait while a question is answered, so its number of jobs is bounded.
func TestTheJobsOfOneQuestionAreBounded(t *testing.T) {
	b := newBench(t, with(leaky("api", "1000/s"), func(p *policy.Policy) { p.Partitions = 1 }))
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.publish("api", "a", 0, 1)
	ask := func(n int) (job.Answer, error) {
		seqs := make([]uint64, n)
		for i := range seqs {
			seqs[i] = uint64(i + 1)
		}
		return b.broker.AskValve(t.Context(), "api", 0, job.Question{Op: job.OpExpect, Jobs: seqs})
	}
	b.until("a question about as many as may be is answered", func() bool {
		a, err := ask(job.MaxExpected)
		return err == nil && len(a.Starts) == job.MaxExpected && a.Starts[0].Known
	})
	var err error
	b.until("one about too many is answered", func() bool {
		_, err = ask(100_000)
		return !errors.Is(err, jet.ErrUnavailable)
	})
	if err == nil ||
		!strings.Contains(err.Error(), "at most 512 jobs can be requested at once, not 100000") {
		t.Errorf("a question about 100,000 jobs is answered %v", err)
	}
	if a, err := ask(0); err != nil || len(a.Starts) != 0 {
		t.Errorf("a question about none is answered %+v, %v", a, err)
	}
}

func TestAnExpectedStartTellsItsPosition(t *testing.T) {
	b := newBench(t, with(leaky("api", "1/h"), func(p *policy.Policy) { p.Partitions = 1 }))
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.publish("api", "a", 0, 5)
	b.publish("api", "b", 0, 1)
	b.until("the first has started, and what waits is told", func() bool {
		a, err := b.broker.AskValve(t.Context(), "api", 0,
			job.Question{Op: job.OpExpect, Jobs: []uint64{1, 2, 3, 4, 5}})
		if err != nil || a.Starts[0].DelayMS > 0 || a.Starts[1].DelayMS == 0 ||
			slices.ContainsFunc(a.Starts, func(s job.ExpectedStart) bool { return !s.Known }) {
			return false
		}
		for i, want := range []int{0, 0, 1, 2, 3} {
			if got := a.Starts[i]; !got.Known || got.Position != want {
				t.Errorf("job %d: %+v, want position %d", got.Seq, got, want)
			}
		}
		return true
	})
}

// The admitter asks for every job that it accepts, usually a drainer in its own process.
func TestAValveInTheSameProcessIsAskedDirectly(t *testing.T) {
	t.Parallel()
	b := newBench(t, with(leaky("api", "1/h"), func(p *policy.Policy) { p.Partitions = 1 }))
	var ran seen
	owner, stop := b.drainer(Options{}, map[string]Handler{"api": ran.handle})
	b.publish("api", "a", 0, 2)
	overNATS := make(chan *nats.Msg, 1024)
	if _, err := b.nc.ChanSubscribe("penstock.valve.>", overNATS); err != nil {
		t.Fatal(err)
	}
	told := func(d *Drainer) func() bool {
		return func() bool {
			a, err := d.AskValve(t.Context(), "api", 0,
				job.Question{Op: job.OpExpect, Jobs: []uint64{2}})
			return err == nil && len(a.Starts) == 1 && a.Starts[0].Known
		}
	}
	b.until("the start of a job is told", told(owner))
	for len(overNATS) > 0 {
		<-overNATS
	}
	if !told(owner)() {
		t.Error("the start is not told again")
	}
	if _, err := owner.AskValve(t.Context(), "api", 0, job.Question{Op: "dance"}); err == nil ||
		errors.Is(err, jet.ErrUnavailable) {
		t.Errorf("a refusal is %v", err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := len(overNATS); n > 0 {
		t.Errorf("%d questions went over NATS", n)
	}
	other, _ := b.drainer(Options{}, nil)
	b.until("it is told to another process, too", told(other))
	stop()
	b.until("nobody owns the partition, or another does", func() bool {
		_, mine := owner.questions.served.Load(handle.Partition{Policy: "api"})
		return !mine
	})
}
