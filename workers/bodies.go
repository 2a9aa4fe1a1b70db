package workers

import "time"

// Bodies of jobs that wait are held only if they are small, or start soon, and then at most mostBodies of them in all, however
// many buckets are due: their workers may be few.
const (
	// leanSize is the body size above which bodies of jobs that wait are not held in memory.
	leanSize = 4 << 10
	// lead is how long before its start a job's body is read, when it is not held.
	lead = 500 * time.Millisecond
	// mostFetches is how many bodies of one bucket are read ahead.
	mostFetches = 64
	// mostBodies is how many bytes of bodies that are not small a valve holds or reads, for jobs that wait; one body more when
	// the last of them does not fit.
	mostBodies = 64 << 20
)

// hold counts a body that is held, or read, while its job waits, until detach or unload.
func (v *valve) hold(j *job) {
	if !j.counted {
		j.counted = true
		j.bucket.bodies++
		j.bucket.part.bodies += int64(j.Size)
		v.bodies += int64(j.Size)
	}
}

func (v *valve) unhold(j *job) {
	if !j.counted {
		return
	}
	j.counted = false
	j.bucket.bodies--
	j.bucket.part.bodies -= int64(j.Size)
	if j.bucket.part.state <= partitionLive { // else all of them were taken off
		v.bodies -= int64(j.Size)
	}
}

// unload lets the bodies of a bucket go that does not start soon.
func (v *valve) unload(b *bucket) {
	for _, j := range b.ready {
		if b.bodies == 0 {
			return
		}
		if j.counted {
			v.unhold(j.job)
			j.Body, j.Lean = nil, true
		}
	}
}

// fetch asks for the bodies of the jobs that start next. The first items of the heap are about those.
func (v *valve) fetch(b *bucket) {
	n := mostFetches
	if b.pace != nil {
		n = min(n, int(lead/b.pace.interval)+1)
	}
	for i, j := range b.ready[:min(n, len(b.ready))] {
		if i > 0 && v.bodies >= mostBodies/2 {
			break // the heads of others go first
		}
		if j.Lean {
			v.hold(j.job)
		}
		if j.Lean && !j.fetching {
			j.fetching = true
			v.out.fetches = append(v.out.fetches, j.job)
		}
	}
}

// read asks for the bodies of buckets that wait for that, while there is room: in the order in which buckets that are due
// get workers. One of those that may not take a worker now makes room for one that goes before it, so that a target that
// hangs for some keys keeps no others from the workers that are free.
func (v *valve) read(now instant) {
	for len(v.unread) > 0 {
		if v.bodies >= mostBodies && !v.makeRoom(now) {
			return
		}
		b := v.unread[0].bucket
		v.unplace(b) // loaded places it again
		v.fetch(b)
	}
}

func (v *valve) makeRoom(now instant) bool {
	if v.free() <= 0 {
		return false
	}
	last := v.due[max(0, len(v.due)-mostLooks):]
	for _, b := range last {
		if b.bodies > 0 && !v.mayTakeWorker(b.bucket) && v.unread[0].before(b) {
			v.unload(b.bucket)
			v.place(b.bucket, now)
			return v.bodies < mostBodies
		}
	}
	return false
}
