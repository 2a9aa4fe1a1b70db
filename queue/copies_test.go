package queue

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// copyOf is what one server holds of a stream.
func (c *cluster) copyOf(i int, stream string) (state server.StreamState) {
	c.t.Helper()
	z, err := c.servers[i].Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return state // it has just come back
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

// leads makes a server the leader of a stream.
func (c *cluster) leads(i int, stream string) {
	c.t.Helper()
	request := map[string]any{"placement": map[string]string{"preferred": c.options[i].ServerName}}
	asked := time.Time{}
	eventually(c.t, "a server leads", func() bool {
		if c.servers[i].JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return true
		}
		if time.Since(asked) > 2*time.Second {
			var answer struct{}
			_ = c.broker.call(testContext(c.t), "$JS.API.STREAM.LEADER.STEPDOWN."+stream, request, &answer)
			asked = time.Now()
		}
		return false
	})
}

// A consumer's place before its first delivery is the sequence before the one that it begins with.
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

// A server that was away catches up with what was deleted meanwhile, is killed and comes back, and
// lacks jobs from then on that wait elsewhere. These are delivered nevertheless, whichever server
// leads. An old job waits at the front of a full bucket, as one of low priority does.
func TestJobsOutliveACopyThatLacksThem(t *testing.T) {
	c := newCluster(t)
	b := c.broker
	const stream, capacity, done = "PENSTOCK_stripe", 20, 8
	apply(t, b, paced("stripe", capacity, 2))
	partition := Partition(b.names.Jobs("stripe", "k"), 2)
	epoch := uint64(0)
	reopen := func() (l *Backlog) {
		t.Helper()
		epoch++
		eventually(t, "a backlog is opened", func() bool {
			var err error
			l, err = b.OpenBacklog(testContext(t), BacklogOptions{
				Policy: "stripe", Partition: partition, Partitions: 2, Epoch: epoch,
			})
			return err == nil
		})
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // an abandoned backlog has nobody to wait for
			_ = l.Close(ctx)
		})
		return l
	}
	fill := func(n int) {
		t.Helper()
		for i := range n {
			eventually(t, "a job is stored", func() bool {
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
	eventually(t, "all is copied", same(killed, server.StreamState{Msgs: capacity, LastSeq: capacity}))
	c.stop(killed)
	l := reopen()
	for _, job := range receive(t, l, capacity)[1 : 1+done] {
		l.Done(job.Seq)
	}
	confirm(t, l, done)
	eventually(t, "finished jobs are gone", func() bool {
		info, err := b.streamInfo(testContext(t), stream, "")
		return err == nil && info.State.Msgs == capacity-done
	})
	fill(done)
	for _, back := range []bool{false, true} { // what they stop with is what the third is told
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
	eventually(t, "the third has caught up", same(killed, full))
	files := t.TempDir() // as they are when a process is killed
	if err := os.CopyFS(files, os.DirFS(c.options[killed].StoreDir)); err != nil {
		t.Fatal(err)
	}
	c.stop(killed)
	c.options[killed].StoreDir = files
	c.start(killed)
	eventually(t, "the third is back, and lacks jobs: else queue/copies.go is needed no more", func() bool {
		return c.copyOf(killed, stream).FirstSeq > 1 && c.servers[killed].JetStreamIsCurrent()
	})

	look := func(leader string) *Backlog {
		t.Helper()
		l := reopen()
		jobs := swept(t, l)
		first := slices.MinFunc(jobs, func(a, b Arrived) int { return int(a.Seq) - int(b.Seq) })
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
	eventually(t, "the third, with an empty store, has everything again", same(killed, full))
}
