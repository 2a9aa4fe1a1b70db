package manage

import (
	"context"
	"sync"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

// resume ends a bucket's cool-down and probes its target, or without a key does so for all buckets
// of the policy.
func (s *Service) resume(ctx context.Context, p policy.Policy, key job.Key) *api.Resumed {
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
	var r api.Resumed
	for number := first; number < end; number++ {
		r.Ended, r.Probes = r.Ended+answers[number].Ended, r.Probes+answers[number].Probes
		if errs[number] != nil {
			r.Unanswered = append(r.Unanswered, number)
		}
	}
	note := func(what, of string, n int) {
		args := []any{"policy", p.Name, of, n}
		if key != "" {
			args = append(args, "key", key.Raw())
		}
		if n > 0 {
			s.Note(ctx, what, args...)
		}
	}
	note("cool-down ended", "ended", r.Ended)
	note("target probed", "probes", r.Probes)
	return &r
}
