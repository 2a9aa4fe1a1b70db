package keyqueue

import (
	"slices"
	"sort"
)

// Rank orders a queue's jobs: those with less Behind first, then those with more Front, the rest by
// priority, then by sequence (law 4). With a priority step, a job counts as having arrived one step
// earlier per level.
type Rank struct {
	Behind uint16
	Front  int64
	Place  int64
	Seq    uint64
}

// Rank returns the rank that a job has in the queue.
func (q *Queue[J]) Rank(j *Job[J]) Rank {
	return Rank{j.Behind, j.Front, q.placeOf(j.Priority, j.Came), j.Seq}
}

func (j *Job[J]) rank() Rank { return Rank{j.Behind, j.Front, j.place, j.Seq} }

func (r Rank) Before(other Rank) bool {
	if r.Behind != other.Behind {
		return r.Behind < other.Behind
	}
	if r.Front != other.Front {
		return r.Front > other.Front
	}
	if r.Place != other.Place {
		return r.Place < other.Place
	}
	return r.Seq < other.Seq
}

func (q *Queue[J]) placeOf(priority int, came int64) int64 {
	if q.store.step == 0 {
		return -int64(priority)
	}
	return came - int64(priority)*q.store.step
}

// Overdue reports whether the first stored job has waited a step per level of priority below one.
func (q *Queue[J]) Overdue(priority int, now int64) bool {
	return q.store.step > 0 && q.Len() > 0 && q.First().Place < q.placeOf(priority, now)
}

// arrivals assigns arrival times in Unix ns: the time of storage, but never before an earlier job's
// (law 4), because the leader's clock may step back.
type arrivals struct {
	seq   uint64
	last  int64
	flats []flat
}

type flat struct {
	from, until uint64
	at          int64
}

const mostFlats = 100

func (a *arrivals) came(seq uint64, stored int64) int64 {
	if seq > a.seq {
		return a.comes(seq, stored)
	}
	i := sort.Search(len(a.flats), func(i int) bool { return a.flats[i].until >= seq })
	if i < len(a.flats) && a.flats[i].from <= seq {
		return max(stored, a.flats[i].at)
	}
	return stored
}

func (a *arrivals) comes(seq uint64, stored int64) int64 {
	a.seq = seq
	if stored >= a.last {
		a.last = stored
		return stored
	}
	if n := len(a.flats); n > 0 && a.flats[n-1].at == a.last {
		a.flats[n-1].until = seq
		return a.last
	}
	if len(a.flats) == mostFlats {
		a.flats[1].from = a.flats[0].from
		a.flats = slices.Delete(a.flats, 0, 1)
	}
	a.flats = append(a.flats, flat{seq, seq, a.last})
	return a.last
}
