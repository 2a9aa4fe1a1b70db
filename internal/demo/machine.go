package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	tick    = time.Millisecond
	stalled = 10 * time.Millisecond
)

// stall is a period without this process running.
type stall struct {
	from, to time.Time
}

// machine records stalls: requests arrive together after a stall of the API, which is not
// Penstock's fault.
type machine struct {
	mu     sync.Mutex
	stalls []stall
}

func watchMachine(ctx context.Context) *machine {
	m := &machine{}
	go func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			now := time.Now()
			m.mu.Lock()
			if now.Sub(last) > tick+stalled {
				m.stalls = append(m.stalls, stall{last, now})
			}
			m.mu.Unlock()
			last = now
		}
	}()
	return m
}

func (m *machine) longest(from, to time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var longest time.Duration
	for _, s := range slices.Backward(m.stalls) {
		if s.to.After(from) && s.from.Before(to) {
			longest = max(longest, s.to.Sub(s.from))
		}
	}
	return longest
}

func (m *machine) total(from, to time.Time) (total time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stalls {
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(to) {
			s.to = to
		}
		total += max(s.to.Sub(s.from), 0)
	}
	return total
}
