package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/queue/job"
)

// Body reads a job with its body; [ErrNotFound] if it has left the stream.
func (l *Backlog) Body(ctx context.Context, seq uint64) (job.Arrived, error) {
	m, err := l.b.js.Direct(ctx, l.stream, seq)
	if errors.Is(err, ErrNotFound) || err == nil && m.Time.Before(l.created) {
		m, err = l.b.messageBySeq(ctx, l.stream, seq) // of a former stream
	}
	if err != nil {
		return job.Arrived{}, fmt.Errorf("read job %s: %w", job.ID(l.o.Policy, seq), err)
	}
	return l.b.arrived(m, false), nil
}

// Bodies is Body for many jobs, in the order of seqs. Jobs that have left the stream are omitted.
func (l *Backlog) Bodies(ctx context.Context, seqs []uint64) (found []job.Arrived, err error) {
	read, err := l.b.js.Directs(ctx, l.stream, seqs)
	if err != nil {
		return nil, fmt.Errorf("read %d jobs of %s: %w", len(seqs), l.o.Policy, err)
	}
	for i, m := range read {
		if m.Seq == seqs[i] && !m.Time.Before(l.created) {
			found = append(found, l.b.arrived(m, false))
			continue
		}
		switch a, err := l.Body(ctx, seqs[i]); {
		case err == nil:
			found = append(found, a)
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return found, nil
}
