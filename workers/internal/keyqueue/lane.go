package keyqueue

import (
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/deep"
)

// lane counts slots of one priority.
type lane struct {
	priority int
	waiting  int64  // ready and deep
	arrived  int64  // so far
	trail    *trail // nil: priorities have no step
	line     deep.Line
	later    deep.Line // delayed jobs; 0 without them
}

type trail struct {
	newest int64
	marks  []trailMark
}

type trailMark struct{ at, arrived int64 }

const mostMarks = 32

// Arrive dates a new job and counts it in its lane, Rejoin in the lane of another priority.
func (q *Queue[J]) Arrive(j *Job[J]) {
	j.Came = q.store.arrivals.came(j.Seq, j.Stored.UnixNano())
	q.Rejoin(j)
}

func (q *Queue[J]) Rejoin(j *Job[J]) {
	l := q.lane(j.Priority)
	l.arrived += j.Cost
	if j.mark = l.arrived; q.store.step > 0 {
		l.note(j.Came)
	}
}

func (q *Queue[J]) lane(priority int) *lane {
	for i := range q.lanes {
		if q.lanes[i].priority == priority {
			return &q.lanes[i]
		}
	}
	q.lanes = append(q.lanes, lane{priority: priority})
	return &q.lanes[len(q.lanes)-1]
}

func (l *lane) note(at int64) {
	if l.trail == nil {
		l.trail = &trail{}
	}
	t := l.trail
	t.newest = max(t.newest, at)
	if l.waiting == 0 {
		t.marks = t.marks[:0]
	}
	if n := len(t.marks); n > 0 && at-t.marks[n-1].at < (t.marks[n-1].at-t.marks[0].at)/mostMarks {
		return
	}
	if len(t.marks) == mostMarks {
		left := l.arrived - l.waiting // approximately: these have started
		t.marks = slices.DeleteFunc(t.marks, func(m trailMark) bool { return m.arrived < left })
	}
	if n := len(t.marks); n == mostMarks {
		for i := range n / 2 {
			t.marks[i] = t.marks[2*i+1]
		}
		t.marks = t.marks[:n/2]
	}
	t.marks = append(t.marks, trailMark{at, l.arrived})
}

// until returns a lower bound of the waiting slots that had arrived by an instant.
func (l *lane) until(at int64) int64 {
	if l.trail == nil {
		return 0
	}
	if at >= l.trail.newest {
		return l.waiting
	}
	arrived := int64(0)
	for _, m := range l.trail.marks {
		if m.at > at {
			break
		}
		arrived = m.arrived
	}
	return max(0, l.waiting-(l.arrived-arrived))
}
