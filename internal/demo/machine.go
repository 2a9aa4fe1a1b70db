package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// tick is the polling interval, and stalled the delay that counts as a stall.
	tick    = time.Millisecond
	stalled = 10 * time.Millisecond
)

// stall is a period in which this process did not run.
type stall struct {
	from, to time.Time
}

// machine records stalls. Requests sent at proper intervals arrive together if the API was stalled
// in between, so the report must distinguish stalls from faults of Penstock.
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

// longest returns the longest stall that touches a period.
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

// total returns the stalled part of a period.
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
