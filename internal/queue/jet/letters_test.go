package jet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func bury(t *testing.T, b *Broker, d DeadLetter) uint64 {
	t.Helper()
	if d.Stored.IsZero() {
		d.Stored = time.Now()
	}
	if _, err := b.Letters(d.Policy).Bury(natstest.Context(t), d); err != nil {
		t.Fatal(err)
	}
	info, err := b.js.StreamInfo(natstest.Context(t), b.names.DeadStream(d.Policy), "")
	if err != nil {
		t.Fatal(err)
	}
	return info.State.LastSeq
}

func letterIDs(t *testing.T, b *Broker, policy string) []uint64 {
	t.Helper()
	letters, err := b.Letters(policy).List(natstest.Context(t), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for _, l := range letters {
		ids = append(ids, l.ID)
	}
	return ids
}

func TestDeadLetters(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	stored := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	header := nats.Header{"Content-Type": {"text/plain"}, "penstock-cost": {"2"}}
	for i := range 5 {
		bury(t, b,
			DeadLetter{Policy: "stripe", Key: mustKey(t, "tenant 7"), Seq: uint64(10 + i),
				Partition: 3, Stored: stored,
				Reason: "attempts", Error: "status 500", Attempts: 5, Header: header,
				Body: []byte(strings.Repeat("x", i))})
		bury(t, b, DeadLetter{Policy: "other", Key: "a", Seq: uint64(i), Reason: "deadline"})
	}
	bury(t, b, DeadLetter{Policy: "strip", Key: "e.a", Seq: 1, Reason: "deadline"})
	if ids := letterIDs(t, b, "stripe"); fmt.Sprint(ids) != "[1 2 3 4 5]" {
		t.Errorf("listed %v", ids)
	}
	page, err := b.Letters("stripe").List(ctx, 2, 2)
	if err != nil || len(page) != 2 || page[0].ID != 3 || page[1].ID != 4 {
		t.Fatalf("a page: %+v, %v", page, err)
	}
	if l := page[0]; l.Size != 2 || l.Body != nil {
		t.Errorf("a listed letter: %+v", l)
	}
	whole, err := b.Letters("stripe").Read(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []StoredLetter{page[0], whole} {
		if l.Policy != "stripe" || l.Key != "tenant%207" || l.Seq != 12 || l.Partition != 3 ||
			!l.Stored.Equal(stored) ||
			l.Reason != "attempts" || l.Error != "status 500" || l.Attempts != 5 ||
			l.Buried.IsZero() || l.Size != 2 ||
			len(l.Header) != 2 || l.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("got %+v", l)
		}
	}
	if string(whole.Body) != "xx" {
		t.Errorf("body %q", whole.Body)
	}
	for _, id := range []uint64{0, 6, 1000} {
		if _, err := b.Letters("stripe").Read(ctx, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("letter %d: %v", id, err)
		}
		if err := b.Letters("stripe").Discard(ctx, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("discard letter %d: %v", id, err)
		}
	}
	if ids := letterIDs(t, b, "nobody"); len(ids) != 0 {
		t.Errorf("of nobody: %v", ids)
	}
	for _, bad := range []string{"", "*", ">", "stripe.x"} {
		if _, err := b.Letters(bad).List(ctx, 0, 10); !errors.Is(err, ErrNotFound) {
			t.Errorf("list %q: %v", bad, err)
		}
		_, err := b.Letters(bad).DiscardSome(ctx, DeadLetterFilter{})
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("discard %q: %v", bad, err)
		}
	}

	if err := b.Letters("stripe").Discard(ctx, 3); err != nil {
		t.Fatal(err)
	}
	if err := b.Letters("stripe").Discard(ctx, 3); !errors.Is(err, ErrNotFound) {
		t.Errorf("discarded twice: %v", err)
	}
	n, err := b.Letters("stripe").DiscardSome(ctx, DeadLetterFilter{Through: 4})
	if err != nil || n != 3 {
		t.Errorf("discarded %d, %v", n, err)
	}
	if ids := letterIDs(t, b, "stripe"); fmt.Sprint(ids) != "[5]" {
		t.Errorf("left %v", ids)
	}
	if n, err := b.Letters("stripe").DiscardSome(ctx, DeadLetterFilter{}); err != nil || n != 1 {
		t.Errorf("discarded %d, %v", n, err)
	}
	if ids := letterIDs(t, b, "other"); len(ids) != 5 {
		t.Errorf("another policy's: %v", ids)
	}
}

func jobs(t *testing.T, b *Broker, policy string) []job.Arrived {
	t.Helper()
	info, err := b.js.StreamInfo(natstest.Context(t), b.names.Stream(policy), "")
	if err != nil {
		t.Fatal(err)
	}
	var all []job.Arrived
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		if a, err := b.StoredJob(natstest.Context(t), policy, seq); err == nil {
			all = append(all, a)
		} else if !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
	return all
}

