package jet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// A client's subject that EncodeKey does not produce arrives as a malformed job without a bucket,
// and can be finished by its sequence.
func TestInvalidSubjectsArriveMalformed(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			b := newBroker(t)
			apply(t, b, paced("stripe", 100, partitions))
			tails := []string{"*", ">", "a.*", "a.>", "%zz", "%2a", "%2A", "é", "a.%", "%41", "b*c"}
			good := map[string]bool{"%2A": true, "a.%": true}
			for _, tail := range tails {
				if _, err := request(t, b.nc, "penstock.jobs.stripe."+tail, tail, nil); err != nil {
					t.Fatalf("publish to %q: %v", tail, err)
				}
			}
			if _, err := request(t, b.nc, "penstock.jobs.stripe.ok", "ok",
				nats.Header{"penstock-cost": {"many"}}); err != nil {
				t.Fatal(err)
			}
			at := func(tail string) int {
				for token := range strings.SplitSeq(tail, ".") {
					if token == "*" || token == ">" {
						return 0
					}
				}
				return job.Partition("penstock.jobs.stripe."+tail, partitions)
			}
			keys := map[queue.Key]string{}
			arrived := 0
			for partition := range partitions {
				l := open(t, b,
					BacklogOptions{Policy: "stripe", Partition: partition, Partitions: partitions,
						Epoch: 1})
				expected := 0
				for _, tail := range append(tails, "ok") {
					if at(tail) == partition {
						expected++
					}
				}
				for _, a := range receive(t, l, expected) {
					tail := string(a.Body)
					arrived++
					if (a.Malformed == nil) != good[tail] {
						t.Errorf("tail %q: malformed %v", tail, a.Malformed)
					}
					if other, taken := keys[a.Key]; taken {
						t.Errorf("%q and %q share the key %q", tail, other, a.Key)
					}
					keys[a.Key] = tail
					if a.Partition != partition {
						t.Errorf("tail %q came from partition %d, not %d", tail, a.Partition,
							partition)
					}
					d := DeadLetter{Policy: "stripe", Key: a.Key, Seq: a.Seq,
						Partition: a.Partition, Stored: a.Stored, Reason: "malformed",
						Header: a.Header, Body: a.Body}
					if _, err := b.Letters(d.Policy).Bury(natstest.Context(t), d); err != nil {
						t.Errorf("bury %q: %v", tail, err)
					}
					l.Done(a.Seq)
				}
				confirm(t, l, expected)
			}
			if n, err := b.Depth(natstest.Context(t), "stripe"); err != nil || n != 0 ||
				arrived != len(tails)+1 {
				t.Errorf("%d arrived, %d stay, %v", arrived, n, err)
			}
		})
	}
}

// Jobs outside all partitions are handed over and deleted, also before and after the backlog is
// reopened.
func TestStraysAreBuriedOnTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 4))
	key := queue.Key("a")
	for i := 0; job.Partition("penstock.jobs.stripe."+string(key), 4) != 0; i++ {
		key = queue.Key(fmt.Sprint("a", i))
	}
	stray := func(tail string) {
		t.Helper()
		if _, err := request(t, b.nc, "penstock.jobs.stripe."+tail, tail, nil); err != nil {
			t.Fatal(err)
		}
	}
	stray("before.*")
	publish(t, b, "stripe", key, 2)
	l := open(t, b, BacklogOptions{Policy: "stripe", Partitions: 4, Epoch: 1})
	got := receive(t, l, 3)
	stray("while.>")
	stray("while.*.it.is.open")
	got = append(got, receive(t, l, 2)...)
	publish(t, b, "stripe", key, 1)
	got = append(got, receive(t, l, 1)...)
	for _, a := range got {
		if a.Partition != 0 || a.Lean || (a.Malformed == nil) != (a.Key == key) ||
			a.Malformed != nil && len(a.Body) == 0 {
			t.Errorf("got %+v", a)
		}
		if a.Seq != 5 {
			l.Done(a.Seq)
		}
	}
	confirm(t, l, 5)
	again := open(t, b, BacklogOptions{Policy: "stripe", Partitions: 4, Epoch: 1})
	again.Done(5)
	if a := receive(t, again, 1)[0]; a.Seq != 5 || a.Malformed == nil {
		t.Errorf("got %+v", a)
	}
	confirm(t, again, 1)
	publish(t, b, "stripe", key, 1)
	again.Done(receive(t, again, 1)[0].Seq)
	confirm(t, again, 1)
	if n, err := b.Depth(natstest.Context(t), "stripe"); err != nil || n != 0 {
		t.Errorf("%d stay, %v", n, err)
	}
}
