package workers

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// TestAPolicyThatComesBackAtOnceRunsAllItsJobs: its new stream counts from 1 again, and what drainers remember of the old
// one's sequences says nothing about the jobs of the new one.
func TestAPolicyThatComesBackAtOnceRunsAllItsJobs(t *testing.T) {
	p := policy.Policy{Name: "api", Algorithm: policy.LeakingBucket, Capacity: 100, Partitions: 2,
		Outflow: algorithms.Rate{Count: 1000, Per: time.Second}}
	b := newBench(t, p)
	var ran seen
	for range 2 {
		b.drain(Options{}, map[string]Handler{"api": ran.handle})
	}
	const each = 20
	for round := range 8 {
		if round > 0 {
			b.put(p)
		}
		b.publish("api", "a", round*each, each)
		b.empty("api")
		if err := b.broker.DeletePolicy(t.Context(), "api", false, nil); err != nil {
			t.Fatal(err)
		}
		b.until("the policy is gone", func() bool {
			gone, err := b.broker.ForgetPolicy(t.Context(), "api")
			if err != nil {
				t.Fatal(err)
			}
			return gone
		})
	}
	ran.mu.Lock()
	defer ran.mu.Unlock()
	bodies := map[string]bool{}
	for _, job := range ran.jobs {
		bodies[string(job.Body)] = true
	}
	for n := range 8 * each {
		if !bodies[fmt.Sprint(n)] {
			t.Errorf("job %d never ran", n)
		}
	}
}

// A drainer that hears late that a policy is gone, or that ends only then, hands over what it knows of the old stream when
// the new one is there already.
func TestWhatIsHandedOverOfAnotherStreamIsNoWordOnThisOne(t *testing.T) {
	c := coreBench(t, leaky("api", "1/s"))
	created := time.Unix(1_700_000_000, 0)
	for _, stream := range []int64{created.UnixNano(), created.Add(-time.Hour).UnixNano(), 0} {
		s := &share{policy: "api", before: predecessor{exists: true, revision: 7, stored: created.Add(time.Second),
			record: ownerRecord{V: version, Owner: "old", Released: true,
				handover: handover{Stream: stream, Done: []uint64{1}, Running: []runRecord{{Seq: 2, Holder: "old"}}}}}}
		in := c.inheritance(s, opened{created: created, claimed: created.Add(time.Minute)}, origin)
		want := stream != created.Add(-time.Hour).UnixNano() // one that does not say is of an older version
		if got := len(in.handover.Done) == 1 && len(in.handover.Running) == 1; got != want {
			t.Errorf("stream %d: heeded %t, want %t: %+v", stream, got, want, in.handover)
		}
	}
}

// A drainer ends in order though the stream of a policy that it owns partitions of is gone.
func TestADrainerEndsAlsoWhenAPolicysStreamIsGone(t *testing.T) {
	p := policy.Policy{Name: "api", Algorithm: policy.LeakingBucket, Capacity: 100, Partitions: 2,
		Outflow: algorithms.Rate{Count: 1000, Per: time.Second}}
	b := newBench(t, p)
	var ran seen
	stop := b.drain(Options{Grace: 2 * deadline}, map[string]Handler{"api": ran.handle})
	b.publish("api", "a", 0, 20)
	b.empty("api")
	if err := b.broker.DeletePolicy(t.Context(), "api", false, nil); err != nil {
		t.Fatal(err)
	}
	b.until("its stream is gone", func() bool {
		gone, err := b.broker.Retire(t.Context(), "api")
		return err == nil && gone
	})
	stop()
}
