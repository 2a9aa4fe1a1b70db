package manage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// TestDropWithoutAnOwner cancels and purges jobs in the stream of a partition that no drainer owns.
// Each is reported, and other buckets keep theirs, also a bucket whose key is a wildcard.
func TestDropWithoutAnOwner(t *testing.T) {
	s := open(t, Options{})
	put(t, s, stripe(5000))
	ctx := t.Context()
	cancelled := make(chan *nats.Msg, 2000)
	sub, err := s.broker.Conn().ChanSubscribe(s.broker.Names().Event("stripe", ">"), cancelled)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
	}()
	publish := func(raw string, n int, idempotency string) (last uint64) {
		t.Helper()
		key, err := queue.EncodeKey(raw)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			receipt, err := s.producer.Publish(ctx,
				jet.Submission{Policy: "stripe", Key: key, Body: fmt.Append(nil, i),
					IdempotencyKey: idempotency})
			if err != nil {
				t.Fatal(err)
			}
			last = receipt.Seq
		}
		return last
	}
	publish("a", 1100, "")
	publish("*", 3, "")
	publish("a.b", 2, "")
	one := publish("b", 1, "order-1")

	if job, err := s.Cancel(ctx, "stripe", one); err != nil || job.State != JobCancelled {
		t.Errorf("cancelled: %+v, %v", job, err)
	}
	if ended, err := s.broker.Results().Read(ctx, "stripe", one); err != nil ||
		ended.How != queue.EndCancelled {
		t.Errorf("the job ended as %+v, %v", ended, err)
	}
	if _, err := s.Cancel(ctx, "stripe", one); err == nil {
		t.Error("cancelled twice")
	}
	if purged, err := s.Purge(ctx, "stripe", "%2A"); err != nil || purged.Removed != 3 {
		t.Errorf("purged the key *: %+v, %v", purged, err)
	}
	for _, bad := range []queue.Key{"*", ">", "a.*"} {
		if purged, err := s.Purge(ctx, "stripe", bad); err == nil {
			t.Errorf("purged %q: %+v", bad, purged)
		}
	}
	removed := 0
	for removed < 1100 {
		purged, err := s.Purge(ctx, "stripe", "a")
		if err != nil || purged.Removed == 0 {
			t.Fatalf("purged: %+v, %v", purged, err)
		}
		removed += purged.Removed
	}
	if depth, err := s.broker.Depth(ctx, "stripe"); err != nil || depth != 2 || removed != 1100 {
		t.Errorf("%d jobs are left, %d were removed, %v", depth, removed, err)
	}
	for n := range 1104 {
		select {
		case <-cancelled:
		case <-time.After(waittest.Patience()):
			t.Fatalf("%d events only", n)
		}
	}

	// Without the owner's answer no job is dropped, because only the owner has the list of running
	// jobs.
	stop, err := s.broker.ServeValve("stripe", s.partitionOf(stripe(5000), "a.b"),
		func(job.Question, func(job.Answer)) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := s.Purge(ctx, "stripe", "a.b"); !errors.Is(err, admission.ErrNoDrainer) {
		t.Errorf("without the owner's word: %v", err)
	}
}

