package jet

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// Unanswered attempts stop publishes to their stream only; then one publish a second checks if it
// answers again.
func TestAKnownOutageOfJetStreamFailsFastAndOneProbeEndsIt(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	nc := natstest.New(t)
	b, err := NewBroker(nc, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Setup(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	apply(t, b, paced("well", 100, 1))
	// The subscriber takes the stream's jobs without an answer, like a stalled server.
	var mu sync.Mutex
	heard, answer := 0, false
	if _, err := nc.Subscribe("penstock.jobs.ill.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if heard++; answer {
			_ = m.Respond([]byte(`{"stream":"PENSTOCK_ill","seq":7}`))
		}
	}); err != nil {
		t.Fatal(err)
	}
	p := b.NewProducer(ProducerOptions{FailFast: true})
	ill := Submission{Policy: "ill", Key: "a"}
	var wg sync.WaitGroup
	for range unansweredAttempts {
		wg.Go(func() {
			if _, err := p.Publish(natstest.Context(t), ill); !errors.Is(err, ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		})
	}
	wg.Wait()

	mu.Lock()
	before := heard
	mu.Unlock()
	refused, probes := 0, 0
	waittest.Until(t, "two publishes tried again", func() bool {
		if _, err := p.Publish(natstest.Context(t), ill); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		refused++
		mu.Lock()
		defer mu.Unlock()
		probes = heard - before
		return probes >= 2
	})
	if refused < 10*probes {
		t.Errorf("of %d publishes that were refused %d had been sent", refused, probes)
	}
	if _, err := p.Publish(natstest.Context(t), Submission{Policy: "well", Key: "a"}); err != nil {
		t.Errorf("another policy: %v", err)
	}

	mu.Lock()
	answer = true
	mu.Unlock()
	waittest.Until(t, "a probe finds out", func() bool {
		_, err := p.Publish(natstest.Context(t), ill)
		return err == nil
	})
	for range 3 {
		if _, err := p.Publish(natstest.Context(t), ill); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	}
	if text := log.String(); strings.Count(text, "does not answer") != 1 ||
		strings.Count(text, "answers again") != 1 {
		t.Errorf("want one line of the outage and one of its end:\n%s", text)
	}
}

func TestAPublishWithoutAConnectionFailsAfterAShortPatience(t *testing.T) {
	dir, address := t.TempDir(), proctest.FreeAddress(t)
	s := natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	nc := natstest.Reconnecting(t, s.URL(), nats.ReconnectBufSize(-1))
	b := brokerOver(t, nc)
	apply(t, b, paced("stripe", 100, 1))
	p := b.NewProducer(ProducerOptions{FailFast: true})
	job := Submission{Policy: "stripe", Key: "a"}
	if _, err := p.Publish(natstest.Context(t), job); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	waittest.Until(t, "the loss is noticed", func() bool { return !nc.IsConnected() })
	for range 100 {
		if _, err := p.Publish(natstest.Context(t), job); !errors.Is(err, ErrUnavailable) ||
			!errors.Is(err, ErrNotSent) {
			t.Fatalf("got %v, want ErrUnavailable and ErrNotSent", err)
		}
	}
	natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	waittest.Until(t, "the connection is back", func() bool {
		_, err := p.Publish(natstest.Context(t), job)
		return err == nil
	})
}

// Lack of room proves that the job is not stored only if no earlier attempt may have stored it.
func TestNoRoomAfterAnUnknownAttempt(t *testing.T) {
	b := newBroker(t)
	const noRoom, inFlight = `{"error":{"code":503,"err_code":10023}}`,
		`{"error":{"code":409,"err_code":10158}}`
	for name, test := range map[string]struct {
		answers []string
		known   bool
	}{
		"at once":   {[]string{noRoom}, true},
		"afterward": {[]string{inFlight, noRoom}, false},
	} {
		sub, err := b.nc.Subscribe("penstock.jobs.full.>", func(m *nats.Msg) {
			_ = m.Respond([]byte(test.answers[0]))
			test.answers = test.answers[1:]
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.NewProducer(ProducerOptions{}).Publish(natstest.Context(t),
			Submission{Policy: "full", Key: "a"})
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrStorage) != test.known {
			t.Errorf("%s: got %v", name, err)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}
