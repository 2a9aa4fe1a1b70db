package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// owner plays a valve in another process.
type owner struct {
	b        *bench
	nc       *nats.Conn
	inbox    string
	reports  chan *nats.Msg
	maxDelay time.Duration
}

func (b *bench) owns() *owner {
	b.t.Helper()
	o := &owner{b: b, nc: b.connect(), reports: make(chan *nats.Msg, 100)}
	o.inbox = o.nc.NewInbox()
	if _, err := o.nc.ChanSubscribe(o.inbox, o.reports); err != nil {
		b.t.Fatal(err)
	}
	return o
}

// asks returns a worker's claim, as soon as there is a worker.
func (o *owner) asks(offer []byte) (m *nats.Msg, c job.Claim) {
	o.b.t.Helper()
	var err error
	o.b.until("a worker answers", func() bool {
		m, err = o.nc.Request("penstock.work.api", offer, deadline)
		return !errors.Is(err, nats.ErrNoResponders)
	})
	if err == nil {
		c, err = job.ReadClaim(m.Data)
	}
	if err != nil {
		o.b.t.Fatal(err)
	}
	return m, c
}

func (o *owner) offers() (*nats.Msg, job.Claim) {
	o.b.t.Helper()
	return o.asks(encoded(job.Turn{State: job.TurnOffer}))
}

// starts sends a job of key "a" to the worker with a claim.
func (o *owner) starts(claim *nats.Msg, lease time.Duration) {
	o.b.t.Helper()
	if err := o.nc.PublishMsg(jobMessage(claim.Reply, o.inbox,
		Job{ID: "api:1", Policy: "api", Key: "a", Attempt: 1,
			settled: &settled{maxDelay: o.maxDelay}}, lease)); err != nil {
		o.b.t.Fatal(err)
	}
}

// runs starts a job, and returns the claim for it when the handler has begun. It repeats the offer
// if the machine was too slow for the job to start.
func (o *owner) runs(began <-chan struct{}, lease time.Duration) job.Claim {
	o.b.t.Helper()
	for {
		m, c := o.offers()
		o.starts(m, lease)
		select {
		case <-began:
			return c
		case m := <-o.reports:
			if c := o.read(m); c.Status != job.SettledReturned {
				o.b.t.Fatalf("report %+v", c)
			}
			o.says(m, job.TurnSettled)
		case <-time.After(deadline):
			o.b.t.Fatal("no job began")
		}
	}
}

// hears returns the next report.
func (o *owner) hears() (m *nats.Msg, c job.Claim) {
	o.b.t.Helper()
	select {
	case m = <-o.reports:
	case <-time.After(deadline):
		o.b.t.Fatal("no report came")
	}
	return m, o.read(m)
}

func (o *owner) read(m *nats.Msg) job.Claim {
	o.b.t.Helper()
	c, _, err := readReport(m, time.Now())
	if err != nil {
		o.b.t.Fatal(err)
	}
	return c
}

func (o *owner) says(m *nats.Msg, state string) {
	o.b.t.Helper()
	if err := m.Respond(encoded(job.Turn{State: state})); err != nil {
		o.b.t.Fatal(err)
	}
}

// A worker whose claim nobody answered is free again; a job that comes later goes back, even if its
// claim is closed.
func TestALateJobGoesBack(t *testing.T) {
	policy := leaky("api", "1000/s")
	policy.Workers = 16
	b := newBench(t, policy)
	var ran seen
	p := b.owns()
	b.lend(Options{}, map[string]Handler{"api": ran.handle})
	claim, _ := p.offers()
	b.until("the worker is free again", func() bool {
		m, c := p.offers()
		p.says(m, job.TurnRefused)
		return c.Slots == 16
	})
	p.starts(claim, time.Minute)
	if _, c := p.hears(); c.Status != job.SettledReturned {
		t.Errorf("report %+v", c)
	}
	if n := len(ran.all()); n != 0 {
		t.Errorf("%d jobs ran", n)
	}
}

