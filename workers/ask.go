package workers

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// ask is a question about jobs that have not arrived yet: their publisher may be faster than their delivery.
type ask struct {
	part  *partition
	jobs  []uint64
	until instant
	reply func(queue.ValveAnswer)
}

// askPatience is how long a question waits for its jobs to arrive. The admitter waits 20 ms for the answer.
const askPatience = 15 * time.Millisecond

// mostAsks is how many questions wait; another is answered as well as can be. Each is looked at whenever something happens.
const mostAsks = 64

// answer takes a question to the valve of a partition.
func (d *Drainer) answer(p *partition, q queue.ValveQuestion, reply func(queue.ValveAnswer), now instant) {
	v := d.core.valves[p.policy]
	switch {
	case v == nil || p.state > partitionLive:
		reply(queue.ValveAnswer{Error: "the partition has another owner"})
	case q.Op == queue.OpExpect && len(q.Jobs) > queue.MaxExpected:
		reply(queue.ValveAnswer{Error: fmt.Sprintf("at most %d jobs can be asked for at once, not %d", queue.MaxExpected, len(q.Jobs))})
	case q.Op == queue.OpExpect && len(q.Jobs) == 0:
		reply(queue.ValveAnswer{})
	case q.Op == queue.OpExpect && len(d.asks) < mostAsks:
		d.asks = append(d.asks, &ask{p, q.Jobs, now.add(askPatience), reply})
	case q.Op == queue.OpExpect:
		starts, _ := d.expect(&ask{part: p, jobs: q.Jobs}, now)
		reply(queue.ValveAnswer{Starts: starts})
	case q.Op == queue.OpRoom:
		reply(queue.ValveAnswer{DelayMS: ceilMillis(v.room(p, q.Key, now))})
	case q.Op == queue.OpOutcome:
		var o outcome
		if err := json.Unmarshal(q.Outcome, &o); err != nil {
			reply(queue.ValveAnswer{Error: "outcome is not understood: " + err.Error()})
		} else if !d.core.reported(p.policy, p.number, o, now) {
			reply(queue.ValveAnswer{Error: "the partition is being opened"})
		} else {
			reply(queue.ValveAnswer{})
		}
	default:
		d.control(v, p, q, reply, now)
	}
}

// control answers what operators ask and does what they want.
func (d *Drainer) control(v *valve, p *partition, q queue.ValveQuestion, reply func(queue.ValveAnswer), now instant) {
	wall := d.core.wall(now)
	var a queue.ValveAnswer
	switch q.Op {
	case queue.OpWorker:
		if v.policy.Target != nil {
			a.Error = "the policy has a target, which runs all of its jobs"
		}
	case queue.OpBuckets:
		a.Buckets, a.Total = v.deepest(p, q.Offset, q.Limit, now, wall)
	case queue.OpBucket:
		state := v.bucketState(p, q.Key, now, wall)
		a.Bucket = &state
	case queue.OpPurge:
		before := len(v.out.endings)
		a.Removed = v.purge(p, q.Key, now)
		reply = d.whenNoted(v.out.endings[before:], reply)
	case queue.OpJob, queue.OpCancel:
		if len(q.Jobs) != 1 {
			a.Error = "exactly one job is asked for"
			break
		}
		a.Job = v.jobState(p, q.Jobs[0], now, wall)
		if q.Op == queue.OpCancel {
			before := len(v.out.endings)
			a.Removed = v.cancel(p, q.Jobs[0], now)
			reply = d.whenNoted(v.out.endings[before:], reply)
		}
	default:
		a.Error = "unknown op " + q.Op
	}
	reply(a)
}

// notePatience is how long an answer waits until it is noted how the jobs ended that an operator dropped. Who asks waits
// for two seconds.
const notePatience = time.Second

// whenNoted is a reply that waits until the repeats of dropped jobs are told, so that who asked can rely on it.
func (d *Drainer) whenNoted(endings []ending, reply func(queue.ValveAnswer)) func(queue.ValveAnswer) {
	if len(endings) == 0 {
		return reply
	}
	left, all := len(endings), make(chan struct{})
	for i := range endings {
		endings[i].noted = func() {
			if left--; left == 0 {
				close(all)
			}
		}
	}
	return func(a queue.ValveAnswer) {
		d.spawn(func() {
			patience := time.NewTimer(notePatience)
			defer patience.Stop()
			select {
			case <-all:
			case <-patience.C:
			case <-d.stopped:
			}
			reply(a)
		})
	}
}

// resolveAsks answers the questions that can be answered, or have waited long enough.
func (d *Drainer) resolveAsks(now instant) {
	kept := d.asks[:0]
	for _, a := range d.asks {
		if slices.Max(a.jobs) > a.part.highest && now < a.until && a.part.state <= partitionLive {
			kept = append(kept, a)
			continue
		}
		starts, complete := d.expect(a, now)
		if complete || now >= a.until {
			a.reply(queue.ValveAnswer{Starts: starts})
		} else {
			kept = append(kept, a)
		}
	}
	clear(d.asks[len(kept):])
	d.asks = kept
}

func (d *Drainer) expect(a *ask, now instant) (starts []queue.ExpectedStart, complete bool) {
	complete = true
	v := d.core.valves[a.part.policy]
	for _, seq := range a.jobs {
		start := queue.ExpectedStart{Seq: seq}
		if v != nil && a.part.state <= partitionLive {
			var wait time.Duration
			wait, start.Known = v.expect(a.part, seq, now)
			start.DelayMS = ceilMillis(wait)
		}
		complete = complete && start.Known
		starts = append(starts, start)
	}
	return starts, complete
}

// asksDue is when the oldest question must be answered.
func (d *Drainer) asksDue() instant {
	if len(d.asks) == 0 {
		return never
	}
	return d.asks[0].until
}

func ceilMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
