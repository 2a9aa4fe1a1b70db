package jet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

var errUnswept = errors.New("a job came that was not stored any more")

// sweep detects that every job stored at the opening was delivered. While a leader catches up, a
// consumer's counts are wrong, and the stream's leader is asked instead.
type sweep struct {
	wake chan struct{} // deliveries paused

	mu     sync.Mutex
	handed uint64
	over   atomic.Bool
}

func (l *Backlog) sweepUp(ctx context.Context) {
	s := &l.sweep
	var stuckAt uint64
	var stuck time.Time
	for {
		select {
		case <-s.wake:
		case <-l.isBroken:
			return
		case <-l.stop:
			return
		}
		s.mu.Lock()
		handed := s.handed
		s.mu.Unlock()
		next := uint64(math.MaxUint64)
		if handed < l.last {
			var err error
			if next, err = l.b.js.NextStored(ctx, l.stream, l.filter, handed+1); err != nil {
				continue // until the next heartbeat
			}
		}
		switch {
		case next > l.last:
			if s.end(handed) {
				l.report(Update{Swept: true})
				return
			}
		case handed != stuckAt || stuck.IsZero():
			stuckAt, stuck = handed, time.Now()
		case time.Since(stuck) > jsapi.SweepPatience:
			l.fail(jsapi.ErrBehind)
			return
		}
	}
}

// end ends the sweep, unless more jobs were handed over meanwhile.
func (s *sweep) end(handed uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.handed == handed
	s.over.Store(over)
	return over
}

func (l *Backlog) handOver(ctx context.Context, arrived []job.Arrived) bool {
	s := &l.sweep
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed = arrived[len(arrived)-1].Seq
	if s.over.Load() {
		var err error
		if arrived, err = l.withoutGone(ctx, arrived); err != nil {
			l.fail(err)
			return false
		}
	}
	select {
	case l.updates <- Update{Arrived: arrived}:
		return true
	case <-l.puller.Lost:
		l.fail(jsapi.ErrReconnected)
	case <-l.isBroken:
	case <-l.stop:
	}
	return false
}

// withoutGone removes jobs stored before the sweep that come after it: they are gone.
func (l *Backlog) withoutGone(ctx context.Context, arrived []job.Arrived) ([]job.Arrived, error) {
	left := arrived[:0]
	for _, a := range arrived {
		if a.Seq > l.last {
			left = append(left, a)
			continue
		}
		_, err := l.b.js.MessageAt(ctx, l.stream, a.Seq)
		if err == nil {
			err = errUnswept // the leader was out of date
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	return left, nil
}

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
		m, err := l.b.js.Next(ctx, l.stream, l.strays.filter, l.strays.next)
		if errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return found, fmt.Errorf("read what is stored outside the partitions: %w", err)
		}
		l.strays.next = m.Seq + 1
		found = append(found, l.b.names.arrived(m, false))
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
		gone := l.b.js.DeleteMessage(ctx, l.stream, seq) == nil
		if !gone { // perhaps already deleted
			_, err := l.b.js.MessageAt(ctx, l.stream, seq)
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
