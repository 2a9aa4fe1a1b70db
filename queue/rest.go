package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A backlog whose policy has no jobs rests: it keeps its consumer, which keeps former owners out,
// and neither pulls from it nor has a goroutine or a timer. It listens to what is published to the
// policy, once: the first job ends the rest, and comes by the next pull.
//
//	pulls ── a look finds no job ─► pulls, and listens ── the next one too ─► rests ─┐
//	  ▲                                                                                │
//	  └──────────────── a job is published; a look at all streams finds one ◄──────────┘
//
// It pulls on for one look after it began to listen, since the servers of a cluster hear of that
// one after the other. Should a delivery get lost in between, the consumer's numbers show it later,
// as for any other. What is stored without a sign of it (a route between servers was down) is found
// by [Broker.Rouse].

const (
	// rouseEvery is how often the streams of backlogs that rest are looked at.
	rouseEvery = 30 * time.Second
	// rouseShare bounds what that costs where there are many streams: a part of the time.
	rouseShare = 200
)

// rest is how a backlog stands that rests, or is about to.
type rest struct {
	mu     sync.Mutex
	hush   func() // stops listening; nil: it does not listen
	rung   bool   // something was published since it began to listen
	rests  bool
	closed bool
	atOnce bool // it was opened without jobs, and has not pulled yet
}

// resting are the backlogs of a broker that rest.
type resting struct {
	mu  sync.Mutex
	all map[*Backlog]struct{}
}

func (r *resting) add(l *Backlog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*Backlog]struct{}{}
	}
	r.all[l] = struct{}{}
}

var errUnheard = errors.New("a job came when the backlog was about to rest")

// listen waits for what is published to the policy, from now on.
func (l *Backlog) listen(door string) error {
	r := &l.rest
	r.mu.Lock()
	defer r.mu.Unlock()
	sub, hush, err := l.b.shared.subscribe(door, func(*nats.Msg) { l.ring() })
	if err != nil {
		return err
	}
	_ = sub.AutoUnsubscribe(1) // at the server, which forwards no more than that
	r.hush, r.rung = hush, false
	return nil
}

// ring takes that something was published, or may have been.
func (l *Backlog) ring() {
	r := &l.rest
	r.mu.Lock()
	r.rung = true
	rests := r.rests
	r.mu.Unlock()
	if rests {
		l.o.Wake()
	}
}

// hush stops listening, and ends a rest.
func (l *Backlog) hush() {
	r, all := &l.rest, &l.b.resting
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hush != nil {
		r.hush()
	}
	r.hush, r.rests = nil, false
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.all, l)
}

// idles looks whether the backlog may rest, and reports whether it does since the last look. With
// its door closed it stays awake: a publisher must not take a backlog that listens for a stream.
func (l *Backlog) idles(info *jetstream.StreamInfo) bool {
	r := &l.rest
	r.mu.Lock()
	listens, rung := r.hush != nil, r.rung
	r.mu.Unlock()
	empty := info.State.Msgs == 0 && len(info.Config.Subjects) > 0 && l.swept() && l.acks.idle()
	if listens && (rung || !empty) {
		l.hush()
		listens = false
	}
	if l.o.Wake == nil || !empty {
		return false
	}
	if !listens {
		_ = l.listen(info.Config.Subjects[0]) // or at the next look
		return false
	}
	return true
}

// Rest lets go of everything but the consumer, after [Update.Idle]. An error says why deliveries
// may have been lost: the backlog must be closed, and opened again.
func (l *Backlog) Rest() error {
	r := &l.rest
	if !r.atOnce {
		l.cancel()
		l.pulling.Wait()
		l.acks.close()
		select {
		case err := <-l.broken:
			return err
		default:
		}
		if l.unheard {
			return errUnheard
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.rests, r.atOnce = true, false
	l.b.resting.add(l)
	if r.rung {
		go l.o.Wake() // a rest that is over at once
	}
	return nil
}

// Resume ends a rest: jobs come by [Backlog.Next] again. It does nothing to a backlog that does not
// rest, and reports whether it did.
func (l *Backlog) Resume() (resumed bool, err error) {
	r := &l.rest
	r.mu.Lock()
	rests := r.rests
	r.mu.Unlock()
	if !rests {
		return false, nil
	}
	l.hush()
	return true, l.begin(nil)
}

// Rouse wakes backlogs that rest although their streams hold jobs, are gone or have been replaced,
// until the context ends. It lists all streams once in a while.
func (b *Broker) Rouse(ctx context.Context) {
	timer := time.NewTimer(rouseEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		b.rouse(ctx)
		timer.Reset(max(rouseEvery, rouseShare*time.Since(began)))
	}
}

func (b *Broker) rouse(ctx context.Context) {
	b.resting.mu.Lock()
	asleep := slices.Collect(maps.Keys(b.resting.all))
	b.resting.mu.Unlock()
	if len(asleep) == 0 {
		return
	}
	found := map[string]*jetstream.StreamInfo{}
	err := b.js.EachStream(ctx, func(info *jetstream.StreamInfo) { found[info.Config.Name] = info })
	if err != nil {
		return
	}
	for _, l := range asleep {
		info := found[l.stream]
		if info == nil || info.State.Msgs > 0 || len(info.Config.Subjects) == 0 ||
			!info.Created.Equal(l.created) {
			l.ring()
		}
	}
}
