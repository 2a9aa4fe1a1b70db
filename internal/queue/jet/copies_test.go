package jet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

func (c *cluster) copyOf(i int, stream string) (state server.StreamState) {
	c.t.Helper()
	z, err := c.servers[i].Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return state
	}
	for _, account := range z.AccountDetails {
		for _, s := range account.Streams {
			if s.Name == stream {
				state = s.State
			}
		}
	}
	return state
}

func (c *cluster) leads(i int, stream string) {
	c.t.Helper()
	request := map[string]any{"placement": map[string]string{"preferred": c.options[i].ServerName}}
	asked := time.Time{}
	waittest.Until(c.t, "a server leads", func() bool {
		if c.servers[i].JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return true
		}
		if time.Since(asked) > 2*time.Second {
			var answer struct{}
			_ = c.broker.js.Call(natstest.Context(c.t), "$JS.API.STREAM.LEADER.STEPDOWN."+stream,
				request, &answer)
			asked = time.Now()
		}
		return false
	})
}

// Before its first delivery a consumer's position is its first sequence minus one.
func TestAConsumerThatBeginsLateIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		jobs, first, place uint64
		want               bool
	}{
		"an empty stream":    {0, 8, 7, false},
		"of a new stream":    {3, 1, 0, false},
		"at the first job":   {3, 8, 7, false},
		"after some went":    {3, 8, 2, false},
		"behind the first":   {3, 8, 8, true},
		"behind all of them": {3, 8, 10, true},
	} {
		stream := jetstream.StreamState{Msgs: c.jobs, FirstSeq: c.first}
		var consumer jetstream.ConsumerInfo
		consumer.Delivered.Stream = c.place
		if got := beginsLate(stream, consumer); got != c.want {
			t.Errorf("%s: late %v, want %v", name, got, c.want)
		}
	}
}

// A late answer is awaited: without it, a copy that lacks jobs would be accepted.
func TestTheStateOfAFormerConsumerIsRetried(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(natstest.Patience) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	asked := 0
	if _, err := nc.Subscribe("$JS.API.CONSUMER.INFO.S.C", func(m *nats.Msg) {
		switch asked++; asked {
		case 1:
		case 2:
			_ = m.Respond([]byte(`{"error": {"code": 503, "err_code": 10008}}`))
		default:
			_ = m.Respond([]byte(`{"num_pending": 7, "num_ack_pending": 2, "cluster": {}}`))
		}
	}); err != nil {
		t.Fatal(err)
	}
	b, err := NewBroker(nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &Backlog{b: b, stream: "S"}
	if n := l.outstanding(natstest.Context(t), "C"); n != 9 {
		t.Errorf("it waits for %d jobs, want 9", n)
	}
}

// An opening may fail after it has deleted the former consumer. The next one still knows how many
// jobs that waited for, and forgets it once a leader has them.
func TestAnOpeningThatFailsTellsTheNextWhatIsOwed(t *testing.T) {
	c := newCluster(t, false)
	b := c.broker
	apply(t, b, paced("stripe", 20, 1))
	publish(t, b, "stripe", "k", 9)
	open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	info, err := b.js.StreamInfo(natstest.Context(t), "PENSTOCK_stripe", "")
	if err != nil {
		t.Fatal(err)
	}
	fails := b.backlogOf(BacklogOptions{Policy: "stripe", Partitions: 1, Epoch: 2}, info)
	if err := fails.deleteConsumers(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 3})
	if l.held != 9 || l.has != 9 {
		t.Errorf("the leader has %d jobs of %d, want 9 of 9", l.has, l.held)
	}
	if n := l.owed(); n != 0 {
		t.Errorf("%d jobs are owed after the opening", n)
	}
}

