package node

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

const retakeSoon = 300 * time.Millisecond

// prepared is a process with a set of one policy.
func prepared(t *testing.T, nc *nats.Conn, capacity int64) *Node {
	t.Helper()
	broker, log := brokertest.Open(t, nc), slog.New(slog.DiscardHandler)
	p := paced("stripe")
	p.Capacity = capacity
	n := New(Options{Broker: broker, Store: store.New(broker, log), Log: log, Sink: queue.Sinks{},
		Roster:    kv.NewRoster(broker.Tables().Admitters, 2*time.Second, func(int) {}),
		Schedules: schedules.New(broker, nil, schedules.Options{}),
		Wanted: Wanted{Set: store.Set{Name: policy.DefaultSet,
			Policies: []policy.Policy{p}}}})
	n.writer.retakeAfter = retakeSoon
	if err := n.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.streams.late.Wait)
	return n
}

// A process that restarts with an old text changes nothing while another one has the new one, which
// may restart, too. After a rollback the old one returns.
func TestATextReturnsOnceEveryProcessHasIt(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	holds := func(when string, n *Node, capacity int64) {
		t.Helper()
		entry, err := n.Store.Policy(t.Context(), "stripe")
		if err != nil || entry.Policy.Capacity != capacity {
			t.Errorf("%s: capacity %d, want %d, %v", when, entry.Policy.Capacity, capacity, err)
		}
	}
	first := prepared(t, nc, 10)
	upgraded := prepared(t, nc, 20)
	holds("upgraded", first, 20)
	old := prepared(t, nc, 10)
	if notes := strings.Join(old.writer.notes(), "\n"); !strings.Contains(notes,
		"set default: the set has a newer text") {
		t.Errorf("the notes are %q", notes)
	}
	look := func() {
		if _, err := old.writer.retake(t.Context()); err != nil {
			t.Error(err)
		}
	}
	began := time.Now()
	waittest.Until(t, "the new text is there for a while", func() bool {
		if _, err := upgraded.Roster.Say(t.Context(), claim(upgraded.Wanted.Set)); err != nil {
			t.Error(err)
		}
		look()
		return time.Since(began) > 3*retakeSoon
	})
	holds("while a process has the new text", old, 20)
	upgraded.Roster.Leave(t.Context())
	began = time.Now()
	look()
	holds("right after it has left", old, 20)
	waittest.Until(t, "the old text returns", func() bool {
		look()
		return len(old.writer.notes()) == 0
	})
	holds("after the rollback", old, 10)
	if passed := time.Since(began); passed < retakeSoon/2 {
		t.Errorf("it returned after %v", passed)
	}

	// A text that a running process changes is new, and one of a process alone needs no wait.
	changed := old.Wanted
	changed.Policies = []policy.Policy{upgraded.Wanted.Policies[0]}
	if err := old.Write(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	holds("after a reload", old, 20)
	for _, n := range []*Node{first, old} {
		n.Roster.Leave(t.Context())
	}
	holds("alone", prepared(t, nc, 10), 10)
}

func TestAnExpiredOverrideIsRemovedAndListed(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	n := prepared(t, nc, 10)
	expires := time.Now().Add(retakeSoon)
	_, after, err := n.Store.Change(t.Context(), "stripe", store.Change{Act: store.Pull,
		Edit: func(_ inforce.Entry, e *inforce.Entry) (err error) {
			e.Levers, err = e.Levers.Patch([]byte(`{"burst":3}`),
				inforce.Lever{By: "ann", Expires: &expires})
			return err
		}})
	if err != nil || after.Policy.Burst != 3 {
		t.Fatalf("%+v, %v", after, err)
	}
	n.known.take(inforce.Entries{"stripe": &after})
	if notes := strings.Join(n.writer.notes(), "\n"); !strings.Contains(notes,
		"stripe is overridden: file: burst 1, now burst 3 by ann, 1s left") {
		t.Errorf("the notes are %q", notes)
	}
	waittest.Until(t, "it expires", func() bool {
		if _, err := n.writer.expire(t.Context()); err != nil {
			t.Error(err)
		}
		entry, err := n.Store.Policy(t.Context(), "stripe")
		return err == nil && len(entry.Levers) == 0 && entry.Policy.Burst == 1
	})
	if time.Now().Before(expires) {
		t.Error("it expired early")
	}
	changes, _, err := n.Broker.Changes(t.Context(), "stripe", 0, 1)
	if err != nil || len(changes) != 1 || changes[0].What != "override expired" ||
		strings.Join(changes[0].Changed, "") != "burst 3 → 1" {
		t.Errorf("%+v, %v", changes, err)
	}
}
