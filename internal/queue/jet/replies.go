package jet

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

// replies publishes messages and receives their answers on one subscription. Concurrent messages
// are published together.
type replies struct {
	nc *nats.Conn

	publishing sync.Mutex // while queued messages are published

	mu        sync.Mutex
	inbox     string // empty: not subscribed
	last      uint64
	published uint64 // the client has read messages up to this one
	waiting   map[uint64]chan answered
	queued    []*nats.Msg
}

type reply struct {
	from *replies
	n    uint64 // in base 36 the last part of the subject
	got  chan answered
}

type answered struct {
	m   *nats.Msg
	err error
}

var pooled = sync.Pool{New: func() any { return &reply{got: make(chan answered, 1)} }}

// send queues m. Messages of one goroutine are stored in order.
func (r *replies) send(m *nats.Msg) (*reply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inbox == "" {
		inbox := r.nc.NewInbox() + "."
		if _, err := r.nc.Subscribe(inbox+"*", func(m *nats.Msg) {
			r.deliver(m.Subject, answered{m: m})
		}); err != nil {
			return nil, err
		}
		r.inbox, r.waiting = inbox, map[uint64]chan answered{}
	}
	r.last++
	w := pooled.Get().(*reply)
	w.from, w.n = r, r.last
	r.waiting[w.n] = w.got
	queued := m.Reply != "" && slices.Contains(r.queued, m) // by an earlier attempt
	m.Reply = r.inbox + strconv.FormatUint(w.n, 36)
	if queued {
		return w, nil
	}
	if r.queued = append(r.queued, m); len(r.queued) == 1 {
		go r.publish()
	}
	return w, nil
}

func (r *replies) publish() {
	runtime.Gosched() // lets other goroutines send, too
	r.publishing.Lock()
	defer r.publishing.Unlock()
	r.mu.Lock()
	group := slices.DeleteFunc(r.queued, func(m *nats.Msg) bool {
		return r.waiting[r.number(m.Reply)] == nil
	})
	last := r.last
	r.queued = nil
	r.mu.Unlock()
	for _, m := range group {
		if err := r.nc.PublishMsg(m); err != nil { // does not retain m
			r.deliver(m.Reply, answered{err: err})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published = last
}

func (r *replies) deliver(subject string, a answered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.number(subject)
	if got := r.waiting[n]; got != nil {
		delete(r.waiting, n)
		got <- a
	}
}

// number returns a reply's number, 0 for none.
func (r *replies) number(subject string) uint64 {
	n, err := strconv.ParseUint(strings.TrimPrefix(subject, r.inbox), 36, 64)
	if err != nil {
		return 0
	}
	return n
}

// forget discards a late reply. Afterwards its message may be reused.
func (w *reply) forget() {
	r := w.from
	r.mu.Lock()
	delete(r.waiting, w.n)
	published := w.n <= r.published
	r.mu.Unlock()
	if !published { // perhaps at this moment
		r.publishing.Lock()
		defer r.publishing.Unlock()
	}
}

var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

func (w *reply) wait(ctx context.Context, within time.Duration) (jsapi.PubAck, error) {
	select {
	case a := <-w.got:
		return w.read(a)
	default:
	}
	timer := timers.Get().(*time.Timer)
	timer.Reset(within)
	defer func() {
		timer.Stop()
		timers.Put(timer)
	}()
	select {
	case a := <-w.got:
		return w.read(a)
	case <-timer.C:
		w.forget()
		return jsapi.PubAck{}, context.DeadlineExceeded
	case <-ctx.Done():
		w.forget()
		return jsapi.PubAck{}, ctx.Err()
	}
}

// read parses JetStream's answer and returns w to the pool.
func (w *reply) read(a answered) (jsapi.PubAck, error) {
	pooled.Put(w)
	const noResponders = "503"
	m := a.m
	if a.err != nil {
		return jsapi.PubAck{}, a.err
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
		return jsapi.PubAck{}, nats.ErrNoResponders
	}
	return jsapi.ParsePubAck(m.Data)
}

// switchboard serves up to ten thousand subscriptions with one goroutine; nats.go uses one for
// each.
type switchboard struct {
	nc *nats.Conn

	mu    sync.Mutex // held while subscribing, because a message may be faster
	lines map[*nats.Subscription]func(*nats.Msg)
	in    chan *nats.Msg
	stop  chan struct{}
}

const switchboardRoom = 1 << 14

// subscribe calls handle for the messages of a subject, shared with the members of a group unless
// that is empty, until stop; messages that already arrived may follow.
func (s *switchboard) subscribe(subject, group string,
	handle func(*nats.Msg)) (sub *nats.Subscription, stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) == 0 {
		s.lines = map[*nats.Subscription]func(*nats.Msg){}
		s.in, s.stop = make(chan *nats.Msg, switchboardRoom), make(chan struct{})
	}
	if sub, err = s.nc.ChanQueueSubscribe(subject, group, s.in); err != nil {
		return nil, nil, err
	}
	if s.lines[sub] = handle; len(s.lines) == 1 {
		go s.run(s.in, s.stop)
	}
	return sub, sync.OnceFunc(func() { s.unsubscribe(sub) }), nil
}

func (s *switchboard) unsubscribe(sub *nats.Subscription) {
	_ = sub.Unsubscribe()
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.lines, sub); len(s.lines) == 0 {
		close(s.stop)
	}
}

func (s *switchboard) run(in chan *nats.Msg, stop chan struct{}) {
	for {
		select {
		case m := <-in:
			s.mu.Lock()
			handle := s.lines[m.Sub]
			s.mu.Unlock()
			if handle != nil {
				handle(m)
			}
		case <-stop:
			return
		}
	}
}
