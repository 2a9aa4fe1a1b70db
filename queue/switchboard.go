package queue

import (
	"sync"

	"github.com/nats-io/nats.go"
)

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
