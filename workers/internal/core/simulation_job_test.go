package core

import (
	"strconv"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
)

// identity is unique even if a recreated stream repeats sequences.
type identity struct {
	policy string
	seq    uint64
	stored int64
}

func identityOf(policy string, a *job.Arrived) identity {
	return identity{policy, a.Seq, a.Stored.UnixNano()}
}

func (w *world) fateOf(policy string, a *job.Arrived) *fate {
	return w.accepted[identityOf(policy, a)]
}

func (w *world) fateNamed(r handle.Ref) *fate {
	return w.accepted[identity{r.Part.Policy, r.Seq, r.Stamp}]
}

type fate struct {
	policy    string
	bucket    string
	key       queue.Key
	partition int
	seq       uint64
	stream    *stream
	cost      int64
	priority  int
	message   *job.Arrived
	account
	edit *edited

	slots     []slot
	given     bool          // to a worker, at least once
	excepted  bool          // from the order, because it was retried, throttled or returned
	handed    bool          // over, with its partition, while it ran
	heard     time.Duration // last progress that its new owner got
	done      bool
	dead      string
	cancelled bool
	removed   bool
	// a crash may have lost its outcome
	forgiven bool
}

func (f *fate) final() bool { return f.done || f.dead != "" || f.cancelled || f.removed }

// overdue reports whether a new owner with a fast clock may have given up waiting for the outcome.
func (f *fate) overdue(now, timeout time.Duration) bool {
	return f.handed && now-f.heard >= timeout-timeout/1000
}

func (w *world) publishers(until time.Duration) {
	for range 2 + w.rng.IntN(3) {
		name := w.policies[w.rng.IntN(len(w.policies))].Name
		key := someKey(w)
		partition := partitionOf(key, w.policyOf(name).Partitions)
		for at := w.between(0, 2*time.Second); at <
			until; at += w.between(100*time.Millisecond, 8*time.Second) {
			w.after(at, func() {
				for range 1 + w.rng.IntN(12) {
					w.publish(name, key, partition)
				}
			})
		}
	}
}

var keys = []queue.Key{"k0", "k1", "k2", "k3"}

func someKey(w *world) queue.Key { return keys[w.rng.IntN(len(keys))] }

func bucketOf(policy string, key queue.Key) string { return policy + "/" + string(key) }

func partitionOf(key queue.Key, partitions int) int {
	return job.Partition("jobs."+string(key), partitions)
}

func (w *world) publish(name string, key queue.Key, partition int) {
	s := w.streams[name]
	if w.down || w.headless(name) || w.set.retired[name] != nil ||
		s.depth[key] >= w.policyOf(name).Capacity || w.has(slowRates) && len(s.messages) >= 20 {
		return
	}
	s.seq++
	a := &job.Arrived{Seq: s.seq, Key: key, Partition: partition, Stored: w.wall(), Size: 4,
		Cost: 1, Body: []byte("body")}
	f := &fate{policy: name, bucket: bucketOf(name, key), key: key, partition: partition,
		seq: s.seq, stream: s}
	if w.chance(0.08) {
		a.Cost = 2 + w.rng.Int64N(8)
	}
	if w.chance(0.1) {
		a.Priority = 1 + w.rng.IntN(2)
	}
	if w.has(prioritySteps) {
		a.Priority = w.rng.IntN(5) - 2
	}
	if w.chance(0.02) {
		a.Deadline = w.wall().Add(w.between(0, 5*time.Second))
		f.excepted = true
	}
	if w.chance(0.02) {
		a.NotBefore = w.wall().Add(w.between(0, 5*time.Second))
		f.excepted = true
	}
	if w.chance(0.05) {
		f.tries = 1 + w.rng.IntN(2)
		a.Header = map[string][]string{job.HeaderMaxAttempts: {strconv.Itoa(f.tries)}}
	}
	if w.chance(0.04) {
		unique := []string{"x", "x; replace"}[w.rng.IntN(2)]
		a.Header = map[string][]string{job.HeaderUnique: {unique}}
		f.tries = 0
	}
	if p := w.policyOf(name); len(p.Limits) > 0 && w.chance(0.7) {
		a.Costs = map[string]int64{"tokens": 1 + w.rng.Int64N(20)}
	}
	if w.set.cheap {
		a.Cost = 1
	}
	if w.has(leanBodies) {
		a.Size = 4<<10 + w.rng.IntN(2)
	}
	f.cost, f.priority, f.message, f.under = a.Cost, a.Priority, a, map[*drainer]bool{}
	w.urge(f)
	s.messages[s.seq] = a
	s.depth[key]++
	w.accepted[identityOf(name, a)] = f
	if consumers := s.consumers[partition]; len(consumers) > 0 {
		// Several consumers exist only by sabotage; any may get it.
		w.deliver(consumers[w.rng.IntN(len(consumers))], []*job.Arrived{a}, 0)
	}
}
