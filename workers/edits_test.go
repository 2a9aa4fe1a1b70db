package workers

import (
	"context"
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

func TestAChangedJobOutlivesTheCrashOfItsOwner(t *testing.T) {
	t.Parallel()
	p := leaky("api", "1/h")
	p.Partitions = 1
	b := newBench(t, p)
	b.publish("api", "a", 0, 6)
	cut := b.cutDrainer(func(context.Context, Job) error { return nil })
	ask := func(q job.Question) job.Answer {
		a, err := b.broker.AskValve(t.Context(), "api", 0, q)
		if err != nil {
			return job.Answer{}
		}
		return a
	}
	high := 3
	b.until("the job is changed", func() bool {
		return ask(job.Question{Op: job.OpEdit, Jobs: []uint64{5},
			Edit: &job.Edit{Front: true, Priority: &high}}).Edited
	})
	cut()
	b.drain(Options{}, map[string]Handler{"api": (&seen{}).handle})
	b.until("the next owner knows it", func() bool {
		j := ask(job.Question{Op: job.OpJob, Jobs: []uint64{5}}).Job
		return j != nil && j.Edit != nil && j.Edit.Front && *j.Edit.Priority == high &&
			j.Position != nil && *j.Position == 0
	})
}
