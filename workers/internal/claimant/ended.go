package claimant

import (
	"hash/fnv"
	"io"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

const (
	// endedFor exceeds the time for which claimants repeat a report whose confirmation is lost.
	endedFor = time.Minute
	// mostEnded bounds the memory of a partition to about a megabyte, mostTold the part of it that
	// its next owner gets to 16 KB.
	mostEnded, mostTold = 1 << 14, 1 << 11
)

// Names has claimants, such as the last whose end was reported, so that a repeated report counts
// nothing again: 48 bits of a hash of each id, because packed lists of larger ones take more. Its
// zero value is empty.
type Names struct {
	known map[uint64]bool
	order []named // the oldest first
}

type named struct {
	hash uint64
	at   pace.Instant
}

func hashOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, id) // a hash takes everything
	return h.Sum64() >> 16
}

// Has reports whether an id was added, within a minute if so many others were not since.
func (n *Names) Has(id string) bool { return n.known[hashOf(id)] }

func (n *Names) Add(id string, now pace.Instant) { n.Inherit([]uint64{hashOf(id)}, now) }

// Take removes an id, and reports whether it was there.
func (n *Names) Take(id string) bool {
	has := n.Has(id)
	delete(n.known, hashOf(id))
	return has
}

// Inherit adds what Last returned elsewhere.
func (n *Names) Inherit(last []uint64, now pace.Instant) {
	if n.known == nil {
		n.known = map[uint64]bool{}
	}
	for _, hash := range last {
		if n.known[hash] {
			continue
		}
		for len(n.order) >= mostEnded || len(n.order) > 0 && n.order[0].at < now.Add(-endedFor) {
			delete(n.known, n.order[0].hash)
			n.order = n.order[1:]
		}
		n.known[hash] = true
		n.order = append(n.order, named{hash, now})
	}
}

// Last returns the hashes of the newest ids.
func (n *Names) Last() (last []uint64) {
	for _, e := range n.order[max(0, len(n.order)-mostTold):] {
		if n.known[e.hash] {
			last = append(last, e.hash)
		}
	}
	return last
}
