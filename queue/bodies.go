package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// Body reads a job with its body, for deliveries that came without. A sequence that is not in the
// stream any more is [ErrNotFound]; what cannot be understood is Malformed, as in a delivery.
func (l *Backlog) Body(ctx context.Context, seq uint64) (job.Arrived, error) {
	m, err := l.b.js.Direct(ctx, l.stream, seq)
	if errors.Is(err, ErrNotFound) || err == nil && m.Time.Before(l.created) {
		// of a stream that is gone
		m, err = l.b.js.Message(ctx, l.stream, map[string]uint64{"seq": seq})
	}
	if err != nil {
		return job.Arrived{}, fmt.Errorf("read job %s: %w", job.ID(l.o.Policy, seq), err)
	}
	return l.b.arrived(m, false), nil
}

const (
	// mostTogether is how many jobs are read by one call of Bodies, and mostApart how far apart
	// they may lie in the stream: what lies between two of them is read as well, and dropped.
	mostTogether = 512
	mostApart    = 4
)

// Together is how many of the first of some sequences, which ascend, are best read by one call of
// Bodies: those that lie close to each other.
func Together(seqs []uint64) int {
	n := 1
	for n < min(len(seqs), mostTogether) && seqs[n]-seqs[n-1] <= mostApart {
		n++
	}
	return n
}

// Bodies is Body for jobs that lie close to each other in the stream, in the order of their
// sequences: it takes one request for many of them. Those that are not in the stream any more are
// left out.
func (l *Backlog) Bodies(ctx context.Context, seqs []uint64) (found []job.Arrived, err error) {
	for len(seqs) > 0 {
		var read []jsapi.Message
		if last := seqs[len(seqs)-1]; last > seqs[0] {
			n := min(int(last-seqs[0])+1, 2*len(seqs))
			if read, err = l.b.js.Batch(ctx, l.stream, "", seqs[0], n); err != nil {
				return nil, fmt.Errorf("read %d jobs from %s on: %w", n,
					job.ID(l.o.Policy, seqs[0]), err)
			}
		}
		through := seqs[0]
		if len(read) > 0 {
			through = max(through, read[len(read)-1].Seq)
		}
		for len(seqs) > 0 && seqs[0] <= through {
			for len(read) > 0 && read[0].Seq < seqs[0] {
				read = read[1:]
			}
			a := job.Arrived{}
			if len(read) > 0 && read[0].Seq == seqs[0] && !read[0].Time.Before(l.created) {
				a = l.b.arrived(read[0], false)
			} else if a, err = l.Body(ctx, seqs[0]); err != nil && !errors.Is(err, ErrNotFound) {
				return nil, err
			}
			if err == nil {
				found = append(found, a)
			}
			seqs, err = seqs[1:], nil
		}
	}
	return found, nil
}
