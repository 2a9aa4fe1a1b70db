package jet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
)

const (
	ackWindow = 16384
	// ackGroup bounds the acknowledgements that are confirmed on one subject: the server looks each
	// new subject up in its table of subscriptions.
	ackGroup = 256
	// ackRepeat is the time until a lost acknowledgement is sent again.
	ackRepeat = 2 * time.Second
	ackLook   = 500 * time.Millisecond
)

// acks acknowledges jobs on one consumer and repeats each acknowledgement until it is confirmed.
type acks struct {
	nc      *nats.Conn
	silence *natsconn.Silence
	prefix  string
	inbox   string
	sub     *nats.Subscription

	mu        sync.Mutex
	window    int // ackWindow, smaller in a test
	waiting   []uint64
	sent      map[string]*group // by reply subject
	last      uint64            // part of the latest subject
	pending   int               // jobs of unconfirmed groups
	confirmed []uint64
	heard     time.Time
	upTo      time.Time // send time of the latest confirmed one
	closed    bool
	// closed, and nil again, when no acknowledgement is queued or unconfirmed
	settled chan struct{}

	wake    chan struct{}
	news    chan struct{}
	stop    chan struct{}
	ended   chan struct{} // closed when confirmed is complete
	running sync.WaitGroup
}

// group is acknowledgements sent together, pending until all are confirmed.
type group struct {
	reply string
	seqs  []uint64
	left  int
	at    time.Time
}

func newAcks(js *jsapi.Conn, stream, consumer string) (*acks, error) {
	nc := js.NATS
	a := &acks{
		nc: nc, silence: js.Silence,
		prefix: "$JS.ACK." + stream + "." + consumer + ".1.", inbox: nc.NewInbox() + ".",
		window: ackWindow, sent: map[string]*group{},
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
	if a.closed {
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
		select {
		case <-a.stop:
			return
		case <-a.wake:
		case now := <-ticker.C:
			for _, g := range a.overdue(now) {
				a.publish(g)
			}
		}
		for g := a.take(time.Now()); g != nil; g = a.take(time.Now()) {
			a.publish(g)
		}
	}
}

func (a *acks) take(now time.Time) *group {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.waiting), a.window-a.pending, ackGroup)
	if n <= 0 {
		return nil
	}
	batch := a.waiting[:n:n]
	a.waiting = a.waiting[n:]
	return a.enter(batch, now)
}

func (a *acks) enter(seqs []uint64, now time.Time) *group {
	a.last++
	g := &group{a.inbox + strconv.FormatUint(a.last, 36), seqs, len(seqs), now}
	a.sent[g.reply] = g
	a.pending += len(seqs)
	return g
}

func (a *acks) leave(g *group) {
	delete(a.sent, g.reply)
	a.pending -= len(g.seqs)
}

// overdue returns the acknowledgements to send again, each alone, because they must not delay each
// other. The server confirms in order, so one is lost if a later one was confirmed, or if no job
// is. Repeating by age alone would double a slow server's work.
func (a *acks) overdue(now time.Time) (again []*group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	silent := now.Sub(a.heard) >= ackRepeat
	for _, g := range slices.Collect(maps.Values(a.sent)) {
		if now.Sub(g.at) >= ackRepeat && (silent || g.at.Before(a.upTo)) {
			if silent {
				a.silence.Unanswered(g.at)
			}
			a.leave(g)
			for _, seq := range g.seqs {
				again = append(again, a.enter([]uint64{seq}, now))
			}
		}
	}
	return again
}

// publish sends a group; send repeats it after an error. The server reads only the sequence in the
// reply subject.
func (a *acks) publish(g *group) {
	for _, seq := range g.seqs {
		_ = a.nc.PublishRequest(a.prefix+strconv.FormatUint(seq, 10)+".0.0.0", g.reply, nil)
	}
}

// A status, such as "no responders", confirms nothing.
func (a *acks) answered(m *nats.Msg) {
	if m.Header.Get("Status") != "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.sent[m.Subject]
	if g == nil {
		return
	}
	a.heard = time.Now()
	if g.at.After(a.upTo) {
		a.upTo = g.at
	}
	if g.left--; g.left > 0 {
		return
	}
	a.leave(g)
	if a.confirmed = append(a.confirmed, g.seqs...); len(a.confirmed) == len(g.seqs) {
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
	return len(a.waiting)+a.pending+len(a.confirmed) == 0
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

// sendAll sends all unconfirmed acknowledgements again, for a consumer that may be gone. New
// subjects prevent counting an acknowledgement twice.
func (a *acks) sendAll() {
	for _, g := range a.renew(time.Now()) {
		a.publish(g)
	}
}

func (a *acks) renew(now time.Time) (all []*group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range slices.Collect(maps.Values(a.sent)) {
		a.leave(g)
		all = append(all, a.enter(g.seqs, now))
	}
	if len(a.waiting) > 0 {
		all = append(all, a.enter(a.waiting, now))
		a.waiting = nil
	}
	return all
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
	return len(a.waiting) + a.pending
}