func TestPoliciesWithDeadLettersAreCounted(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	counts := func() string {
		t.Helper()
		found, err := b.LetterCounts(ctx)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, c := range found {
			text += fmt.Sprintf("%s:%d ", c.Policy, c.Letters)
			if c.OldestAt.IsZero() || c.NewestAt.Before(c.OldestAt) {
				t.Errorf("%s: from %v to %v", c.Policy, c.OldestAt, c.NewestAt)
			}
		}
		return text
	}
	if got := counts(); got != "" {
		t.Errorf("without letters: %q", got)
	}
	for i, policy := range []string{"mail", "stripe", "stripe", "a", "empty"} {
		bury(t, b, DeadLetter{Policy: policy, Key: "k", Seq: uint64(i + 1), Reason: "deadline"})
	}
	if _, err := b.Letters("empty").DiscardSome(ctx, DeadLetterFilter{}); err != nil {
		t.Fatal(err)
	}
	if got := counts(); got != "stripe:2 a:1 mail:1 " {
		t.Errorf("counted %q", got)
	}
	found, err := b.Ration(ctx)
	if err != nil || found.Dead["stripe"] != 2 || found.Dead["mail"] != 1 || len(found.Dead) != 4 {
		t.Errorf("the store's look counts %v, %v", found.Dead, err)
	}
}

