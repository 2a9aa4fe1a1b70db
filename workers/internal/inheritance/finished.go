package inheritance

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// finished has jobs whose acknowledgement the stream may not have applied.
type finished struct {
	// of the backlog before, until a sweep: time of storage by sequence (0: judge by through)
	before map[uint64]int64
	recent []finishedJob
	stale  int // entries of recent beyond finishedFor
}

type finishedJob struct {
	seq    uint64
	stored int64
	at     pace.Instant
}

const (
	// staleFor bounds the time until a backlog redelivers a finished job.
	staleFor = 100 * time.Millisecond
	// finishedFor is the same for a reopened backlog: the stream's leader applies acknowledgements
	// later than the consumer confirms them, by seconds after an outage.
	finishedFor = 30 * time.Second
	// mostFinished is half a minute's finished jobs at 4,000 a second.
	mostFinished = 1 << 17
)

// add adds a job whose acknowledgement was confirmed.
func (f *finished) add(seq uint64, stored int64, now pace.Instant) {
	f.stale = max(f.stale, len(f.recent)-mostFinished)
	for f.stale < len(f.recent) && now.Since(f.recent[f.stale].at) > finishedFor {
		f.stale++
	}
	if f.stale > len(f.recent)/2 {
		f.recent = append(f.recent[:0], f.recent[f.stale:]...)
		f.stale = 0
	}
	f.recent = append(f.recent, finishedJob{seq, stored, now})
}

func (f *finished) lately(seq uint64, stored int64, now pace.Instant) bool {
	for _, j := range slices.Backward(f.recent[f.stale:]) {
		if j.seq == seq || now.Since(j.at) > staleFor {
			return j.seq == seq && j.stored == stored
		}
	}
	return false
}

func (f *finished) reopen() {
	if f.before == nil {
		f.before = map[uint64]int64{}
	}
	for _, j := range f.recent {
		f.before[j.seq] = j.stored
	}
}

// all returns their sequences, in order.
func (f *finished) all(now pace.Instant) []uint64 {
	seqs := slices.Collect(maps.Keys(f.before))
	for _, j := range f.recent {
		if now.Since(j.at) <= finishedFor {
			seqs = append(seqs, j.seq)
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}
