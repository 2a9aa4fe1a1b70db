package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	ackWindow = 16384
	// ackRepeat is the time after which a lost acknowledgement is sent again.
	ackRepeat = 2 * time.Second
	ackLook   = 500 * time.Millisecond
)

// acks acknowledges jobs on one consumer and repeats each acknowledgement until it is confirmed.
type acks struct {
	nc     *nats.Conn
	prefix string
	inbox  string
	sub    *nats.Subscription

	mu        sync.Mutex
	window    int                  // ackWindow, smaller in a test
	waiting   []uint64             // not sent yet
	sent      map[uint64]time.Time // unconfirmed, by the time each was last sent
	confirmed []uint64             // not handed over yet
	heard     time.Time            // last confirmation
	upTo      time.Time            // latest send time among the confirmed
	closed    bool
	// closed, and nil again, when no acknowledgement is queued or unconfirmed
	settled chan struct{}

	wake    chan struct{}
	news    chan struct{} // confirmed has grown
	stop    chan struct{}
	ended   chan struct{} // confirmed grows no more
	running sync.WaitGroup
}

func newAcks(nc *nats.Conn, stream, consumer string) (*acks, error) {
	a := &acks{
		nc: nc, prefix: "$JS.ACK." + stream + "." + consumer + ".1.", inbox: nc.NewInbox() + ".",
		window: ackWindow, sent: map[uint64]time.Time{},
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	var err error
	if a.sub, err = nc.Subscribe(a.inbox+"*", a.answered); err == nil {
		err = a.sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	a.running.Go(a.send)
	return a, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (a *acks) add(seq uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, underWay := a.sent[seq]; underWay || a.closed {
		return
	}
	a.waiting = append(a.waiting, seq)
	if len(a.waiting) == 1 {
		signal(a.wake)
	}
}

func (a *acks) send() {
	ticker := time.NewTicker(ackLook)
	defer ticker.Stop()
	for {
		var again []uint64
		select {
		case <-a.stop:
			return
		case <-a.wake:
		case now := <-ticker.C:
			again = a.overdue(now)
		}
		for _, seq := range again {
			a.publish(seq)
		}
		for batch := a.take(time.Now()); len(batch) > 0; batch = a.take(time.Now()) {
			for _, seq := range batch {
				a.publish(seq)
			}
		}
	}
}

func (a *acks) take(now time.Time) []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := max(0, min(len(a.waiting), a.window-len(a.sent)))
	batch := a.waiting[:n:n]
	a.waiting = a.waiting[n:]
	for _, seq := range batch {
		a.sent[seq] = now
	}
	return batch
}

// overdue returns the acknowledgements to send again. The server confirms in order, so one is lost
// if a later one was confirmed, or if none is. Repeating by age alone would double a slow server's
// work.
func (a *acks) overdue(now time.Time) []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	silent := now.Sub(a.heard) >= ackRepeat
	var again []uint64
	for seq, at := range a.sent {
		if now.Sub(at) >= ackRepeat && (silent || at.Before(a.upTo)) {
			again = append(again, seq)
			a.sent[seq] = now
		}
	}
	return again
}

// publish sends one acknowledgement; send repeats it after an error. The server reads only the
// sequence in the reply subject.
func (a *acks) publish(seq uint64) {
	s := strconv.FormatUint(seq, 10)
	_ = a.nc.PublishRequest(a.prefix+s+".0.0.0", a.inbox+s, nil)
}

// A status, such as "no responders", is no confirmation.
func (a *acks) answered(m *nats.Msg) {
	seq, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, a.inbox), 10, 64)
	if err != nil || m.Header.Get("Status") != "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at, underWay := a.sent[seq]
	if !underWay {
		return
	}
	delete(a.sent, seq)
	a.heard = time.Now()
	if at.After(a.upTo) {
		a.upTo = at
	}
	a.confirmed = append(a.confirmed, seq)
	if len(a.confirmed) == 1 {
		signal(a.news)
	}
	if len(a.waiting) > 0 {
		signal(a.wake)
	} else if len(a.sent) == 0 && a.settled != nil {
		close(a.settled)
		a.settled = nil
	}
}

func (a *acks) gone(seq uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.confirmed = append(a.confirmed, seq); len(a.confirmed) == 1 {
		signal(a.news)
	}
}

func (a *acks) takeConfirmed() []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	batch := a.confirmed
	a.confirmed = nil
	return batch
}

func (a *acks) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting)+len(a.sent)+len(a.confirmed) == 0
}

func (a *acks) settle(ctx context.Context) {
	a.mu.Lock()
	if len(a.waiting) == 0 && len(a.sent) == 0 {
		a.mu.Unlock()
		return
	}
	if a.settled == nil {
		a.settled = make(chan struct{})
	}
	settled := a.settled
	a.mu.Unlock()
	select {
	case <-settled:
	case <-ctx.Done():
	}
}

// sendAll sends all unconfirmed acknowledgements again, for a consumer that may be gone.
func (a *acks) sendAll() {
	a.mu.Lock()
	all := append(slices.Collect(maps.Keys(a.sent)), a.waiting...)
	now := time.Now()
	for _, seq := range a.waiting {
		a.sent[seq] = now
	}
	a.waiting = nil
	a.mu.Unlock()
	for _, seq := range all {
		a.publish(seq)
	}
}

// close returns the number of unconfirmed acknowledgements. Confirmed ones can still be taken.
func (a *acks) close() int {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return 0
	}
	a.closed = true
	a.mu.Unlock()
	close(a.stop)
	a.running.Wait()
	_ = a.sub.Unsubscribe()

	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.ended)
	return len(a.waiting) + len(a.sent)
}
