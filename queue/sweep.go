package queue

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

var errUnswept = errors.New("a job came that was not stored any more")

// sweep is how a backlog finds out that all has been delivered that was stored when it was opened.
// What the consumer counts tells nothing: when its leader is a server that is catching up, it
// counts and delivers what that server has so far, which is too little, with jobs among it that are
// gone. So the leader of the stream is asked for the job after the last one that came.
type sweep struct {
	wake  chan struct{} // deliveries pause
	ended chan struct{}

	mu     sync.Mutex // also while jobs are handed over
	handed uint64     // sequence of the last job that was
	over   bool
}

// sweepUp asks until the sweep has ended.
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
				continue // the next pause comes with the next heartbeat
			}
		}
		switch {
		case next > l.last:
			if s.end(handed) {
				s.ended <- struct{}{}
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

// end ends the sweep, unless more was handed over since its end was found.
func (s *sweep) end(handed uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = s.handed == handed
	return s.over
}

// swept reports whether the sweep has ended.
func (l *Backlog) swept() bool {
	l.sweep.mu.Lock()
	defer l.sweep.mu.Unlock()
	return l.sweep.over
}

// handOver hands jobs over in order, and reports whether the backlog goes on.
func (l *Backlog) handOver(ctx context.Context, arrived []job.Arrived) bool {
	s := &l.sweep
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed = arrived[len(arrived)-1].Seq
	if s.over {
		var err error
		if arrived, err = l.withoutGone(ctx, arrived); err != nil {
			l.fail(err)
			return false
		}
	}
	select {
	case l.arrivals <- arrived:
		return true
	case <-l.puller.Lost:
		l.fail(jsapi.ErrReconnected)
	case <-l.isBroken:
	case <-l.stop:
	}
	return false
}

// withoutGone leaves out of what came after the sweep that which was stored before: by the leader's
// word it is gone.
func (l *Backlog) withoutGone(ctx context.Context, arrived []job.Arrived) ([]job.Arrived, error) {
	left := arrived[:0]
	for _, a := range arrived {
		if a.Seq > l.last {
			left = append(left, a)
			continue
		}
		_, err := l.b.js.Message(ctx, l.stream, map[string]uint64{"seq": a.Seq})
		if err == nil {
			err = errUnswept // the leader of then was out of date
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	return left, nil
}