// A server that was down catches up with deletions, is killed and restarts; its copy then lacks
// jobs of the other copies. All jobs are still delivered, whichever server leads. An old job waits
// at the front of a full bucket, like one of low priority. Syncing each write does not prevent it.
func TestJobsOutliveACopyThatLacksThem(t *testing.T) {
	c := newCluster(t, true)
	b := c.broker
	const stream, capacity, done = "PENSTOCK_stripe", 20, 8
	apply(t, b, paced("stripe", capacity, 2))
	partition := job.Partition(b.names.Jobs("stripe", "k"), 2)
	epoch := uint64(0)
	reopen := func() *opened {
		t.Helper()
		l := &opened{}
		epoch++
		waittest.Until(t, "a backlog is opened", func() bool {
			var err error
			l.Backlog, err = b.OpenBacklog(natstest.Context(t), BacklogOptions{
				Policy: "stripe", Partition: partition, Partitions: 2, Epoch: epoch,
			})
			if err != nil {
				t.Logf("epoch %d: %v", epoch, err)
			}
			return err == nil
		})
		t.Cleanup(func() { abandon(l.Backlog) })
		return l
	}
	fill := func(n int) {
		t.Helper()
		for i := range n {
			waittest.Until(t, "a job is stored", func() bool {
				_, err := request(t, b.nc, b.names.Jobs("stripe", "k"), fmt.Sprint(i), nil)
				return err == nil
			})
		}
	}
	same := func(i int, want server.StreamState) func() bool {
		return func() bool {
			have := c.copyOf(i, stream)
			return have.Msgs == want.Msgs && have.LastSeq == want.LastSeq
		}
	}

	fill(capacity)
	killed := c.follower(stream)
	waittest.Until(t, "all is copied",
		same(killed, server.StreamState{Msgs: capacity, LastSeq: capacity}))
	c.stop(killed)
	l := reopen()
	for _, job := range receive(t, l, capacity)[1 : 1+done] {
		l.Done(job.Seq)
	}
	confirm(t, l, done)
	waittest.Until(t, "finished jobs are gone", func() bool {
		info, err := b.js.StreamInfo(natstest.Context(t), stream, "")
		return err == nil && info.State.Msgs == capacity-done
	})
	fill(done)
	for _, back := range []bool{false, true} {
		for i := range c.servers {
			switch {
			case i == killed:
			case back:
				c.start(i)
			default:
				c.stop(i)
			}
		}
	}
	c.start(killed)
	full := server.StreamState{Msgs: capacity, LastSeq: capacity + done}
	waittest.Until(t, "the third has caught up", same(killed, full))
	var files string
	waittest.Until(t, "its files are copied, and none went meanwhile", func() bool {
		files = t.TempDir()
		err := os.CopyFS(files, os.DirFS(c.options[killed].StoreDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	})
	c.stop(killed)
	c.options[killed].StoreDir = files
	c.start(killed)
	waittest.Until(t, "the third is back, and lacks jobs: else queue/copies.go is needed no more",
		func() bool {
			return c.copyOf(killed, stream).FirstSeq > 1 && c.servers[killed].JetStreamIsCurrent()
		})

	look := func(leader string) *opened {
		t.Helper()
		l := reopen()
		jobs := sweepOf(t, l)
		first := slices.MinFunc(jobs, func(a, b job.Arrived) int { return int(a.Seq) - int(b.Seq) })
		if len(jobs) != capacity || first.Seq != 1 {
			t.Errorf("epoch %d, %s leads: %d jobs came from %d on, want %d from 1 on",
				epoch, leader, len(jobs), first.Seq, capacity)
		}
		return l
	}
	c.leads((killed+1)%3, stream)
	led := false // the consumer, first: every third time
	for range 40 {
		if led = len(look("another").Lacks()) > 0; led {
			break
		}
	}
	if !led {
		t.Error("the third never led a new consumer")
	}
	c.leads(killed, stream)
	lacks := look("the third").Lacks()
	if len(lacks) == 0 || lacks[len(lacks)-1].Server != c.options[killed].ServerName {
		t.Errorf("lacking are %v, want %s", lacks, c.options[killed].ServerName)
	}
	c.stop(killed)
	c.options[killed].StoreDir = t.TempDir()
	c.start(killed)
	waittest.Until(t, "the third, with an empty store, has everything again", same(killed, full))
}