// The final check looks at the clock right before the start.
func TestAJobThatIsReadTooLateGoesBack(t *testing.T) {
	for name, spoil := range map[string]func(k *loan){
		"late":      func(k *loan) { k.at = k.at.Add(-job.ClaimWindow) },
		"jumped":    func(k *loan) { k.jumps++ },
		"in time":   func(k *loan) { k.at = k.at.Add(time.Hour) },
		"malformed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			p := b.owns()
			d, err := New(b.connect(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.end)
			if err := d.lender.listen(); err != nil {
				t.Fatal(err)
			}
			var ran seen
			k := &loan{Claimant: d.lender.claims.Open("x"), handle: ran.handle, at: d.now(),
				crew: &workforce{keys: map[queue.Key]int{}}, jumps: d.clock.Jumps()}
			offers, err := p.nc.SubscribeSync("offer")
			if err != nil || p.nc.Flush() != nil {
				t.Fatal(err)
			}
			if err := k.Send("offer", job.Claim{Op: job.OpClaim}); err != nil {
				t.Fatal(err)
			}
			claim, err := offers.NextMsg(deadline)
			if err != nil {
				t.Fatal(err)
			}
			want := job.SettledReturned
			if spoil != nil {
				p.starts(claim, time.Minute)
				if spoil(k); name == "in time" {
					want = job.SettledDone
				}
			} else if err := p.nc.PublishRequest(claim.Reply, p.inbox,
				[]byte(`{"v":1,"state":"go","job":{"attempt":"x"}}`)); err != nil {
				t.Fatal(err)
			}
			go d.lender.run(k)
			m, c := p.hears()
			p.says(m, job.TurnSettled)
			if c.Status != want || len(ran.all()) == 1 != (want == job.SettledDone) {
				t.Errorf("report %+v, %d jobs ran", c, len(ran.all()))
			}
		})
	}
}

func TestASettlementIsRepeatedUntilItIsAnswered(t *testing.T) {
	b := newBench(t, leaky("api", "1000/s"))
	p := b.owns()
	began, end := make(chan struct{}), make(chan struct{})
	stop := b.lend(Options{}, map[string]Handler{"api": func(_ context.Context, j Job) error {
		began <- struct{}{}
		<-end
		j.Settle("tokens", 7)
		return nil
	}})
	p.runs(began, time.Minute)
	close(end)
	first, c := p.hears()
	again, same := p.hears()
	if c.Status != job.SettledDone || c.Used["tokens"] != 7 || same.Status != c.Status ||
		same.N <= c.N || first.Reply == again.Reply {
		t.Errorf("reports %+v, then %+v", c, same)
	}
	p.says(first, job.TurnSettled) // of the earlier message: it may come late
	third, _ := p.hears()
	p.says(third, job.TurnGone)
	stop()
	if n := len(p.reports); n > 0 {
		t.Errorf("%d more reports", n)
	}
}

// Progress renews a job's lease, and its answer tells the worker that the valve waits no longer.
func TestAWorkerReportsUntilItsValveWaitsNoLonger(t *testing.T) {
	for _, state := range []string{job.TurnGone, job.TurnStop} {
		t.Run(state, func(t *testing.T) {
			b := newBench(t, leaky("api", "1000/s"))
			p := b.owns()
			began := make(chan struct{})
			b.lend(Options{}, map[string]Handler{"api": func(ctx context.Context, j Job) error {
				began <- struct{}{}
				j.Progress("40 %")
				<-ctx.Done()
				return Unavailable(ctx.Err())
			}})
			p.runs(began, 6*time.Second)
			for _, answer := range []string{job.TurnSettled, state} {
				m, c := p.hears()
				if c.Op != job.OpProgress || c.Progress != "40 %" {
					t.Errorf("report %+v", c)
				}
				p.says(m, answer)
			}
			if m, c := p.hears(); c.Op != job.OpSettle || c.Status != job.SettledReturned {
				t.Errorf("report %+v: its target is not to blame", c)
			} else {
				p.says(m, job.TurnSettled)
			}
		})
	}
}

func TestAnOfferThatIsNotUnderstoodIsRefused(t *testing.T) {
	b := newBench(t, leaky("api", "1000/s"))
	log := logged{t: t}
	p := b.owns()
	b.lend(Options{Logger: log.logger()}, map[string]Handler{"api": (&seen{}).handle})
	for _, text := range []string{`{"v":2,"state":"offer"}`, "?"} {
		if _, c := p.asks([]byte(text)); c.Slots != 0 {
			t.Errorf("%s: %+v", text, c)
		}
	}
	if n := log.lines("refused an offer", "policy=api"); n == 0 {
		t.Error("no line about it")
	}
}

