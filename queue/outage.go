package queue

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// unansweredAttempts is how many attempts in a row nobody answers before a stream is no longer
	// asked.
	unansweredAttempts = 5
	// probeEvery is how often one publish tries a stream that is not asked, and probeTimeout for
	// how long.
	probeEvery   = time.Second
	probeTimeout = time.Second
	// linkPatience is how long publishes wait for a connection that was just lost.
	linkPatience = 250 * time.Millisecond
)

// outages keep publishes from waiting for what is known not to answer: the connection, or JetStream
// for the stream of one policy. One policy's stream that lacks a leader holds up no other's. A nil
// one lets everybody wait.
type outages struct {
	b *Broker

	mu sync.Mutex
	// when a publish first found the connection missing; zero: it was there
	lost    time.Time
	streams map[string]*streamOutage // by policy, those that left the last attempt unanswered
	open    int                      // how many of them are not asked
}

// streamOutage is a stream that does not answer.
type streamOutage struct {
	failures int // attempts in a row that nobody answered
	open     bool
	probe    time.Time // when one may try again, while open
}

// enter returns an error, which is [ErrNotSent], when a publish makes no sense now, and else
// whether it is a probe: a single attempt, of a second at most.
func (o *outages) enter(ctx context.Context, policy string) (probe bool, err error) {
	if o == nil {
		return false, nil
	}
	if err := o.connected(ctx); err != nil {
		return false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s, now := o.streams[policy], time.Now()
	switch {
	case s == nil || !s.open:
		return false, nil
	case now.Before(s.probe):
		return false, fmt.Errorf("%w: %w: JetStream does not answer", ErrUnavailable, ErrNotSent)
	}
	s.probe = now.Add(probeTimeout + probeEvery)
	return true, nil
}

// connected waits for the connection, but no longer than linkPatience from when somebody first
// found it missing.
func (o *outages) connected(ctx context.Context) error {
	for {
		o.mu.Lock()
		now := time.Now()
		switch {
		case o.b.nc.IsConnected():
			o.lost = time.Time{}
		case o.lost.IsZero():
			o.lost = now
		}
		lost := o.lost
		o.mu.Unlock()
		switch {
		case lost.IsZero():
			return nil
		case now.Sub(lost) >= linkPatience:
			return fmt.Errorf("%w: %w: not connected to NATS", ErrUnavailable, ErrNotSent)
		}
		select {
		case <-time.After(linkPatience / 50):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: not connected to NATS: %w", ErrUnavailable, ErrNotSent,
				ctx.Err())
		}
	}
}

// answered notes that JetStream answered for a policy's stream, whatever it said.
func (o *outages) answered(policy string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.streams[policy]
	delete(o.streams, policy)
	if s == nil || !s.open {
		return
	}
	if o.open--; o.open == 0 {
		o.b.log.Info("JetStream answers again", "policy", policy)
	}
}

// unanswered notes that nobody answered so many attempts. The first stream of an outage is worth a
// line; the others would say the same.
func (o *outages) unanswered(policy string, attempts int, err error) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.streams[policy]
	if s == nil {
		if len(o.streams) >= maxKnownStreams {
			return
		}
		s = &streamOutage{}
		o.streams[policy] = s
	}
	if s.failures += attempts; s.failures < unansweredAttempts {
		return
	}
	s.probe = time.Now().Add(probeEvery)
	if s.open {
		return
	}
	s.open = true
	if o.open++; o.open == 1 {
		o.b.log.Warn(
			"JetStream does not answer: jobs are refused at once, and one a second tries again",
			"policy", policy, "error", err)
	}
}
