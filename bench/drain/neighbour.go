package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"time"
)

// A neighbour sometimes takes all processors together, as a process on the same host would, mostly
// for a few milliseconds.
const (
	// of the time
	neighbourShare = 0.02
	longOneIn      = 4
)

// lengths of thefts
var (
	shortTheft = [2]time.Duration{2 * time.Millisecond, 10 * time.Millisecond}
	longTheft  = [2]time.Duration{20 * time.Millisecond, 50 * time.Millisecond}
)

type neighbourSpec struct {
	Seed uint64
	Time time.Duration
}

type theft struct{ begin, end time.Duration }

func thefts(seed uint64, during time.Duration) (all []theft) {
	r := rand.New(rand.NewPCG(seed, 0))
	between := func(from, to time.Duration) time.Duration {
		return from + time.Duration(r.Float64()*float64(to-from))
	}
	mean := (shortTheft[0]+shortTheft[1])/2*(longOneIn-1)/longOneIn +
		(longTheft[0]+longTheft[1])/2/longOneIn
	pause := time.Duration(float64(mean) * (1 - neighbourShare) / neighbourShare)
	for now := time.Duration(0); ; {
		now += between(pause/5, 2*pause-pause/5)
		length := between(shortTheft[0], shortTheft[1])
		if r.IntN(longOneIn) == 0 {
			length = between(longTheft[0], longTheft[1])
		}
		if now+length > during {
			return all
		}
		all = append(all, theft{now, now + length})
		now += length
	}
}

// runNeighbour occupies all processors at the same instants, a thread each.
func runNeighbour(spec neighbourSpec) error {
	debug.SetGCPercent(-1)
	processors := runtime.NumCPU()
	runtime.GOMAXPROCS(processors + 2) // more than needed: threads must wake at once
	all := thefts(spec.Seed, spec.Time)
	begin := monotonic() + int64(100*time.Millisecond)
	failed := make(chan error, processors)
	for i := range processors {
		go func() {
			runtime.LockOSThread()
			err := seize(i)
			failed <- err
			if err != nil {
				return
			}
			for _, t := range all {
				sleepUntil(begin + int64(t.begin))
				for monotonic() < begin+int64(t.end) {
				}
			}
		}()
	}
	for range processors {
		if err := <-failed; err != nil {
			return fmt.Errorf("take the processors: %w", err)
		}
	}
	fmt.Println("ready")
	return obey(nil)
}
