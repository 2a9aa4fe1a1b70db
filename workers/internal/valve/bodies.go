package valve

import (
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Only small bodies, and those of jobs that start soon, are held in memory.
const (
	// leanSize is the size above which bodies of waiting jobs are not held.
	leanSize = 4 << 10
	// lead is how long before its start an omitted body is read.
	lead = 500 * time.Millisecond
	// readEvery groups reads that are due at about the same time.
	readEvery = 25 * time.Millisecond
	// mostFetches bounds the read-ahead of a bucket.
	mostFetches = 1024
	// mostBodies bounds the bytes of large bodies held or being read. The last one may exceed it.
	mostBodies = 64 << 20
)

// keepBody counts the body of a waiting job, from the beginning of its read, until detach or
// unload.
func (v *Valve) keepBody(j *heldJob) {
	if !j.counted {
		j.counted = true
		j.Bucket.own().bodies++
		v.bodies += int64(j.Size)
	}
}

func (v *Valve) freeBody(j *heldJob) {
	if !j.counted {
		return
	}
	j.counted = false
	j.Bucket.bodies--
	v.bodies -= int64(j.Size)
}

// unload drops the bodies of a bucket that does not start soon.
func (v *Valve) unload(b *bucket) {
	for _, j := range b.ready {
		if b.bodies == 0 {
			return
		}
		if j.counted {
			v.freeBody(j.heldJob)
			j.Body, j.Lean = nil, true
		}
	}
}

// fetch requests the bodies of the next jobs: the first items of the heap. Once half of the room is
// used it reads only the head; otherwise a fast bucket would keep others from their first (law 5).
func (v *Valve) fetch(b *bucket) {
	for i, j := range b.ready[:min(b.ahead(), len(b.ready))] {
		if i > 0 && v.bodies >= mostBodies/2 {
			break // the heads of others go first
		}
		if j.Lean {
			v.keepBody(j.heldJob)
		}
		if j.Lean && !j.fetching {
			j.fetching = true
			v.out.Fetches = append(v.out.Fetches, j.ref())
		}
	}
}

// readAhead requests bodies in the order in which buckets get workers, while there is room. Buckets
// that may not take a worker give up theirs, so that hanging targets do not block free workers.
func (v *Valve) readAhead(now pace.Instant) {
	for len(v.unread) > 0 {
		if v.bodies >= mostBodies && !v.makeRoom(now) {
			return
		}
		b := v.unread[0].bucket
		v.unplace(b) // Loaded places it again
		v.surface(b, now)
		if len(b.ready) == 0 { // its first job has expired, and waits to be buried
			v.schedule(b, now.Add(lapsePause))
			continue
		}
		v.fetch(b)
	}
}

func (b *bucket) ahead() int {
	if b.pace == nil {
		return mostFetches
	}
	return min(mostFetches, int(lead/b.pace.Interval)+1)
}

func readAt(start pace.Instant) pace.Instant {
	return start.Add(-lead) / pace.Instant(readEvery) * pace.Instant(readEvery)
}

// readOn requests more bodies once about half of the read-ahead is used.
func (v *Valve) readOn(b *bucket) {
	half := b.ahead() / 2
	if half > 0 && half < len(b.ready) && b.ready[half].Lean && !b.ready[half].fetching &&
		v.bodies < mostBodies/2 {
		v.fetch(b)
	}
}

// makeRoom unloads a due bucket that cannot take a worker and comes after the first unread one, and
// reports whether there is room. It examines only the end of the heap, about the end of the order.
func (v *Valve) makeRoom(now pace.Instant) bool {
	if v.Free() <= 0 {
		return false
	}
	last := v.due[max(0, len(v.due)-mostLooks):]
	for _, b := range last {
		if b.bodies > 0 && !v.mayTakeWorker(b.bucket) && v.unread[0].Before(b) {
			v.unload(b.bucket)
			v.place(b.bucket, now)
			return v.bodies < mostBodies
		}
	}
	return false
}

func (j *heldJob) Read(header map[string][]string) {
	if j.headless {
		j.Header, j.headless = header, false
	}
}

// Loaded sets a requested body. gone: another client removed the job from the stream.
func (v *Valve) Loaded(j *heldJob, body []byte, gone bool, now pace.Instant) {
	j.fetching = false
	if j.stage != stageWaiting {
		return
	}
	if gone {
		v.out.Vanished++
		v.detach(j)
		v.remove(j, now)
		v.place(j.Bucket, now)
		return
	}
	if body != nil && j.counted { // else no longer wanted
		j.Body, j.Lean = body, false
	}
	v.place(j.Bucket, now)
}

// Unreadable buries a job whose text turned out to be malformed.
func (v *Valve) Unreadable(j *heldJob, why error, now pace.Instant) {
	j.fetching = false
	if j.stage != stageWaiting {
		return
	}
	v.detach(j)
	v.bury(j, job.ReasonMalformed, why.Error())
	v.place(j.Bucket, now)
}
