package jsapi

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
)

func TestHeartbeatShowsLostDeliveries(t *testing.T) {
	beat := func(delivered string) *nats.Msg {
		return &nats.Msg{Header: nats.Header{"Status": {"100"}, "Nats-Last-Consumer": {delivered}}}
	}
	p := &Puller{Received: 7}
	for _, delivered := range []string{"7", "8"} {
		if err := p.takeStatus(beat(delivered)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.takeStatus(beat("8")); err == nil {
		t.Error("the eighth did not come, and nobody noticed")
	}
	p = &Puller{Received: 7}
	if err := p.takeStatus(beat("8")); err != nil {
		t.Fatal(err)
	}
	p.Received = 8
	if err := p.takeStatus(beat("8")); err != nil {
		t.Errorf("it came late: %v", err)
	}
}

func TestAGapInDeliveriesBreaks(t *testing.T) {
	p := &Puller{}
	for _, c := range []struct {
		consumerSeq int
		want        bool
	}{{1, true}, {2, true}, {4, false}} {
		reply := fmt.Sprintf("$JS.ACK.S.C.1.%d.%d.1700000000000000000.0", 10*c.consumerSeq,
			c.consumerSeq)
		if _, got, err := p.take(&nats.Msg{Reply: reply}); got != c.want || (err == nil) != c.want {
			t.Errorf("delivery %d: taken %v, %v", c.consumerSeq, got, err)
		}
	}
}

func TestSilenceBreaks(t *testing.T) {
	t.Parallel()
	nc := natstest.New(t)
	// The subscriber takes pull requests and never answers.
	if _, err := nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.S.C"); err != nil {
		t.Fatal(err)
	}
	p, err := NewPuller(conn(t, nc), "S", "C")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	done := make(chan struct{})
	deadline := time.AfterFunc(natstest.Patience, func() { close(done) })
	defer deadline.Stop()
	if _, err := p.Fetch(done, nil); !errors.Is(err, ErrSilence) {
		t.Errorf("got %v, want %v", err, ErrSilence)
	}
}

// If only the ends of all open pulls arrive, new ones must be opened before waiting.
func TestPullsThatEndTogetherAreRenewed(t *testing.T) {
	nc := natstest.New(t)
	server, err := nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.S.C")
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPuller(conn(t, nc), "S", "C")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	p.open = PullOpen
	for range 2 {
		end := nats.NewMsg(p.inbox)
		end.Header = nats.Header{"Status": {"408"},
			"Nats-Pending-Messages": {fmt.Sprint(PullBatch)}}
		p.messages <- end
	}
	done := make(chan struct{})
	fetched := make(chan error, 1)
	go func() {
		_, err := p.Fetch(done, nil)
		fetched <- err
	}()
	for range 2 {
		if _, err := server.NextMsg(p.Patience / 2); err != nil {
			t.Errorf("no new pull: %v", err)
		}
	}
	close(done)
	if err := <-fetched; !errors.Is(err, ErrStopped) {
		t.Errorf("got %v", err)
	}
}

func TestParseAckSubject(t *testing.T) {
	at := time.Unix(0, 1700000000123456789).UTC()
	for _, subject := range []string{
		"$JS.ACK.PENSTOCK_stripe.valve-0-1.1.42.7.1700000000123456789.3",
		"$JS.ACK.hub.AbCd.PENSTOCK_stripe.valve-0-1.1.42.7.1700000000123456789.3",
		"$JS.ACK._.AbCd.PENSTOCK_stripe.valve-0-1.1.42.7.1700000000123456789.3.random",
	} {
		if m, ok := parseAckSubject(subject); !ok ||
			m != (ackMeta{streamSeq: 42, consumerSeq: 7, pending: 3, stored: at}) {
			t.Errorf("%s is %+v, %t", subject, m, ok)
		}
	}
	for _, subject := range []string{"", "$JS.ACK", "$JS.ACK.a.b.1.2.3.4", "$JS.ACK.a.b.1.x.3.4.5",
		"_INBOX.a.b.c.d.e.f.g.h"} {
		if _, ok := parseAckSubject(subject); ok {
			t.Errorf("%q was understood", subject)
		}
	}
}

func conn(t *testing.T, nc *nats.Conn) *Conn {
	t.Helper()
	c, err := New(nc, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
