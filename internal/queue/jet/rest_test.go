package jet

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
)

func openIdle(t *testing.T, b *Broker) (l *opened, woken chan struct{}) {
	t.Helper()
	woken = make(chan struct{}, 1)
	l = open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1,
		Wake: func() { signal(woken) }})
	rests(t, l)
	return l, woken
}

func rests(t *testing.T, l *opened) {
	t.Helper()
	for idle := false; !idle; {
		u, err := l.Next(natstest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		l.confirmed = append(l.confirmed, u.Confirmed...)
		l.swept, idle = l.swept || u.Swept, u.Idle
	}
	if err := l.Rest(); err != nil {
		t.Fatal(err)
	}
	if l.puller != nil {
		t.Error("it rests and pulls")
	}
}

func wakes(t *testing.T, woken chan struct{}) {
	t.Helper()
	select {
	case <-woken:
	case <-natstest.Context(t).Done():
		t.Fatal("nothing wakes it")
	}
}

// The publisher is a plain client. A backlog that is opened without jobs rests at once, otherwise
// some seconds after the last job.
func TestABacklogWithoutJobsRestsUntilOneIsPublished(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	l, woken := openIdle(t, b)
	if !l.swept {
		t.Error("it was not said that all has come")
	}
	if resumed, err := l.Resume(); !resumed || err != nil {
		t.Fatal(resumed, err)
	}
	rests(t, l)
	for i := range 2 {
		if err := b.nc.Publish(b.names.Jobs("stripe", "a"), nil); err != nil {
			t.Fatal(err)
		}
		wakes(t, woken)
		if resumed, err := l.Resume(); !resumed || err != nil {
			t.Fatal(resumed, err)
		}
		l.until(t, "the job does not come", func() bool { return len(l.arrived) == i+1 })
		l.Done(l.arrived[i].Seq)
		l.until(t, "it is not confirmed", func() bool { return len(l.confirmed) == i+1 })
		if i == 0 {
			rests(t, l)
		}
	}
	if l.broken != nil {
		t.Error(l.broken)
	}
}

func TestABacklogThatHeardNothingOfItsJobsIsRoused(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	l, woken := openIdle(t, b)
	if err := b.rouse(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-woken:
		t.Error("it is woken for nothing")
	default:
	}
	l.rest.hush()
	publish(t, b, "stripe", "a", 1)
	if err := b.rouse(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	wakes(t, woken)
	if resumed, err := l.Resume(); !resumed || err != nil {
		t.Fatal(resumed, err)
	}
	l.until(t, "the job does not come", func() bool { return len(l.arrived) == 1 })
}

// A list that began before the rest does not tell what has come since.
func TestTheListsOfAnotherBrokerRouse(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.lister = newBroker(t)
	b.lister.nc, b.lister.js = b.nc, b.js
	before := newSurvey()
	apply(t, b, paced("stripe", 10, 1))
	l, woken := openIdle(t, b)
	b.rouseBy(before)
	select {
	case <-woken:
		t.Error("it is woken for nothing")
	default:
	}
	l.rest.mu.Lock()
	l.rest.hush()
	l.rest.mu.Unlock()
	publish(t, b, "stripe", "a", 1)
	go b.rouses(natstest.Context(t), time.Hour)
	if _, err := b.lister.Ration(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	wakes(t, woken)
}

// A publish during an outage is found soon after the reconnect, not at the next regular check.
func TestAReconnectRousesBacklogsWithJobs(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	l, woken := openIdle(t, b)
	l.rest.hush()
	l.rest.rests = true
	b.resting.Store(l.Backlog, time.Time{})
	publish(t, b, "stripe", "a", 1)
	go b.rouses(natstest.Context(t), time.Hour)
	for roused := false; !roused; {
		if err := b.nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-woken:
			roused = true
		case <-time.After(5 * time.Second):
		case <-natstest.Context(t).Done():
			t.Fatal("nothing wakes it")
		}
	}
}

func TestABacklogThatRestsIsEvictedAsAnyOther(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	old, woken := openIdle(t, b)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 2})
	publish(t, b, "stripe", "a", 1)
	wakes(t, woken)
	if _, err := old.Resume(); err != nil {
		t.Fatal(err)
	}
	old.until(t, "it does not notice", func() bool { return old.broken != nil })
	l.until(t, "the job does not come", func() bool { return len(l.arrived) == 1 })
	if len(old.arrived) > 0 {
		t.Error("the former owner gets jobs")
	}
}

// The stream was empty at the check.
func TestAJobThatComesBeforeTheBacklogListensKeepsItAwake(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	ctx := natstest.Context(t)
	info, err := b.js.StreamInfo(ctx, b.names.Stream("stripe"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.nc.RequestWithContext(ctx, b.names.Jobs("stripe", "a"), nil); err != nil {
		t.Fatal(err)
	}
	l := b.backlogOf(BacklogOptions{Policy: "stripe", Partitions: 1, Epoch: 1,
		Wake: func() {}}, info)
	if err := l.takeOver(ctx, info); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.Background()) })
	for {
		u, err := l.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(u.Arrived) > 0 {
			return
		}
		if u.Idle {
			t.Fatal("it rests although a job waits")
		}
	}
}

func TestAClosedBacklogDoesNotRest(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1, Wake: func() {}})
	if u, err := l.Next(natstest.Context(t)); err != nil || !u.Idle {
		t.Fatal(u, err)
	}
	if err := l.Close(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if err := l.Rest(); err != nil {
		t.Fatal(err)
	}
	b.resting.Range(func(_, _ any) bool {
		t.Error("it rests")
		return false
	})
}
