package main

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"
)

// window is every limit's. All times are multiples of it.
const window = time.Minute

const windowMicros = int64(window / time.Microsecond)

// begin is instant 0 in Unix microseconds, the start of a window.
var begin = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC).UnixMicro()

// traffic is an arrival pattern. A bursty key alternates between sending and silence, both
// exponential with a mean cycle of a window.
type traffic struct {
	name string
	// burst is the rate while sending, in multiples of the mean; 1: a Poisson process.
	burst int64
}

var allTraffic = []traffic{{"steady", 1}, {"bursts 4×", 4}, {"bursts 16×", 16}, {"bursts 64×", 64}}

type stream struct {
	requests, windows int64
	keys              int
	seed              uint64
}

func (s stream) duration() int64 { return s.windows * windowMicros }

// shares distributes requests by Zipf's law with exponent 1, in integers for equal results
// everywhere.
func (s stream) shares() []int64 {
	const unit = 1 << 32
	var whole int64
	for rank := range s.keys {
		whole += unit / int64(rank+1)
	}
	shares := make([]int64, s.keys)
	var sum, given int64
	for rank := range shares {
		sum += unit / int64(rank+1)
		upTo := mulDiv(s.requests, sum, whole)
		shares[rank], given = upTo-given, upTo
	}
	return shares
}

// arrivals appends a key's instants in µs, ascending. They depend only on the seed, the traffic and
// the rank.
func (s stream) arrivals(into []int64, t traffic, rank int, n int64) []int64 {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[0:], s.seed)
	binary.LittleEndian.PutUint64(seed[8:], uint64(t.burst))
	binary.LittleEndian.PutUint64(seed[16:], uint64(rank))
	random := rand.New(rand.NewChaCha8(seed))
	if t.burst == 1 {
		// a Poisson process's instants are uniform, given their number
		for range n {
			into = append(into, random.Int64N(s.duration()))
		}
		slices.Sort(into)
		return into
	}
	phases, total := t.phases(random, s.duration())
	for range n {
		into = append(into, random.Int64N(total))
	}
	slices.Sort(into)
	i, before := 0, int64(0)
	for k, sent := range into {
		for sent-before >= phases[i].length {
			before += phases[i].length
			i++
		}
		into[k] = phases[i].start + sent - before
	}
	return into
}

type phase struct{ start, length int64 }

func (t traffic) phases(random *rand.Rand, duration int64) (phases []phase, total int64) {
	mean := float64(windowMicros) / float64(t.burst)
	silence := float64(windowMicros) - mean
	at := random.Int64N(min(windowMicros, duration))
	for at < duration {
		length := min(1+int64(random.ExpFloat64()*mean), duration-at)
		phases = append(phases, phase{at, length})
		total += length
		at += length + int64(random.ExpFloat64()*silence)
	}
	return phases, total
}
