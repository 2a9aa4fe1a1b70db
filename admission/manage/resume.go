package manage

import (
	"context"
	"sync"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

// Resumed reports the cool-downs that ended when an operator resumed a bucket or policy.
type Resumed struct {
	Ended      int   `json:"cooldowns_ended,omitempty"`
	Unanswered []int `json:"unanswered,omitempty"`
}

// resume ends a bucket's cool-down, or without a key those of all buckets of the policy.
func (s *Service) resume(ctx context.Context, p policy.Policy, key job.Key) *Resumed {
	look, cancel := context.WithTimeout(ctx, 2*s.options.Timeout/5)
	defer cancel()
	first, end := 0, p.Partitions
	if key != "" {
		first = s.partitionOf(p, key)
		end = first + 1
	}
	answers, errs := make([]job.Answer, end), make([]error, end)
	var asking sync.WaitGroup
	for number := first; number < end; number++ {
		asking.Go(func() {
			answers[number], errs[number] = s.ask(look, p.Name, number,
				job.Question{Op: job.OpResume, Key: key})
		})
	}
	asking.Wait()
	var r Resumed
	for number := first; number < end; number++ {
		if r.Ended += answers[number].Ended; errs[number] != nil {
			r.Unanswered = append(r.Unanswered, number)
		}
	}
	if r.Ended > 0 {
		args := []any{"policy", p.Name, "ended", r.Ended}
		if key != "" {
			args = append(args, "key", key.Raw())
		}
		s.Note(ctx, "cool-down ended", args...)
	}
	return &r
}
