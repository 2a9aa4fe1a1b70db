package queue

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
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
		_, err := l.b.messageBySeq(ctx, l.stream, a.Seq)
		if err == nil {
			err = errUnswept // the leader was out of date
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	return left, nil
}
