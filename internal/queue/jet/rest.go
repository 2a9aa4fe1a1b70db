package jet

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A backlog whose policy has no jobs rests: it keeps its consumer, which keeps former owners out,
// but has no goroutine or timer. A subscription for one message to the policy's subject ends the
// rest; the next pull delivers the job.
//
//	pulls ── a look finds no job ─► pulls, and listens ── the next one too ─► rests ─┐
//	  ▲                                                                                │
//	  └──────────────── a job is published; a look at all streams finds one ◄──────────┘
//
// It pulls for one look after it subscribes, because servers of a cluster learn of the subscription
// at different times. A delivery lost in between shows later in the consumer's numbers.
// [Broker.Rouse] finds jobs stored without a notice.

const (
	// rouseEvery is the interval of looks at the streams of resting backlogs.
	rouseEvery = 30 * time.Second
	// rouseShare bounds their duration to 1/rouseShare of the time.
	rouseShare = 200
)

type rest struct {
	mu     sync.Mutex
	hush   func() // unsubscribes, if not nil
	rung   bool   // a message has come since
	rests  bool
	closed bool
	atOnce bool // opened without jobs, and has not pulled yet
}

var errUnheard = errors.New("a job came when the backlog was about to rest")

func (l *Backlog) listen(door string) error {
	r := &l.rest
	r.mu.Lock()
	defer r.mu.Unlock()
	sub, hush, err := l.b.shared.subscribe(door, "", func(*nats.Msg) { l.ring() })
	if err != nil {
		return err
	}
	_ = sub.AutoUnsubscribe(1)
	r.hush, r.rung = hush, false
	return nil
}

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

func (l *Backlog) hush() {
	r := &l.rest
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hush != nil {
		r.hush()
	}
	r.hush, r.rests = nil, false
	l.b.resting.Delete(l)
}

// idles reports whether the backlog may rest: at the second look without jobs, and not with a
// closed door, where a publisher would take its subscription for a stream.
func (l *Backlog) idles(info *jetstream.StreamInfo) bool {
	r := &l.rest
	r.mu.Lock()
	listens, rung := r.hush != nil, r.rung
	r.mu.Unlock()
	empty := info.State.Msgs == 0 && len(info.Config.Subjects) > 0 && l.sweep.over.Load() &&
		l.acks.idle()
	if listens && (rung || !empty) {
		l.hush()
		listens = false
	}
	if l.o.Wake == nil || !empty {
		return false
	}
	if !listens {
		_ = l.listen(info.Config.Subjects[0])
		return false
	}
	return true
}

// Rest releases everything but the consumer, after [Update.Idle]. After an error, close the backlog
// and open it again: deliveries may be lost.
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
	l.b.resting.Store(l, time.Now())
	if r.rung {
		go l.o.Wake()
	}
	return nil
}

// Resume ends a rest: [Backlog.Next] returns jobs again.
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

// Rests reports whether the backlog has given up its consumer until a job comes.
func (l *Backlog) Rests() bool {
	l.rest.mu.Lock()
	defer l.rest.mu.Unlock()
	return l.rest.rests
}

// Rouse lists all streams periodically, twice after a reconnect, and wakes resting backlogs whose
// streams hold jobs, are gone or were replaced. With [Options.Lister] its lists serve.
func (b *Broker) Rouse(ctx context.Context) { b.rouses(ctx, rouseEvery) }

func (b *Broker) rouses(ctx context.Context, regularly time.Duration) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	due, reconnects := time.Now().Add(regularly), b.nc.Stats().Reconnects
	var last *survey
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if b.lister != nil {
			if found := b.lister.bounds.surveyed.Load(); found != last {
				last = found
				b.rouseBy(found)
			}
		}
		began, now := time.Now(), b.nc.Stats().Reconnects
		if now == reconnects && (b.lister != nil || began.Before(due)) {
			continue
		}
		err := b.rouse(ctx)
		if due = began; now == reconnects {
			due = began.Add(max(regularly, rouseShare*time.Since(began)))
		}
		if err == nil {
			reconnects = now
		}
	}
}

func (b *Broker) rouse(ctx context.Context) error {
	asleep := false
	b.resting.Range(func(_, _ any) bool { asleep = true; return false })
	if !asleep {
		return nil
	}
	found := newSurvey()
	_, _, _, err := b.bounds.boundedStreams(ctx, found, nil)
	if err == nil {
		b.rouseBy(found)
	}
	return err
}

func (b *Broker) rouseBy(found *survey) {
	b.resting.Range(func(resting, since any) bool {
		l := resting.(*Backlog)
		config, _ := found.streams.Load(l.o.Policy)
		open, _ := config.(jetstream.StreamConfig)
		if since.(time.Time).Before(found.began) && (found.waiting[l.o.Policy] > 0 ||
			len(open.Subjects) == 0 || !found.storage.Made[l.stream].Equal(l.created)) {
			l.ring()
		}
		return true
	})
}
