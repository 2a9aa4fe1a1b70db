package queue

import (
	"context"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/policy"
)

// Kept lists the installation's streams in the order of a backup, which takes each at its own
// instant:
//
//   - first, knowledge about jobs: owners, checkpoints, attempts, ends. Newer than the queues, it
//     could refer to jobs that the queues lack, or to others with the same numbers after the
//     restore;
//   - then schedules with their ticks: a tick that becomes a job meanwhile is in both, and its
//     Idempotency-Key prevents a second job; and the audit list;
//   - then the queues, then dead letters: a job that dies meanwhile is in both;
//   - policies last: one created meanwhile lacks its stream, which is recreated.
//
// Left out are leases, locks, streams in memory, histories, and counts.
func (b *Broker) Kept(ctx context.Context) (kept, leftOut []string, err error) {
	all, err := b.listNames(ctx, "$JS.API.STREAM.NAMES")
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
		case stream == b.names.schedules(), stream == b.names.auditStream():
			return 2
		case ours && policy.IsName(name):
			return 3
		case ours && dead && policy.IsName(letters):
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

// Replicas returns the number of servers that keep each stream.
func (b *Broker) Replicas() int { return b.replicas }