// A drainer that takes the partition meanwhile may have read the jobs, and would run its copies.
func TestAnOwnerThatComesMeanwhileDropsItsCopies(t *testing.T) {
	s := open(t, Options{})
	put(t, s, stripe(10))
	ctx, nc := t.Context(), s.broker.Conn()
	for want, drop := range map[string]func(seq uint64) error{
		job.OpPurge: func(uint64) error {
			purged, err := s.Purge(ctx, "stripe", "a")
			if purged.Removed != 1 {
				t.Errorf("purged %+v", purged)
			}
			return err
		},
		job.OpCancel: func(seq uint64) error {
			_, err := s.Cancel(ctx, "stripe", seq)
			return err
		},
	} {
		receipt, err := s.producer.Publish(ctx, jet.Submission{Policy: "stripe", Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		var asked []string
		owner, err := nc.Subscribe(s.broker.Names().Valve("stripe",
			s.partitionOf(stripe(10), "a")), func(m *nats.Msg) {
			var q job.Question
			if err := json.Unmarshal(m.Data, &q); err != nil {
				t.Error(err)
			}
			answer := &nats.Msg{Data: fmt.Appendf(nil, `{"v":%d}`, job.FormatVersion)}
			if asked = append(asked, q.Op); len(asked) == 1 { // as the server without an owner
				answer = &nats.Msg{Header: nats.Header{"Status": {"503"}}}
			}
			if err := m.RespondMsg(answer); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		err = drop(receipt.Seq)
		if err := owner.Unsubscribe(); err != nil {
			t.Error(err)
		}
		if err != nil || !slices.Equal(asked, []string{want, want}) {
			t.Errorf("%s: the owner was asked %q, %v", want, asked, err)
		}
	}
}

// A deletion of the policy came first.
func TestDropsWithoutAStreamAreConflicts(t *testing.T) {
	s := open(t, Options{})
	put(t, s, stripe(10))
	js, err := jetstream.New(s.broker.Conn())
	if err == nil {
		err = js.DeleteStream(t.Context(), "PENSTOCK_stripe")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Purge(t.Context(), "stripe", "a"); !errors.Is(err, admission.ErrConflict) {
		t.Error(err)
	}
}

// The change may have been made before its answer was lost.
func TestChangesWithoutAnAnswerAreAudited(t *testing.T) {
	s := open(t, Options{Timeout: time.Second})
	put(t, s, stripe(10))
	key := queue.Key("a")
	receipt, err := s.producer.Publish(t.Context(),
		jet.Submission{Policy: "stripe", Key: key, Body: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	for number := range 2 {
		if _, err := s.broker.Conn().Subscribe(s.broker.Names().Valve("stripe", number),
			func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"bucket purged", "job cancelled", "job changed"}
	_, purge := s.Purge(t.Context(), "stripe", key)
	_, cancel := s.Cancel(t.Context(), "stripe", receipt.Seq)
	_, edit := s.Edit(t.Context(), "stripe", receipt.Seq, job.Edit{Front: true})
	for i, err := range []error{purge, cancel, edit} {
		if !errors.Is(err, admission.ErrNoDrainer) {
			t.Errorf("%s: %v", want[i], err)
		}
	}
	auditedWithAnError(t, s, want)
}

func TestWritesWithoutAnAnswerAreAudited(t *testing.T) {
	s := open(t, Options{Timeout: time.Second})
	put(t, s, stripe(10))
	js, err := jetstream.New(s.broker.Conn())
	if err != nil {
		t.Fatal(err)
	}
	records, err := js.Stream(t.Context(), "KV_PENSTOCK_POLICIES")
	if err != nil {
		t.Fatal(err)
	}
	config := records.CachedInfo().Config
	config.NoAck = true
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	key, ctx := queue.Key("a"), t.Context()
	var want []string
	for _, c := range []struct {
		what   string
		change func() error
	}{
		{"policy written through the API", func() error {
			_, _, err := s.PutPolicy(ctx, stripe(20), Write{})
			return err
		}},
		{"policy paused or resumed", func() error {
			_, err := s.PausePolicy(ctx, "stripe", true, Write{})
			return err
		}},
		{"override written through the API", func() error {
			_, err := s.PauseKey(ctx, "stripe", key, true)
			return err
		}},
		{"override deleted through the API", func() error {
			return s.DeleteOverride(ctx, "stripe", key, Write{})
		}},
		{"policy deleted through the API", func() error {
			_, err := s.DeletePolicy(ctx, "stripe", true, Write{})
			return err
		}},
	} {
		want = append(want, c.what)
		if err := c.change(); !errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	auditedWithAnError(t, s, want)
}

func auditedWithAnError(t *testing.T, s *Service, want []string) {
	t.Helper()
	page, err := s.Audit(t.Context(), "stripe", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range page.Changes {
		details := "; " + strings.Join(c.Details, "; ")
		if strings.Contains(details, "false") || strings.Contains(details, "; revision") {
			t.Errorf("%s: words of a log: %s", c.What, details)
		}
		if strings.Contains(details, "error") {
			got = append([]string{c.What}, got...)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("audited %q, want %q", got, want)
	}
}
