package crew

import "math"

// Workers are a process's local workers of a policy. Its own valve and those of other drainers use
// them, so they remain when the valve goes, and are still busy when it comes.
type Workers struct {
	Local    bool
	Most     int
	Busy     int // those with jobs of the process's own valve
	Reserved int // those with other drainers' jobs
	Slots    *Slots
}

// Slots bounds the jobs of several policies' local workers. Their valves form a line.
type Slots struct {
	Most int // 0: unlimited
	Used int
}

func (s *Slots) Left() int {
	if s.Most <= 0 {
		return math.MaxInt
	}
	return s.Most - s.Used
}

func (w *Workers) Free() int {
	if !w.Local {
		return 0
	}
	return min(w.Most-w.Busy-w.Reserved, w.Slots.Left())
}

// Reserve takes a worker for another drainer's job, until Release.
func (w *Workers) Reserve() bool {
	if w.Free() <= 0 {
		return false
	}
	w.Reserved++
	w.Slots.Used++
	return true
}

func (w *Workers) Release() {
	w.Reserved--
	w.Slots.Used--
}

// MayTake keeps one bucket from taking all workers: it may run three times as many jobs as workers
// stay free (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
// switches", 1998).
func (w *Workers) MayTake(busy int) bool {
	free := w.Free()
	return free > 0 && busy <= 3*(free-1)
}
