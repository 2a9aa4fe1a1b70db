package jet

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

func TestNames(t *testing.T) {
	n, err := NewNames("staging")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want string }{
		{n.Jobs("stripe", "a.b"), "staging.jobs.stripe.a.b"},
		{n.Admitted("search", "_"), "staging.admitted.search._"},
		{n.Queue("stripe", 7, "a.b"), "staging.queue.stripe.7.a.b"},
		{n.Stream("stripe"), "STAGING_stripe"},
		{n.consumer(7, 42), "valve-7-42"},
		{n.dead("stripe", "a"), "staging.dead.stripe.a"},
		{n.DeadStream("stripe"), "STAGING_DEAD_stripe"},
		{n.Valve("stripe", 7), "staging.valve.stripe.7"},
		{n.Requests("submit"), "staging.submit.>"},
		{n.Request("cancel", "stripe", "42"), "staging.cancel.stripe.42"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	if n, err := NewNames(""); err != nil || n.Prefix() != DefaultPrefix {
		t.Errorf("the default prefix is %q, %v", n.Prefix(), err)
	}
	for _, prefix := range []string{"A", "a.b", "a b", "*", "-a", "_INBOX", "$JS",
		"abcdefghijklmnopqrstuvwxyz0123456"} {
		if _, err := NewNames(prefix); err == nil {
			t.Errorf("prefix %q is accepted", prefix)
		}
	}
}

func TestTheTablesOfAnInstallation(t *testing.T) {
	b, err := NewBroker(natstest.New(t), Options{Prefix: "staging"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range b.Tables().all() {
		got = append(got, table.Bucket())
	}
	want := []string{"STAGING_DRAINERS", "STAGING_PARTITIONS", "STAGING_ATTEMPTS",
		"STAGING_POLICIES", "STAGING_LOCKS", "STAGING_ADMITTERS", "STAGING_ENDED", "STAGING_DONE"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestParseQueue(t *testing.T) {
	n, err := NewNames("")
	if err != nil {
		t.Fatal(err)
	}
	partition, k, err := n.ParseQueue(n.Queue("stripe", 12, "a.%.b"))
	if partition != 12 || k != "a.%.b" || err != nil {
		t.Errorf("got %d, %q, %v", partition, k, err)
	}
	for _, subject := range []string{"penstock.queue.stripe.0", "penstock.queue.stripe.x.a",
		"other.a", n.doorClosed("stripe")} {
		if _, k, err := n.ParseQueue(subject); !errors.Is(err, queue.ErrInvalidKey) || k == "" {
			t.Errorf("ParseQueue(%q) = %q, %v", subject, k, err)
		}
	}
}

func TestParseEndpoints(t *testing.T) {
	n, err := NewNames("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ subject, policy, key string }{
		{"penstock.submit.stripe.a.b", "stripe", "a.b"},
		{"penstock.submit.stripe", "stripe", "_"},
	} {
		if p, k, ok := n.ParseRequest("submit", c.subject); !ok || p != c.policy || k != c.key {
			t.Errorf("ParseRequest(%q) = %q, %q, %t", c.subject, p, k, ok)
		}
	}
	if _, _, ok := n.ParseRequest("check", "penstock.submit.stripe.a"); ok {
		t.Error("a submission was taken for a check")
	}
}

func TestParseConsumer(t *testing.T) {
	var n Names
	if p, e, ok := n.parseConsumer(n.consumer(3, 99)); !ok || p != 3 || e != 99 {
		t.Errorf("got %d, %d, %t", p, e, ok)
	}
	for _, name := range []string{"", "valve", "valve-3", "valve-x-1", "valve-1-x", "other-1-1"} {
		if _, _, ok := n.parseConsumer(name); ok {
			t.Errorf("%q was taken for ours", name)
		}
	}
}

func TestPartitionIsTheServers(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 8))
	for _, raw := range []string{"", "a", "b", "tenant.7", "é", "a b", "*", "..", "x.y.z"} {
		subject := b.names.Jobs("stripe", mustKey(t, raw))
		ack, err := request(t, b.nc, subject, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		m, err := b.js.Message(natstest.Context(t), ack.Stream, map[string]uint64{"seq": ack.Seq})
		if err != nil {
			t.Fatal(err)
		}
		partition, k, err := b.names.ParseQueue(m.Subject)
		if err != nil || k.Raw() != raw || partition != job.Partition(subject, 8) {
			t.Errorf("key %q is stored as %q, want partition %d", raw, m.Subject,
				job.Partition(subject, 8))
		}
	}
	if job.Partition("anything", 1) != 0 || job.Partition("anything", 0) != 0 {
		t.Error("a single partition is 0")
	}
}

// FuzzParseQueue parses subjects of any client: a valid one has exactly one key, another gets a
// substitute that is no key's and is safe in subjects.
func FuzzParseQueue(f *testing.F) {
	names, err := NewNames("")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"a", "*", ">", "a.*.b", "%zz", "%2a", "é", "", "a..b",
		strings.Repeat(">", 3000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, tail string) {
		partition, k, err := names.ParseQueue("penstock.queue.p.3." + tail)
		if partition != 3 {
			t.Fatalf("partition %d of tail %q", partition, tail)
		}
		if !server.IsValidLiteralSubject("a."+string(k)) || len(k) > 3*queue.MaxKeyBytes+2048 {
			t.Fatalf("tail %q has the unsafe key %q", tail, k)
		}
		_, parseErr := queue.ParseKey(string(k))
		switch {
		case err == nil && (parseErr != nil || string(k) != tail):
			t.Fatalf("tail %q became key %q", tail, k)
		case err != nil && parseErr == nil:
			t.Fatalf("tail %q is refused and yet has the key %q of a bucket", tail, k)
		}
	})
}
