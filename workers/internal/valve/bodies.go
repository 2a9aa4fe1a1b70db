package valve

import (
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Bodies of jobs that wait are held only if they are small, or start soon, and then at most
// mostBodies of them in all, however many buckets are due: their workers may be few.
const (
	// leanSize is the body size above which bodies of jobs that wait are not held in memory.
	leanSize = 4 << 10
	// lead is how long before its start a job's body is read, when it is not held.
	lead = 500 * time.Millisecond
	// readEvery has bodies read together that are wanted at about the same time.
	readEvery = 25 * time.Millisecond
	// mostFetches is how many bodies of one bucket are read ahead.
	mostFetches = 1024
	// mostBodies is how many bytes of bodies that are not small a valve holds or reads, for jobs
	// that wait; one body more when the last of them does not fit.
	mostBodies = 64 << 20
)

// keepBody counts a body that is held, or read, while its job waits, until detach or unload.
//
// What is being read counts as held, or a thousand buckets that fall due at once would all ask
// while there was room.
func (v *Valve) keepBody(j *heldJob) {
	if !j.counted {
		j.counted = true
		j.Bucket.own().bodies++
		j.Bucket.Part.bodies += int64(j.Size)
		v.bodies += int64(j.Size)
	}
}

func (v *Valve) freeBody(j *heldJob) {
	if !j.counted {
		return
	}
	j.counted = false
	j.Bucket.bodies--
	j.Bucket.Part.bodies -= int64(j.Size)
	if j.Bucket.Part.state <= partitionLive { // else all of them were taken off
		v.bodies -= int64(j.Size)
	}
}

// unload lets the bodies of a bucket go that does not start soon.
//
// A pause, a cool-down or a full bucket may last for hours; the room is for those who start.
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

// fetch asks for the bodies of the jobs that start next. The first items of the heap are about
// those.
//
// A bucket may read ahead what it can start within lead, but from half of the room on only its head
// is read: a fast bucket with large bodies would fill all of it, and the others would wait for
// their first (law 5).
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

// readAhead asks for the bodies of buckets that wait for that, while there is room: in the order in
// which buckets that are due get workers. One of those that may not take a worker now makes room
// for one that goes before it, so that a target that hangs for some keys keeps no others from the
// workers that are free.
func (v *Valve) readAhead(now pace.Instant) {
	for len(v.unread) > 0 {
		if v.bodies >= mostBodies && !v.makeRoom(now) {
			return
		}
		b := v.unread[0].bucket
		v.unplace(b) // loaded places it again
		v.surface(b, now)
		if len(b.ready) == 0 { // its first has expired, and waits for its turn to be buried
			v.schedule(b, now.Add(lapsePause))
			continue
		}
		v.fetch(b)
	}
}

// ahead is how many jobs of a bucket are read ahead: what it can start within lead.
func (b *bucket) ahead() int {
	if b.pace == nil {
		return mostFetches
	}
	return min(mostFetches, int(lead/b.pace.Interval)+1)
}

// readAt is when bodies are read of a bucket that starts its next job at an instant.
func readAt(start pace.Instant) pace.Instant {
	return start.Add(-lead) / pace.Instant(readEvery) * pace.Instant(readEvery)
}

// readOn asks for more bodies of a bucket that starts jobs, when about half of those are used up
// that were read ahead.
func (v *Valve) readOn(b *bucket) {
	half := b.ahead() / 2
	if half > 0 && half < len(b.ready) && b.ready[half].Lean && !b.ready[half].fetching &&
		v.bodies < mostBodies/2 {
		v.fetch(b)
	}
}

// makeRoom lets a bucket's bodies go that is due and cannot take a worker, for one that goes before
// it, and reports whether there is room now. It looks at the last ones only, because it runs in
// every turn of the loop; they are about those that go last.
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

// Read takes the headers of a job that were left out.
func (j *heldJob) Read(header map[string][]string) {
	if j.headless {
		j.Header, j.headless = header, false
	}
}

// Loaded takes the body of a job that was asked for. A job that is gone from the stream was removed
// by somebody else.
//
// It may have been purged or paused away while its body was read; then the body is dropped.
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
	if body != nil && j.counted { // else it is not wanted any more
		j.Body, j.Lean = body, false
	}
	v.place(j.Bucket, now)
}

// Unreadable buries a job that turned out to be none when its body was read.
//
// To try again would not help, and the bucket waits behind it.
func (v *Valve) Unreadable(j *heldJob, why error, now pace.Instant) {
	j.fetching = false
	if j.stage != stageWaiting {
		return
	}
	v.detach(j)
	v.bury(j, job.ReasonMalformed, why.Error())
	v.place(j.Bucket, now)
}