func TestReplay(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	p := b.NewProducer(ProducerOptions{})
	put := paced("stripe", 2, 4)
	apply(t, b, put)
	k := mustKey(t, "tenant 7")
	past := time.Now().Add(-time.Hour).Format(time.RFC3339)
	first := bury(t, b,
		DeadLetter{Policy: "stripe", Key: k, Seq: 1, Reason: "deadline", Error: "too late",
			Body: []byte("one"),
			Header: nats.Header{"penstock-deadline": {past}, "Penstock-Cost": {"3"},
				"Idempotency-Key": {"order-1"}}})
	receipt, err := p.Replay(ctx, "stripe", first)
	if err != nil || receipt.Seq != 1 || receipt.Duplicate {
		t.Fatalf("got %+v, %v", receipt, err)
	}
	j, err := b.StoredJob(ctx, "stripe", receipt.Seq)
	if err != nil || j.Key != k || string(j.Body) != "one" || j.Cost != 3 || !j.Deadline.IsZero() ||
		j.Malformed != nil || job.HeaderValue(j.Header, "Idempotency-Key") != "order-1" ||
		j.Partition != job.Partition(b.names.Jobs("stripe", k), 4) {
		t.Errorf("the job is %+v, %v", j, err)
	}
	for name := range j.Header {
		if job.HasPrefixFold(name, "Penstock-Dead-") {
			t.Errorf("the job has %s", name)
		}
	}
	if _, err := p.Replay(ctx, "stripe", first); !errors.Is(err, ErrNotFound) {
		t.Errorf("replayed twice: %v", err)
	}

	// The answer is lost: the letter remains, and the job is stored.
	second := bury(t, b,
		DeadLetter{Policy: "stripe", Key: k, Seq: 2, Reason: "attempts", Header: nats.Header{
			"Penstock-Deadline": {"1h"}}})
	letter, err := b.Letters("stripe").Read(ctx, second)
	if err != nil {
		t.Fatal(err)
	}
	header, err := replayHeader(letter, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(ctx, &Submission{Policy: "stripe", Key: k}, header)(ctx); err != nil {
		t.Fatal(err)
	}
	if receipt, err := p.Replay(ctx, "stripe", second); err != nil || receipt.Seq != 2 {
		t.Errorf("repeated: %+v, %v", receipt, err)
	}
	if all := jobs(t, b, "stripe"); len(all) != 2 ||
		!all[1].Deadline.Equal(all[1].Stored.Add(time.Hour)) {
		t.Errorf("stored %+v", all)
	}

	third := bury(t, b, DeadLetter{Policy: "stripe", Key: k, Seq: 3, Reason: "attempts"})
	if _, err := p.Replay(ctx, "stripe", third); !errors.Is(err, ErrFull) {
		t.Errorf("into a full bucket: %v", err)
	}
	if ids := letterIDs(t, b, "stripe"); len(ids) != 1 || ids[0] != third {
		t.Errorf("left %v", ids)
	}

	strange := bury(t, b, DeadLetter{Policy: "stripe", Key: "%!.x", Seq: 4, Reason: "malformed"})
	malformed := bury(t, b,
		DeadLetter{Policy: "stripe", Key: "a", Seq: 5, Reason: "malformed", Header: nats.Header{
			"Penstock-Cost": {"x"}}})
	for _, id := range []uint64{strange, malformed} {
		if _, err := p.Replay(ctx, "stripe", id); !errors.Is(err, ErrUnfit) {
			t.Errorf("letter %d: %v", id, err)
		}
	}
	gone := bury(t, b, DeadLetter{Policy: "gone", Key: "a", Seq: 5, Reason: "attempts"})
	if _, err := p.Replay(ctx, "gone", gone); !errors.Is(err, ErrNoStream) {
		t.Errorf("of a policy that is gone: %v", err)
	}
	if _, err := p.ReplaySome(ctx, "gone", DeadLetterFilter{}); !errors.Is(err, ErrNoStream) {
		t.Errorf("all of a policy that is gone: %v", err)
	}
}

func TestReplayNotTheSameAsAnIdempotencyKey(t *testing.T) {
	for _, key := range []string{"replay", "/replay", "%!replay", ".", ""} {
		k, err := queue.EncodeKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if id := messageID(k, "1"); strings.HasPrefix(id, replayPrefix) {
			t.Errorf("key %q makes %q", key, id)
		}
	}
}

func TestReplayAll(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	p := b.NewProducer(ProducerOptions{})
	put := door("signup", 2, 2)
	apply(t, b, put)
	for i := range 4 { // a's fourth and third do not fit
		bury(t, b, DeadLetter{Policy: "signup", Key: "a", Seq: uint64(i), Body: fmt.Append(nil, i)})
	}
	bury(t, b, DeadLetter{Policy: "signup", Key: "%!.x", Seq: 8})
	bury(t, b, DeadLetter{Policy: "signup", Key: "b", Seq: 9, Body: []byte("b")})
	bury(t, b, DeadLetter{Policy: "other", Key: "a", Seq: 1})
	got, err := p.ReplaySome(ctx, "signup", DeadLetterFilter{})
	if err != nil || got != (api.Replayed{Replayed: 3, Full: 2, Unfit: 1, Complete: true}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	var bodies []string
	for _, j := range jobs(t, b, "signup") {
		bodies = append(bodies, string(j.Key)+string(j.Body))
	}
	if fmt.Sprint(bodies) != "[a0 a1 bb]" {
		t.Errorf("stored %v", bodies)
	}
	if ids := letterIDs(t, b, "signup"); fmt.Sprint(ids) != "[3 4 5]" {
		t.Errorf("left %v", ids)
	}
	if ids := letterIDs(t, b, "other"); len(ids) != 1 {
		t.Errorf("another policy's: %v", ids)
	}
}

func TestLettersOfAKeyAreFoundAmongMany(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	for i := range 6 {
		for _, key := range []queue.Key{"a", "a.b"} {
			bury(t, b, DeadLetter{Policy: "stripe", Key: key, Seq: uint64(10 + i),
				Reason: []string{"attempts", "deadline"}[i%2]})
		}
	}
	reads, err := b.nc.SubscribeSync("$JS.API.DIRECT.GET.PENSTOCK_DEAD_stripe")
	if err != nil {
		t.Fatal(err)
	}
	some := DeadLetterFilter{Keyed: true, Key: "a", Reason: "deadline"}
	if n, err := b.Letters("stripe").DiscardSome(natstest.Context(t), some); n != 3 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	some = DeadLetterFilter{Keyed: true, Key: "a", Through: 5}
	r, err := b.NewProducer(ProducerOptions{}).ReplaySome(natstest.Context(t), "stripe", some)
	if r != (api.Replayed{Replayed: 2, Complete: true}) || err != nil {
		t.Errorf("replayed %+v, %v", r, err)
	}
	asked, _, err := reads.Pending()
	if err != nil {
		t.Fatal(err)
	}
	for range asked {
		m, err := reads.NextMsg(natstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(m.Data), `"penstock.dead.stripe.a"`) {
			t.Errorf("letters are read by %s", m.Data)
		}
	}
	if ids := letterIDs(t, b, "stripe"); asked == 0 || fmt.Sprint(ids) != "[2 4 6 8 9 10 12]" {
		t.Errorf("%v are left, %d pages were read", ids, asked)
	}
}

func TestStoredJob(t *testing.T) {
	b := newBroker(t)
	if _, err := b.StoredJob(natstest.Context(t), "stripe", 1); !errors.Is(err, ErrNoStream) {
		t.Errorf("without a stream: %v", err)
	}
	apply(t, b, paced("stripe", 5, 8))
	k := mustKey(t, "a.b")
	publish(t, b, "stripe", k, 2)
	j, err := b.StoredJob(natstest.Context(t), "stripe", 2)
	if err != nil || j.Key != k || j.Seq != 2 ||
		j.Partition != job.Partition(b.names.Jobs("stripe", k), 8) ||
		string(j.Body) != "1" || j.Stored.IsZero() || j.Cost != 1 {
		t.Errorf("got %+v, %v", j, err)
	}
	if _, err := b.StoredJob(natstest.Context(t), "stripe", 3); !errors.Is(err, ErrNotFound) {
		t.Errorf("one that never was: %v", err)
	}
}

// A stream may have no leader for some seconds, longer than a request's timeout.
func TestLettersAreLookedForUntilTheCallersDeadline(t *testing.T) {
	server := natstest.Start(t, embedded.Options{})
	b := brokerOver(t, natstest.Connect(t, server))
	if err := b.bounds.ensure(t.Context(), "api", b.Letters("api").config()); err != nil {
		t.Fatal(err)
	}
	server.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 3*b.js.Timeout/2)
	defer cancel()
	if _, err := b.Letters("api").List(ctx, 0, 10); !errors.Is(err, ErrUnavailable) ||
		ctx.Err() == nil {
		t.Errorf("%v, and the deadline has passed: %v", err, ctx.Err())
	}
}
