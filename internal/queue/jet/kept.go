package jet

import (
	"context"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/policy"
)

// Kept lists the installation's streams in the order of a backup, which takes each at its own
// instant:
//
//   - first, records of jobs: owners, checkpoints, attempts, ends. Newer than the queues, it
//     could refer to jobs that the queues lack, or to others with the same numbers after the
//     restore;
//   - then schedules with their ticks: a tick that becomes a job meanwhile is in both, and its
//     Idempotency-Key prevents a second job; and the audit list;
//   - then the queues, then dead letters: a job that fails meanwhile is in both;
//   - policies last: one created meanwhile lacks its stream, which is recreated.
//
// Left out are leases, locks, streams in memory, histories, and counts.
func (b *Broker) Kept(ctx context.Context) (kept, leftOut []string, err error) {
	all, err := b.js.Names(ctx, "$JS.API.STREAM.NAMES")
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(all)
	n, t := b.names, b.tables
	ranks := map[string]int{n.schedules(): 2, n.auditStream(): 2, n.minutesStream(): 6}
	for rank, tables := range map[int][]*kv.Table{
		1: {t.Partitions, t.Attempts, t.ended},
		5: {t.Policies},
		6: {t.Drainers, t.Admitters, t.locks, t.done},
	} {
		for _, table := range tables {
			ranks["KV_"+table.Bucket()] = rank
		}
	}
	rank := func(stream string) int {
		name, ours := strings.CutPrefix(stream, n.Stream(""))
		for infix, rank := range map[string]int{"": 3, deadInfix: 4, historyInfix: 6} {
			if of, found := strings.CutPrefix(name, infix); ours && found && policy.IsName(of) {
				return rank
			}
		}
		return ranks[stream]
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

// Replicas is the copies of what all policies share.
func (b *Broker) Replicas() int { return b.replicas }
