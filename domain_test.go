package penstock_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

// A process at a leaf node, which has a JetStream of its own, works in the domain of the hub.
func TestAProcessAtALeafNodeUsesTheDomainOfTheHub(t *testing.T) {
	hub, leaf := natstest.HubAndLeaf(t)
	streams := func(url string) (names []string) {
		js, err := jetstream.New(natstest.Reconnecting(t, url))
		if err != nil {
			t.Fatal(err)
		}
		for name := range js.StreamNames(t.Context()).Name() {
			names = append(names, name)
		}
		return names
	}
	ran := make(chan string, 10)
	handle := func(_ context.Context, j workers.Job) error {
		if ran <- string(j.Body); string(j.Body) == "bad" {
			return workers.Permanent(context.Canceled)
		}
		return nil
	}
	at := func(url, domain string) *penstock.Penstock {
		return open(t, penstock.Options{URL: url, Domain: domain,
			Policies: []policy.Policy{paced("mail", 1000, 100)}})
	}
	p := at(leaf.ClientURL(), "hub")
	p.Handle("mail", handle)
	run(t, p)
	for _, from := range []*penstock.Penstock{p, at(hub.ClientURL(), "")} {
		for _, body := range []string{"good", "bad"} {
			if _, err := from.Submit(t.Context(), penstock.Job{Policy: "mail", Key: "a",
				Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
			if got := receive(t, ran); got != body {
				t.Errorf("ran %q, want %q", got, body)
			}
		}
		waittest.Until(t, "its jobs have ended", func() bool { return depth(t, p, "mail") == 0 })
	}
	if here, there := streams(leaf.ClientURL()), streams(hub.ClientURL()); len(here) > 0 ||
		len(there) < 8 {
		t.Errorf("the leaf node has %v, the hub %v", here, there)
	}
}
