package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestHeartbeatShowsLostDeliveries(t *testing.T) {
	beat := func(delivered string) *nats.Msg {
		return &nats.Msg{Header: nats.Header{"Status": {"100"}, "Nats-Last-Consumer": {delivered}}}
	}
	p := &puller{received: 7}
	for _, delivered := range []string{"7", "8"} { // the eighth may be under way
		if err := p.takeStatus(beat(delivered)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.takeStatus(beat("8")); err == nil {
		t.Error("the eighth did not come, and nobody noticed")
	}
	p = &puller{received: 7}
	if err := p.takeStatus(beat("8")); err != nil {
		t.Fatal(err)
	}
	p.received = 8
	if err := p.takeStatus(beat("8")); err != nil {
		t.Errorf("it came late: %v", err)
	}
}

func TestAGapInDeliveriesBreaks(t *testing.T) {
	p := &puller{}
	for _, c := range []struct {
		consumerSeq int
		want        bool
	}{{1, true}, {2, true}, {4, false}} {
		reply := fmt.Sprintf("$JS.ACK.S.C.1.%d.%d.1700000000000000000.0", 10*c.consumerSeq, c.consumerSeq)
		if _, got, err := p.take(&nats.Msg{Reply: reply}); got != c.want || (err == nil) != c.want {
			t.Errorf("delivery %d: taken %v, %v", c.consumerSeq, got, err)
		}
	}
}

// TestSilenceBreaks: a consumer that says nothing at all, as after a fault that loses its pulls.
func TestSilenceBreaks(t *testing.T) {
	t.Parallel()
	nc := connect(t, startServer(t, embedded.Options{}))
	// Somebody who takes pull requests and never answers.
	if _, err := nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.S.C"); err != nil {
		t.Fatal(err)
	}
	p, err := newPuller(nc, "S", "C")
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	done := make(chan struct{})
	deadline := time.AfterFunc(patience, func() { close(done) })
	defer deadline.Stop()
	if _, err := p.fetch(done, nil); !errors.Is(err, errSilence) {
		t.Errorf("got %v, want %v", err, errSilence)
	}
}

// TestPullsThatEndTogetherAreRenewed: when the ends of all open pulls are found at once, and nothing else, new ones must be
// opened before waiting.
func TestPullsThatEndTogetherAreRenewed(t *testing.T) {
	nc := connect(t, startServer(t, embedded.Options{}))
	server, err := nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.S.C")
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPuller(nc, "S", "C")
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	p.open = pullOpen
	for range 2 {
		end := nats.NewMsg(p.inbox)
		end.Header = nats.Header{"Status": {"408"}, "Nats-Pending-Messages": {fmt.Sprint(pullBatch)}}
		p.messages <- end
	}
	done := make(chan struct{})
	fetched := make(chan error, 1)
	go func() {
		_, err := p.fetch(done, nil)
		fetched <- err
	}()
	for range 2 {
		if _, err := server.NextMsg(pullSilence / 2); err != nil {
			t.Errorf("no new pull: %v", err)
		}
	}
	close(done)
	if err := <-fetched; !errors.Is(err, errStopped) {
		t.Errorf("got %v", err)
	}
}

// TestSlowReaderPausesPulling: more is stored than may wait in memory, the reader takes its time, and nothing is dropped.
func TestSlowReaderPausesPulling(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100_000, 1))
	const jobs = 3 * pullOpen
	for range jobs {
		if err := b.nc.Publish("penstock.jobs.stripe.a", nil); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	consumer, err := b.js.Consumer(testContext(t), "PENSTOCK_stripe", "valve-0-1")
	if err != nil {
		t.Fatal(err)
	}
	delivered := func() uint64 {
		info, err := consumer.Info(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return info.Delivered.Consumer
	}
	eventually(t, "the open pulls are served", func() bool { return delivered() >= pullOpen })
	if n := delivered(); n > pullOpen+pullBatch {
		t.Errorf("%d are delivered that nobody has taken", n)
	}
	receive(t, l, jobs)
}

// TestBodiesInMemoryAreBounded: a pull ends early when what it brings is large, and the next one goes on.
func TestLargeBodiesFlowInBoundedPulls(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1}) // empty stream: with bodies
	body := string(make([]byte, 1<<20))
	const jobs = 30
	for i := range jobs {
		if _, err := request(t, b.nc, b.names.Jobs("stripe", Key(fmt.Sprint(i))), body, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range receive(t, l, jobs) {
		if len(a.Body) != len(body) {
			t.Fatalf("got %d bytes", len(a.Body))
		}
	}
}
