package queue

import (
	"context"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/policy"
)

// Kept lists the streams of the installation that there are, in the order in which a backup has to
// take them, because each is taken at its own instant:
//
//   - first what is known of jobs: owners with their checkpoints, attempts, ends. Were it newer
//     than the queues, it would speak of jobs that these do not have, or worse, of other jobs that
//     get the same numbers after they are restored; and owners would wait for the missing ones;
//   - then schedules with the ticks that are no jobs yet, before the queues: a tick that becomes
//     one meanwhile is in both, and makes no second job, for its Idempotency-Key is the same;
//   - then the queues, and after them dead letters: a job that is buried meanwhile is in both, and
//     so never in neither;
//   - policies last: one that is made meanwhile has a record and no stream, which is made again.
//
// Left out are leases and locks, which are their holders' while these live, what is in memory, and
// the histories of ended jobs and the counts of minutes, which are for watching.
func (b *Broker) Kept(ctx context.Context) (kept, leftOut []string, err error) {
	all, err := b.streams(ctx)
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(all)
	t := b.tables
	rank := func(stream string) int {
		if table, ok := strings.CutPrefix(stream, "KV_"); ok {
			switch table {
			case t.Partitions.Bucket(), t.Attempts.Bucket(), t.ended.Bucket():
				return 1
			case t.Policies.Bucket():
				return 5
			case t.Drainers.Bucket(), t.Admitters.Bucket(), t.locks.Bucket(), t.done.Bucket():
				return 6
			}
			return 0
		}
		name, ours := strings.CutPrefix(stream, b.names.Stream(""))
		letters, dead := strings.CutPrefix(name, deadInfix)
		past, history := strings.CutPrefix(name, historyInfix)
		switch {
		case stream == b.names.schedules():
			return 2
		case ours && policy.IsName(name):
			return 3
		case ours && (dead && policy.IsName(letters) || name+"_" == deadInfix):
			return 4
		case ours && history && policy.IsName(past), stream == b.names.minutesStream():
			return 6
		}
		return 0
	}
	for order := 1; order <= 6; order++ {
		for _, stream := range all {
			if rank(stream) != order {
				continue
			}
			if order == 6 {
				leftOut = append(leftOut, stream)
			} else {
				kept = append(kept, stream)
			}
		}
	}
	return kept, leftOut, nil
}

// Replicas is how many servers keep each stream.
func (b *Broker) Replicas() int { return b.replicas }
