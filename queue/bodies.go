package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/queue/job"
)

// Bodies reads jobs with their bodies, in the order of seqs. Jobs that have left the stream are
// omitted.
func (l *Backlog) Bodies(ctx context.Context, seqs []uint64) (found []job.Arrived, err error) {
	read, err := l.b.js.Directs(ctx, l.stream, seqs)
	if err != nil {
		return nil, fmt.Errorf("read %d jobs of %s: %w", len(seqs), l.o.Policy, err)
	}
	for i, m := range read {
		if m.Seq != seqs[i] || m.Time.Before(l.created) { // not read, or of a former stream
			m, err = l.b.messageBySeq(ctx, l.stream, seqs[i])
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read job %s: %w", job.ID(l.o.Policy, seqs[i]), err)
			}
		}
		found = append(found, l.b.arrived(m, false))
	}
	return found, nil
}
