package core

import (
	"testing"
	"time"
)

// stalls measures work in pieces: its cost and its longest piece, each the best of all rounds.
type stalls struct{ all, longest, bestAll, bestLongest time.Duration }

func (s *stalls) measure(piece func() (done bool)) {
	for done := false; !done; {
		began := time.Now()
		done = piece()
		took := time.Since(began)
		s.all, s.longest = s.all+took, max(s.longest, took)
	}
}

func (s *stalls) round() {
	if s.bestAll == 0 || s.all < s.bestAll {
		s.bestAll = s.all
	}
	if s.bestLongest == 0 || s.longest < s.bestLongest {
		s.bestLongest = s.longest
	}
	s.all, s.longest = 0, 0
}

func (s *stalls) report(b *testing.B) {
	b.ReportMetric(float64(s.bestAll.Microseconds()), "µs-in-all")
	b.ReportMetric(float64(s.bestLongest.Microseconds()), "µs-longest")
}
