package workers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
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

func (s *scripted) claim(offer *nats.Msg) *nats.Msg {
	claim := nats.NewMsg(offer.Reply)
	claim.Header.Set("Penstock-Status", "claim")
	answer, err := s.nc.RequestMsg(claim, deadline)
	if err != nil {
		return nil
	}
	return answer
}

func (s *scripted) outcome(job *nats.Msg, status string) string {
	m := nats.NewMsg(job.Reply)
	m.Header.Set("Penstock-Status", status)
	for end := time.Now().Add(deadline); ; {
		answer, err := s.nc.RequestMsg(m, deadline/4)
		switch {
		case err == nil:
			return answer.Header.Get("Penstock-Status")
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
