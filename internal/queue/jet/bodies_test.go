package jet

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

func TestLeanBacklog(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	body := bytes.Repeat([]byte("x"), 9000)
	header := nats.Header{"Penstock-Cost": {"2"}}
	for range 3 {
		if _, err := request(t, b.nc, "penstock.jobs.stripe.a", string(body), header); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, b, "stripe", "a", 1)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	arrived := receive(t, l, 4)
	for i, a := range arrived[:3] {
		if !a.Lean || a.Body != nil || a.Size != len(body) || a.Cost != 2 || len(a.Header) != 1 {
			t.Fatalf("arrival %d is %+v", i, a)
		}
		full := bodyOf(t, l, a.Seq)
		if !bytes.Equal(full.Body, body) || full.Lean || full.Size != len(body) ||
			full.Key != a.Key || full.Cost != 2 ||
			!full.Stored.Equal(a.Stored) || len(full.Header) != 1 {
			t.Fatalf("the whole of arrival %d is %+v", i, full)
		}
	}
	if a := arrived[3]; a.Size != 1 || a.Header != nil || !a.Lean {
		t.Errorf("a small one is %+v", a)
	}
	if found, err := l.Bodies(natstest.Context(t), []uint64{99}); err != nil || len(found) != 0 {
		t.Errorf("got %v, %v, want none", found, err)
	}
}

func TestALargeBacklogComesWithoutBodies(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 1_000_000, 1))
	const jobs, size = 1<<20/4000 + 100, 4000
	for range jobs {
		if _, err := b.js.PublishAsync(b.names.Jobs("stripe", "k"), make([]byte, size),
			jetstream.WithStallWait(waittest.Patience())); err != nil {
			t.Fatal(err)
		}
	}
	<-b.js.PublishAsyncComplete()
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1, Holds: 1 << 20})
	for _, a := range receive(t, l, jobs) {
		if !a.Lean || a.Body != nil || a.Size != size || a.Header != nil {
			t.Fatalf("of the backlog comes %+v", a)
		}
	}
	waittest.Until(t, "bodies come again", func() bool {
		publish(t, b, "stripe", "k", 1)
		a := receive(t, l, 1)[0]
		if a.Lean == (a.Body != nil) {
			t.Fatalf("a new job is %+v", a)
		}
		return !a.Lean && a.Seq > jobs // the first one comes again
	})
}

// Many bodies are read at a time, in order, regardless of size and position; missing jobs are
// omitted.
func TestBodiesAreReadTogether(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 1000, 1))
	const jobs = 900
	for i := range jobs {
		header := nats.Header{"Number": {fmt.Sprint(i + 1)}}
		if _, err := request(t, b.nc, b.names.Jobs("stripe", queue.Key(fmt.Sprint(i%7))),
			strings.Repeat("x", i%3*20_000), header); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	receive(t, l, jobs)
	stream, err := b.js.Stream(natstest.Context(t), "PENSTOCK_stripe")
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(100); seq <= 110; seq++ {
		if err := stream.DeleteMsg(natstest.Context(t), seq); err != nil {
			t.Fatal(err)
		}
	}
	requests, err := b.nc.SubscribeSync("$JS.API.DIRECT.GET.PENSTOCK_stripe")
	if err != nil {
		t.Fatal(err)
	}
	single, err := b.nc.SubscribeSync("$JS.API.STREAM.MSG.GET.PENSTOCK_stripe")
	if err != nil {
		t.Fatal(err)
	}
	var wanted, want, got []uint64
	for seq := uint64(3); seq < jobs; seq += 1 + seq%3 {
		wanted = append(wanted, seq)
		if seq < 100 || seq > 110 {
			want = append(want, seq)
		}
	}
	found, err := l.Bodies(natstest.Context(t), wanted)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range found {
		got = append(got, a.Seq)
		if a.Lean || len(a.Body) != int(a.Seq-1)%3*20_000 || len(a.Header) != 1 ||
			a.Header["Number"][0] != fmt.Sprint(a.Seq) {
			t.Fatalf("job %d is %d bytes with %v", a.Seq, len(a.Body), a.Header)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	gone := len(wanted) - len(want)
	if n, _, err := requests.Pending(); err != nil || n > len(wanted)+gone {
		t.Errorf("%d requests for %d jobs, %d of them gone: %v", n, len(wanted), gone, err)
	}
	if n, _, err := single.Pending(); err != nil || n > gone {
		t.Errorf("%d jobs are read from the leader, %d are gone: %v", n, gone, err)
	}
}

func TestBodiesOfUnknownJobsAreAnError(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 1000, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	publish(t, b, "stripe", "a", 3)
	receive(t, l, 3)
	if err := b.js.DeleteStream(natstest.Context(t), "PENSTOCK_stripe"); err != nil {
		t.Fatal(err)
	}
	if found, err := l.Bodies(natstest.Context(t), []uint64{1, 2}); err == nil {
		t.Errorf("found %v of a stream that is not there", found)
	}
}

func TestSlowReaderPausesPulling(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100_000, 1))
	const jobs = 3 * jsapi.PullOpen
	flood(t, b, jobs)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	consumer, err := b.js.Consumer(natstest.Context(t), "PENSTOCK_stripe", "valve-0-1")
	if err != nil {
		t.Fatal(err)
	}
	delivered := func() uint64 {
		info, err := consumer.Info(natstest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		return info.Delivered.Consumer
	}
	waittest.Until(t, "the open pulls are served", func() bool {
		return delivered() >= jsapi.PullOpen
	})
	if n := delivered(); n > jsapi.PullOpen+jsapi.PullBatch {
		t.Errorf("%d are delivered that nobody has taken", n)
	}
	receive(t, l, jobs)
}

func TestLargeBodiesFlowInBoundedPulls(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	body := string(make([]byte, 1<<20))
	const jobs = manyBytes>>20 - 1
	for i := range jobs {
		if _, err := request(t, b.nc, b.names.Jobs("stripe", queue.Key(fmt.Sprint(i))), body,
			nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range receive(t, l, jobs) {
		if len(a.Body) != len(body) {
			t.Fatalf("got %d bytes", len(a.Body))
		}
	}
}

// Such jobs have no body, and a header that ends a server's batch.
func TestJobsThatLookLikeTheServersWordAreRead(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	for _, status := range []string{"204", "404", "500", "503"} {
		header := nats.Header{"Status": {status}}
		if _, err := request(t, b.nc, "penstock.jobs.stripe.a", "", header); err != nil {
			t.Fatal(err)
		}
	}
	ctx := natstest.Context(t)
	if all, err := b.StoredJobs(ctx, "stripe", JobFilter{}, 1, 100); err != nil || len(all) != 4 {
		t.Errorf("scanned %+v, %v", all, err)
	}
	all, err := b.StoredJobs(ctx, "stripe", JobFilter{Key: "a"}, 1, 100)
	if err != nil || len(all) != 4 {
		t.Errorf("listed %+v, %v", all, err)
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	if all, err := l.Bodies(ctx, []uint64{1, 2, 3, 4}); err != nil || len(all) != 4 {
		t.Errorf("read %+v, %v", all, err)
	}
	receive(t, l, 4)
	for seq := range uint64(4) {
		bodyOf(t, l, seq+1)
	}
}