// A claim excludes the buckets that run more than three times as many jobs as would stay free, and
// counts each open claim for all of them.
func TestClaimsExceptBucketsThatHaveTheirShare(t *testing.T) {
	policy := leaky("api", "1000/s")
	policy.Workers = 16
	b := newBench(t, policy)
	p := b.owns()
	began, release := make(chan struct{}), make(chan struct{})
	b.lend(Options{}, map[string]Handler{"api": func(context.Context, Job) error {
		began <- struct{}{}
		<-release
		return nil
	}})
	for n := range 12 {
		if c := p.runs(began, time.Minute); c.Slots != 16-n || len(c.Except) != 0 {
			t.Fatalf("claim %d: %+v", n, c)
		}
	}
	if _, c := p.offers(); c.Slots != 4 || !slices.Equal(c.Except, []queue.Key{"a"}) {
		t.Errorf("claim %+v", c)
	}
	close(release)
	settled := 0
	b.until("all have ended", func() bool {
		if m, c := p.hears(); c.Op == job.OpSettle {
			settled++
			p.says(m, job.TurnSettled)
		}
		return settled == 12
	})
}

func TestRoomForOtherDrainersJobs(t *testing.T) {
	for _, c := range []struct {
		all    int
		keys   map[queue.Key]int
		free   int
		except string
	}{
		{all: 1, keys: map[queue.Key]int{}, free: 1, except: "[]"},
		{all: 1, keys: map[queue.Key]int{"": 1}, free: 0, except: "[]"},
		{all: 2, keys: map[queue.Key]int{"a": 1}, free: 1, except: "[a]"},
		{all: 2, keys: map[queue.Key]int{"": 1}, free: 0, except: "[]"},
		{all: 8, keys: map[queue.Key]int{"": 6}, free: 0, except: "[]"},
		{all: 8, keys: map[queue.Key]int{"": 5}, free: 3, except: "[]"},
		{all: 8, keys: map[queue.Key]int{"a": 3, "b": 1, "": 1}, free: 3, except: "[]"},
		{all: 8, keys: map[queue.Key]int{"a": 3, "b": 1, "": 2}, free: 2, except: "[a]"},
		{all: 8, keys: map[queue.Key]int{"a": 3, "b": 3}, free: 2, except: "[]"},
	} {
		lent := 0
		for _, n := range c.keys {
			lent += n
		}
		free, except := (&workforce{keys: c.keys}).room(c.all-lent, lent)
		if free != c.free || fmt.Sprint(except) != c.except {
			t.Errorf("%+v: %d free, except %v", c, free, except)
		}
	}
	many := &workforce{keys: map[queue.Key]int{"hangs": 2}}
	for i := range 1000 {
		many.keys[queue.Key(fmt.Sprint("k", i))] = 1
	}
	if _, except := many.room(1, 1002); len(except) != mostExcept || except[0] != "hangs" {
		t.Errorf("%d buckets, %s first", len(except), except[0])
	}
}

// A policy that comes back has only the workers that its earlier runs leave.
func TestWorkersOfAPolicyThatComesBackAreStillBusy(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Workers = 1
	b := newBench(t, p)
	o := b.owns()
	began, release := make(chan struct{}), make(chan struct{})
	b.lend(Options{}, map[string]Handler{"api": func(context.Context, Job) error {
		began <- struct{}{}
		<-release
		return nil
	}})
	o.runs(began, time.Minute)
	elsewhere := p
	elsewhere.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://127.0.0.1:1"}}
	b.put(elsewhere)
	b.until("nobody hears offers", func() bool {
		_, err := o.nc.Request("penstock.work.api", encoded(job.Turn{State: job.TurnOffer}),
			deadline)
		return errors.Is(err, nats.ErrNoResponders)
	})
	b.put(p)
	if _, c := o.offers(); c.Slots != 0 {
		t.Errorf("claim %+v, while the only worker is busy", c)
	}
	close(release)
	b.until("the run has ended", func() bool {
		m, c := o.hears()
		o.says(m, job.TurnSettled)
		return c.Op == job.OpSettle
	})
	b.until("the worker is free again", func() bool {
		m, c := o.offers()
		o.says(m, job.TurnRefused)
		return c.Slots == 1
	})
}
