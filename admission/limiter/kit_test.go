package limiter_test

import (
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/admission/limiter/inredis"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	// timeout is generous, because machines may be busy.
	timeout = 2 * time.Second
)

type shared struct {
	t       *testing.T
	server  *redistest.Server
	factory *limiter.Factory
	log     *waittest.Log
	mu      sync.Mutex
	up      bool
	fell    map[string]int
}

func (s *shared) Take(e queue.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Type {
	case jet.EventStoreUp:
		s.up = e.Value > 0
	case jet.EventFellBack:
		s.fell[e.Policy+" "+e.Name]++
	}
}

func (s *shared) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

func (s *shared) fallbacks() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.fell {
		n += times
	}
	return n
}

func share(t *testing.T, server *redistest.Server) *shared {
	t.Helper()
	return shareFor(t, server, server.Addr(), waittest.Patience())
}

func shareFor(t *testing.T, server *redistest.Server, address string,
	timeout time.Duration) *shared {
	t.Helper()
	s := &shared{t: t, server: server, log: &waittest.Log{}, fell: map[string]int{}}
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{address},
		ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	s.factory = limiter.New(limiter.Options{
		Shared: inredis.New(rdb, inredis.Options{Timeout: timeout}),
		Sink:   s, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	return s
}

func (s *shared) limit(p policy.Policy, mode policy.OnStoreError) admission.Limiter {
	s.t.Helper()
	p.OnStoreError = mode
	limit, err := s.factory.Limit(p.WithDefaults(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	limit.Commit()
	return limit.Limiter
}

func (s *shared) until(what string, done func() bool) {
	s.t.Helper()
	waittest.Until(s.t, what, done)
}

func tokens(name string, n int64) policy.Policy {
	return policy.Policy{Name: name,
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: n, Refill: rate("1/d")}}
}

func window(name string, n int64) policy.Policy {
	p := one(policy.FixedWindow, n)
	p.Name = name
	return p
}

type proxy struct {
	listener net.Listener
	mu       sync.Mutex
	waits    time.Duration
	once     bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go p.answer(client, server)
		}
	}()
	return p
}

func (p *proxy) answer(client, server net.Conn) {
	defer client.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		wait := p.waits
		if p.once {
			p.waits, p.once = 0, false
		}
		p.mu.Unlock()
		<-time.After(wait)
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) delayOnce(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits, p.once = d, true
}

func (p *proxy) delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = d
}
