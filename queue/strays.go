package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/penstock-mq/penstock/queue/job"
)

const straysAtOnce = 512

// strays are jobs published with wildcards as tokens, which subject transforms leave outside all
// partitions. A second filter would slow a consumer down: the owner of partition 0 reads and
// deletes them by sequence.
type strays struct {
	filter string // empty: this backlog has no strays
	next   uint64

	mu     sync.Mutex
	known  map[uint64]bool // handed over, but not deleted
	doomed []uint64        // finished, to be deleted
	wake   chan struct{}
}

func (l *Backlog) gather(ctx context.Context) ([]job.Arrived, error) {
	if l.strays.filter == "" {
		return nil, nil
	}
	info, err := l.b.js.StreamInfo(ctx, l.stream, l.strays.filter)
	if err != nil || len(info.State.Subjects) == 0 {
		return nil, err
	}
	var found []job.Arrived
	for len(found) < straysAtOnce {
		m, err := l.b.js.Message(ctx, l.stream,
			map[string]any{"seq": l.strays.next, "next_by_subj": l.strays.filter})
		if errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return found, fmt.Errorf("read what is stored outside the partitions: %w", err)
		}
		l.strays.next = m.Seq + 1
		found = append(found, l.b.arrived(m, false))
		l.strays.mu.Lock()
		l.strays.known[m.Seq] = true
		l.strays.mu.Unlock()
	}
	return found, nil
}

func (l *Backlog) hand(found []job.Arrived) bool {
	return len(found) == 0 || l.report(Update{Stray: found})
}

func (s *strays) finish(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[seq] {
		s.doomed = append(s.doomed, seq)
		signal(s.wake)
	}
	return s.known[seq]
}

// remove deletes finished strays; the next check retries failures.
func (l *Backlog) remove(ctx context.Context) {
	s := &l.strays
	s.mu.Lock()
	doomed := s.doomed
	s.doomed = nil
	s.mu.Unlock()
	for _, seq := range doomed {
		gone := l.b.deleteMessage(ctx, l.stream, seq) == nil
		if !gone { // perhaps already deleted
			_, err := l.b.messageBySeq(ctx, l.stream, seq)
			gone = errors.Is(err, ErrNotFound)
		}
		s.mu.Lock()
		if gone {
			delete(s.known, seq)
		} else {
			s.doomed = append(s.doomed, seq)
		}
		s.mu.Unlock()
		if gone {
			l.acks.gone(seq)
		}
	}
}
