package queue

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
)

// replies receives the answers to publishes, so that a sender need not wait for one before it
// sends the next. One subscription serves all, for the lifetime of the connection.
type replies struct {
	nc *nats.Conn

	mu      sync.Mutex
	inbox   string // with its trailing dot; empty: not subscribed yet
	last    uint64
	waiting map[string]chan *nats.Msg // by the subject's part after the inbox
}

// reply is a pending acknowledgement of one publish. It is reused once received: see pooled.
type reply struct {
	from  *replies
	token string
	got   chan *nats.Msg
}

// pooled holds replies that were received and have no other reference. Each job takes one.
var pooled = sync.Pool{New: func() any { return &reply{got: make(chan *nats.Msg, 1)} }}

// send publishes m and returns its pending reply. Messages of one goroutine are stored in order.
func (r *replies) send(m *nats.Msg) (*reply, error) {
	w, err := r.expect()
	if err != nil {
		return nil, err
	}
	m.Reply = r.inbox + w.token
	if err := r.nc.PublishMsg(m); err != nil { // it keeps no reference to m
		w.forget()
		return nil, err
	}
	return w, nil
}

func (r *replies) expect() (*reply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inbox == "" {
		inbox := r.nc.NewInbox() + "."
		if _, err := r.nc.Subscribe(inbox+"*", r.deliver); err != nil {
			return nil, err
		}
		r.inbox, r.waiting = inbox, map[string]chan *nats.Msg{}
	}
	r.last++
	w := pooled.Get().(*reply)
	w.from, w.token = r, strconv.FormatUint(r.last, 36)
	r.waiting[w.token] = w.got
	return w, nil
}

func (r *replies) deliver(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	token := strings.TrimPrefix(m.Subject, r.inbox)
	if got := r.waiting[token]; got != nil {
		delete(r.waiting, token)
		got <- m // has room: each reply is delivered once
	}
}

// forget makes deliver ignore a reply that still comes.
func (w *reply) forget() {
	w.from.mu.Lock()
	defer w.from.mu.Unlock()
	delete(w.from.waiting, w.token)
}

// timers holds timers of replies that came. Each job takes one, and most replies come within a
// millisecond.
var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

// wait returns JetStream's answer if it comes in time.
func (w *reply) wait(ctx context.Context, within time.Duration) (jsapi.PubAck, error) {
	select {
	case m := <-w.got:
		return w.read(m)
	default:
	}
	timer := timers.Get().(*time.Timer)
	timer.Reset(within)
	defer func() {
		timer.Stop()
		timers.Put(timer)
	}()
	select {
	case m := <-w.got:
		return w.read(m)
	case <-timer.C:
		w.forget()
		return jsapi.PubAck{}, context.DeadlineExceeded
	case <-ctx.Done():
		w.forget()
		return jsapi.PubAck{}, ctx.Err()
	}
}

// read parses JetStream's answer and releases the reply.
func (w *reply) read(m *nats.Msg) (jsapi.PubAck, error) {
	pooled.Put(w)
	const noResponders = "503"
	if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
		return jsapi.PubAck{}, nats.ErrNoResponders
	}
	return jsapi.ParsePubAck(m.Data)
}
