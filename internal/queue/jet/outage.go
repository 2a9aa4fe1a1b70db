package jet

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// After this many consecutive unanswered attempts, publishes to a stream fail fast.
	unansweredAttempts = 5
	probeEvery         = time.Second
	probeTimeout       = time.Second
	// linkPatience bounds a publish's wait for a lost connection.
	linkPatience = 250 * time.Millisecond
)

// outages makes publishes fail fast while the connection, or JetStream for a policy's stream, does
// not answer; nil disables it.
type outages struct {
	b *Broker

	mu sync.Mutex
	// when the connection was found missing; zero: it is there
	lost    time.Time
	streams map[string]*streamOutage // by policy, while attempts are unanswered
	open    int
}

type streamOutage struct {
	failures int
	open     bool
	probe    time.Time // next probe, while open
}

// enter returns an [ErrNotSent] if a publish is pointless, and otherwise whether it is a probe: one
// attempt of at most probeTimeout.
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

// unanswered counts attempts. Only the first stream of an outage is logged.
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
			"JetStream does not answer: refusing jobs, with one probe a second",
			"policy", policy, "error", err)
	}
}
