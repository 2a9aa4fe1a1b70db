package jet

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestSetupIsIdempotentAndConcurrent(t *testing.T) {
	s := natstest.Start(t, embedded.Options{})
	var wg sync.WaitGroup
	for range 4 {
		nc := natstest.Connect(t, s)
		wg.Go(func() {
			b, err := NewBroker(nc, Options{})
			if err == nil {
				err = b.Setup(natstest.Context(t))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b := brokerOver(t, natstest.Connect(t, s))
	// Any KV client can read the tables.
	if _, err := b.tables.Drainers.Put(natstest.Context(t), "d1", []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	kv, err := b.js.KeyValue(natstest.Context(t), b.tables.Drainers.Bucket())
	if err != nil {
		t.Fatal(err)
	}
	if entry, err := kv.Get(natstest.Context(t), "d1"); err != nil || string(entry.Value()) != "x" {
		t.Errorf("a KV client reads %v, %v", entry, err)
	}
}

// Descriptions name Penstock in the account's list of streams. Existing streams are not updated
// only for their description.
func TestStreamsHaveDescriptions(t *testing.T) {
	b := newBroker(t)
	old, err := b.js.StreamInfo(natstest.Context(t), "KV_"+b.tables.locks.Bucket(), "")
	if err != nil {
		t.Fatal(err)
	}
	old.Config.Description = "Penstock: records"
	if err := b.js.UpdateStream(natstest.Context(t), old.Config); err != nil {
		t.Fatal(err)
	}
	apply(t, b, paced("stripe", 10, 1))
	if _, err := b.Letters("stripe").Bury(natstest.Context(t),
		DeadLetter{Policy: "stripe", Key: "a"}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{b.events.histories.open(natstest.Context(t), "stripe"),
		b.Schedules().SetUp(natstest.Context(t)), b.Setup(natstest.Context(t))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	said := map[string]string{}
	for info := range b.js.ListStreams(natstest.Context(t)).Info() {
		text := info.Config.Description
		if other := said[text]; !strings.HasPrefix(text, "Penstock: ") || other != "" {
			t.Errorf("%s and %s: %q", info.Config.Name, other, text)
		}
		said[text] = info.Config.Name
	}
	if len(said) != len(b.tables.all())+4 || said[old.Config.Description] != old.Config.Name {
		t.Errorf("got %v", said)
	}
}

func TestSetupRefusesAnotherLayout(t *testing.T) {
	b := newBroker(t)
	info, err := b.js.StreamInfo(natstest.Context(t), "KV_"+b.tables.locks.Bucket(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, layout := range []string{"1", "0.2"} { // of a build before the first release, and later
		info.Config.Metadata[jsapi.MetaVersion] = layout
		if err := b.js.UpdateStream(natstest.Context(t), info.Config); err != nil {
			t.Fatal(err)
		}
		err := b.Setup(natstest.Context(t))
		want := fmt.Sprintf("the store has layout %q, and this build reads \"0.1\"", layout)
		if !errors.Is(err, job.ErrVersion) || !strings.Contains(err.Error(), want) {
			t.Errorf("Setup: %v, want %s", err, want)
		}
	}
}

func TestNewBrokerChecksItsOptions(t *testing.T) {
	nc := natstest.New(t)
	for _, o := range []Options{{Prefix: "A"}, {Replicas: -1}, {Replicas: 2}, {Replicas: 6}} {
		if _, err := NewBroker(nc, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for _, c := range []struct {
		have string
		want bool
	}{
		{"2.14.0", true}, {"2.14.0-RC.1", true}, {"2.15.2", true}, {"3.0.0", true},
		{"2.13.9", false}, {"2.9.25", false},
		{"", false}, {"x", false},
	} {
		if got := atLeast(c.have, minServerVersion); got != c.want {
			t.Errorf("atLeast(%q) = %t", c.have, got)
		}
	}
}

func TestApplyCreatesTheStreamOfTheContract(t *testing.T) {
	b := newBroker(t)
	for _, c := range []struct {
		p    policy.Policy
		door string
	}{
		{paced("stripe", 5000, 8), "penstock.jobs.stripe.>"},
		{door("search", 1000, 4), "penstock.admitted.search.>"},
	} {
		apply(t, b, c.p)
		apply(t, b, c.p)
		info, err := b.js.StreamInfo(natstest.Context(t), "PENSTOCK_"+c.p.Name, "")
		if err != nil {
			t.Fatal(err)
		}
		have := info.Config
		if have.Retention != jetstream.WorkQueuePolicy || have.Storage != jetstream.FileStorage ||
			have.Discard != jetstream.DiscardNew || !have.DiscardNewPerSubject ||
			have.MaxMsgs != 1_000_000 ||
			have.Duplicates != 10*time.Minute || !have.AllowDirect || have.MaxAge != 0 ||
			have.AllowRollup || have.AllowMsgTTL ||
			have.MaxMsgSize != embedded.MaxPayload-64<<10 ||
			have.MaxMsgsPerSubject != c.p.QueueCapacity() {
			t.Errorf("stream %+v", have)
		}
		destination := fmt.Sprintf("penstock.queue.%s.{{partition(%d)}}.>", c.p.Name,
			c.p.Partitions)
		if len(have.Subjects) != 1 || have.Subjects[0] != c.door ||
			have.SubjectTransform.Destination != destination {
			t.Errorf("stream captures %v and stores as %+v", have.Subjects, have.SubjectTransform)
		}
	}
	apply(t, b, policy.Policy{Name: "signup",
		Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 10,
			Window: policy.Duration(time.Minute)}})
	if _, err := b.Depth(natstest.Context(t), "signup"); !errors.Is(err, ErrNoStream) {
		t.Errorf("a policy without a queue: %v, want ErrNoStream", err)
	}
}

func TestNoKeyTokenIsNoJob(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	if _, err := request(t, b.nc, "penstock.jobs.stripe", "", nil); !errors.Is(err,
		nats.ErrNoResponders) {
		t.Errorf("got %v, want no responders", err)
	}
}

func TestApplyRefusesImmutableChanges(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 8))
	for _, c := range []struct {
		p     policy.Policy
		field string
	}{
		{paced("stripe", 10, 4), "partitions"},
		{door("stripe", 10, 8), "algorithm"},
	} {
		err := b.Apply(natstest.Context(t), c.p)
		if immutable, ok := errors.AsType[*ImmutableError](err); !ok || immutable.Field != c.field {
			t.Errorf("got %v, want an ImmutableError about %s", err, c.field)
		}
	}
	if err := b.js.CreateStream(natstest.Context(t),
		jetstream.StreamConfig{Name: "PENSTOCK_foreign"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Apply(natstest.Context(t), paced("foreign", 10, 8)); !errors.Is(err,
		job.ErrVersion) {
		t.Errorf("somebody else's stream: %v, want ErrVersion", err)
	}
}

func TestApplyFromManyProcessesAtOnce(t *testing.T) {
	s := natstest.Start(t, embedded.Options{})
	brokers := make([]*Broker, 4)
	for i := range brokers {
		brokers[i] = brokerOver(t, natstest.Connect(t, s))
	}
	for round := range 5 {
		var wg sync.WaitGroup
		for i, b := range brokers {
			wg.Go(func() {
				if err := b.Apply(natstest.Context(t),
					paced("stripe", int64(100-10*round+i%2), 8)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	info, err := brokers[0].js.StreamInfo(natstest.Context(t), "PENSTOCK_stripe", "")
	if err != nil {
		t.Fatal(err)
	}
	if c := info.Config.MaxMsgsPerSubject; c != 60 && c != 61 {
		t.Errorf("capacity %d", c)
	}
}

func TestDirectPublishersMeetTheBound(t *testing.T) {
	s := natstest.Start(t, embedded.Options{})
	b := brokerOver(t, natstest.Connect(t, s))
	apply(t, b, paced("stripe", 150, 8))
	plain := natstest.Connect(t, s)
	acked, refused := 0, 0
	for i := range 200 {
		switch _, err := request(t, plain, "penstock.jobs.stripe.tenant-7", fmt.Sprint(i), nil); {
		case err == nil:
			acked++
		case errors.Is(jsapi.Translate(err), ErrFull):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if acked != 150 || refused != 50 {
		t.Errorf("%d accepted, %d refused; want 150 and 50", acked, refused)
	}
	if _, err := request(t, plain, "penstock.jobs.stripe.tenant-8", "", nil); err != nil {
		t.Errorf("another bucket: %v", err)
	}
}

func TestServerHeadersCannotLoseJobs(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 150, 8))
	publish(t, b, "stripe", "a", 3)
	for name, value := range map[string]string{"Nats-TTL": "1s", "Nats-Rollup": "all"} {
		if _, err := request(t, b.nc, "penstock.jobs.stripe.a", "",
			nats.Header{name: {value}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if n, err := b.Depth(natstest.Context(t), "stripe"); err != nil || n != 3 {
		t.Errorf("depth %d, %v", n, err)
	}
}

func TestRetire(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	publish(t, b, "stripe", "a", 2)
	for range 2 {
		if gone, err := b.Retire(natstest.Context(t), "stripe"); gone || err != nil {
			t.Fatalf("with jobs waiting: %t, %v", gone, err)
		}
	}
	if _, err := request(t, b.nc, "penstock.jobs.stripe.a", "", nil); !errors.Is(err,
		nats.ErrNoResponders) {
		t.Errorf("publishing to a retired policy: %v, want no responders", err)
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	for _, a := range receive(t, l, 2) {
		l.Done(a.Seq)
	}
	confirm(t, l, 2)
	for range 2 {
		if gone, err := b.Retire(natstest.Context(t), "stripe"); !gone || err != nil {
			t.Fatalf("empty: %t, %v", gone, err)
		}
	}
	apply(t, b, paced("stripe", 10, 4))
}

func TestApplyOpensADoorLeftClosed(t *testing.T) {
	b := newBroker(t)
	p := paced("stripe", 10, 2)
	apply(t, b, p)
	if _, err := b.shut(natstest.Context(t), "stripe", b.streamConfig(p)); err != nil {
		t.Fatal(err)
	}
	// A message to the closed door's subject becomes a malformed job of partition 0.
	if _, err := request(t, b.nc, b.names.doorClosed("stripe"), "", nil); err != nil {
		t.Fatal(err)
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Partition: 0, Partitions: 2, Epoch: 1})
	if a := receive(t, l, 1)[0]; a.Malformed == nil ||
		!strings.HasPrefix(string(a.Key), "%!.") {
		t.Errorf("got %+v", a)
	}
	apply(t, b, p)
	publish(t, b, "stripe", "a", 1)
}

// Otherwise a thousand new streams would be checked one by one until the next list, and a policy
// that returns would have no stream until then.
func TestTheFitIsCached(t *testing.T) {
	b := newBroker(t)
	p, wider := paced("stripe", 5, 1), paced("stripe", 6, 1)
	if _, err := b.Ration(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	fit := func(when string, first, second bool) {
		if b.Fits(p) != first || b.Fits(wider) != second {
			t.Errorf("%s: the first fits: %t, the wider one: %t", when, b.Fits(p), b.Fits(wider))
		}
	}
	for i, step := range []policy.Policy{p, wider, wider, p} {
		if err := b.Apply(natstest.Context(t), step); err != nil {
			t.Fatal(err)
		}
		if i != 1 && i != 3 { // just changed: the next check sees it
			fit(fmt.Sprintf("step %d", i), i == 0, i == 2)
		} else {
			fit(fmt.Sprintf("step %d", i), false, false)
		}
	}
	if err := b.Apply(natstest.Context(t), p); err != nil {
		t.Fatal(err)
	}
	fit("applied again", true, false)
	if gone, err := b.Retire(natstest.Context(t), p.Name); !gone || err != nil {
		t.Fatal(gone, err)
	}
	fit("retired", false, false)
}
