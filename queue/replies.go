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

// replies are the answers to publishes, whose senders need not wait for one before they send the
// next. They come by one subscription, which lasts as long as the connection.
type replies struct {
	nc *nats.Conn

	mu      sync.Mutex
	inbox   string // with a dot at its end; empty: not subscribed yet
	last    uint64
	waiting map[string]chan *nats.Msg // by what follows the inbox
}

// reply is what one publish waits for. Who has got it may use it for another publish: see pooled.
type reply struct {
	from  *replies
	token string
	got   chan *nats.Msg
}

// pooled are replies that came: nobody knows of them any more. There is one for each job.
var pooled = sync.Pool{New: func() any { return &reply{got: make(chan *nats.Msg, 1)} }}

// send publishes m with a reply to come. What one goroutine sends is stored in that order.
func (r *replies) send(m *nats.Msg) (*reply, error) {
	w, err := r.expect()
	if err != nil {
		return nil, err
	}
	m.Reply = r.inbox + w.token
	if err := r.nc.PublishMsg(m); err != nil { // it keeps nothing of m
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
		got <- m // has room: nobody else delivers to it
	}
}

// forget lets a reply that still comes go to nobody.
func (w *reply) forget() {
	w.from.mu.Lock()
	defer w.from.mu.Unlock()
	delete(w.from.waiting, w.token)
}

// timers are those of replies that are not waited for any more. There is one for each job, and most
// come within a millisecond.
var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

// wait returns JetStream's answer, if it comes in time.
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

// read is JetStream's answer. The reply is of no more use then.
func (w *reply) read(m *nats.Msg) (jsapi.PubAck, error) {
	pooled.Put(w)
	const noResponders = "503"
	if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
		return jsapi.PubAck{}, nats.ErrNoResponders
	}
	return jsapi.ParsePubAck(m.Data)
}
