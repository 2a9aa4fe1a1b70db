package workers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

func (b *bench) lend(o Options, handlers map[string]Handler) (stop func()) {
	b.t.Helper()
	ready := make(chan struct{})
	o.WorkerOnly, o.Ready = true, func() { close(ready) }
	stop = b.drain(o, handlers)
	b.receive("the lender is ready", ready)
	return stop
}

func (b *bench) valve(o Options) (stop func()) {
	b.t.Helper()
	ready := make(chan struct{})
	o.OwnAll, o.Ready = true, func() { close(ready) }
	stop = b.drain(o, nil)
	b.receive("the valve is ready", ready)
	return stop
}

func (b *bench) receive(what string, from <-chan struct{}) {
	b.t.Helper()
	select {
	case <-from:
	case <-time.After(deadline):
		b.t.Fatalf("waited in vain until %s", what)
	}
}

type scripted struct {
	b   *bench
	nc  *nats.Conn
	sub *nats.Subscription
}

func (b *bench) script(name string, offered func(s *scripted, offer *nats.Msg)) *scripted {
	b.t.Helper()
	s := &scripted{b: b, nc: b.connect()}
	var err error
	if s.sub, err = s.nc.QueueSubscribe("penstock.work."+name, "workers", func(m *nats.Msg) {
		offered(s, m)
	}); err != nil {
		b.t.Fatal(err)
	}
	if err := s.nc.Flush(); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// claim claims a job with free slots, and returns the valve's turn; nil: none came.
func (s *scripted) claim(offer *nats.Msg, slots int, except ...queue.Key) *nats.Msg {
	answer, err := s.nc.RequestMsg(&nats.Msg{Subject: offer.Reply,
		Data: said(job.Claim{Op: job.OpClaim, Want: job.WantJob, Slots: slots, Except: except})},
		deadline)
	if err != nil {
		return nil
	}
	return answer
}

// busy answers an offer without a claim.
func (s *scripted) busy(offer *nats.Msg) {
	_ = s.nc.PublishRequest(offer.Reply, s.nc.NewInbox(),
		said(job.Claim{Op: job.OpClaim, Want: job.WantJob}))
}

func said(c job.Claim) []byte {
	c.V, c.ID, c.N = job.FormatVersion, "w", 1
	text, _ := json.Marshal(c)
	return text
}

// turnOf returns the turn of a message, an empty one for nil.
func turnOf(m *nats.Msg) (t job.Turn) {
	if m != nil {
		text, _ := job.Carried(m.Header, m.Data)
		t, _ = job.ReadTurn(text)
	}
	return t
}

func isGo(m *nats.Msg) bool { return turnOf(m).State == job.TurnGo }

// report repeats a report until it is answered, and returns the answer's state.
func (s *scripted) report(started *nats.Msg, op, status string) string {
	m := &nats.Msg{Subject: started.Reply,
		Data: said(job.Claim{Op: op, Settlement: job.Settlement{Status: status}})}
	for end := time.Now().Add(deadline); ; {
		answer, err := s.nc.RequestMsg(m, deadline/4)
		switch {
		case err == nil:
			return turnOf(answer).State
		case !errors.Is(err, nats.ErrTimeout) || time.Now().After(end):
			return err.Error()
		}
	}
}

func (s *scripted) stop() {
	if err := s.sub.Unsubscribe(); err != nil {
		s.b.t.Error(err)
	}
	if err := s.nc.Flush(); err != nil {
		s.b.t.Error(err)
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

type starts struct {
	slog.Handler
	mu   sync.Mutex
	jobs []start
}

type start struct {
	at  time.Time
	job string
}

func (s *starts) Enabled(context.Context, slog.Level) bool { return true }

func (s *starts) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "start" {
		return nil
	}
	var begun start
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "started":
			begun.at = a.Value.Time()
		case "job":
			begun.job = a.Value.String()
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, begun)
	return nil
}

func (s *starts) all() (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.jobs, func(a, b start) int { return a.at.Compare(b.at) })
	for _, begun := range s.jobs {
		all = append(all, begun.at.Sub(s.jobs[0].at))
	}
	return all
}

// ids returns the jobs in the order of their first starts.
func (s *starts) ids() (ids []string) {
	s.all()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, begun := range s.jobs {
		if !slices.Contains(ids, begun.job) {
			ids = append(ids, begun.job)
		}
	}
	return ids
}

type gauge struct{ now, most atomic.Int64 }

func (g *gauge) enter() {
	n := g.now.Add(1)
	for {
		most := g.most.Load()
		if n <= most || g.most.CompareAndSwap(most, n) {
			return
		}
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
