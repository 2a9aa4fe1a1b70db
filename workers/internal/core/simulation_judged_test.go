package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Some of these histories must fail, although the world's uncertainty requires tolerance.

// heirs are two processes: the second owns the partition of a job that the first owned before.
type heirs struct {
	w            *world
	fate         *fate
	former, heir *stint
}

func newHeirs() *heirs {
	w := emptyWorld(1, noSabotage)
	w.add(policy.Policy{Name: "api", Partitions: 1,
		Rule: policy.Rule{Capacity: 10}, Retry: policy.Retry{MaxAttempts: 9}}.WithDefaults())
	w.publish("api", "k0", 0)
	h := &heirs{w: w, fate: w.fates()[0]}
	h.former, h.heir = h.stintOf("former", 10), h.stintOf("heir", 20)
	return h
}

func (h *heirs) stintOf(name string, epoch uint64) *stint {
	w, f := h.w, h.fate
	d := &drainer{w: w, alive: true, core: New(Options{Name: name})}
	setPolicies(d.core, 0, *w.policyOf("api"))
	p := &partition{Part: d.core.valves.all["api"].Own(handle.Partition{Policy: "api"}, epoch)}
	r := handle.Ref{Part: p.Partition, Seq: f.seq, Key: f.key, Stamp: f.message.Stored.UnixNano()}
	w.drainers = append(w.drainers, d)
	f.stream.consumers[0] = []*consumer{{stream: f.stream, epoch: epoch, owner: d, part: p}}
	return &stint{Run: valve.Run{Ref: r}, part: p, d: d, fate: f,
		slot: slot{number: int(epoch), at: time.Duration(epoch)}}
}

func (h *heirs) told(s *stint, failed, crashes int) {
	s.Attempt, s.Crashes = failed+1, crashes
	h.w.tells(s)
}

func (h *heirs) record(s *stint, attempts, crashes int) {
	saved := valve.Save{Ref: s.Ref,
		Record: record.Attempt{V: record.Version, Attempts: attempts, Crashes: crashes}}
	h.w.asksToRecord(s.d, saved)
	h.w.noteAttempt(s.d, saved)
}

func TestALateAttemptRecordCounts(t *testing.T) {
	for _, x := range []struct {
		name   string
		play   func(h *heirs)
		broken bool
	}{
		{"nobody recorded anything", func(h *heirs) { h.told(h.heir, 1, 0) }, true},
		{"the former did, and it counts", func(h *heirs) {
			h.record(h.former, 1, 1)
			h.told(h.heir, 1, 1)
		}, false},
		{"the former did, and it was not found", func(h *heirs) {
			h.record(h.former, 1, 1)
			h.told(h.heir, 0, 0)
		}, false},
		{"more counts than the former recorded", func(h *heirs) {
			h.record(h.former, 1, 1)
			h.told(h.heir, 2, 0)
		}, true},
		{"more crashes than the former recorded", func(h *heirs) {
			h.record(h.former, 1, 1)
			h.told(h.heir, 0, 2)
		}, true},
		{"the owner records what was not", func(h *heirs) { h.record(h.heir, 1, 0) }, true},
		{"the owner records a crash that was not", func(h *heirs) { h.record(h.heir, 0, 1) }, true},
		{"the former takes back what the owner knew", func(h *heirs) {
			h.w.hears(h.heir, record.Outcome{Kind: record.OutcomeFailed}, false)
			h.record(h.heir, 1, 0)
			h.record(h.former, 0, 0)
			h.told(h.heir, 0, 0)
		}, true},
	} {
		h := newHeirs()
		h.heir.d.told = map[string]*told{"api": {Policy: *h.w.policyOf("api")}}
		h.told(h.heir, 0, 0)
		if x.play(h); len(h.w.broken) > 0 != x.broken {
			t.Errorf("%s: %q", x.name, h.w.broken)
		}
	}
}

func TestACrashAfterAnOutcomeBeforeItsJob(t *testing.T) {
	ran := func(seqs ...uint64) (running []record.Run) {
		for _, seq := range seqs {
			running = append(running, record.Run{Seq: seq, Holder: "former"})
		}
		return running
	}
	for name, x := range map[string]struct {
		inherited []record.Run
		told      uint64
		broken    bool
	}{
		"told":             {ran(1), 1, false},
		"not told":         {ran(1), 0, true},
		"told of another":  {ran(1, 2), 2, true},
		"told, and had it": {nil, 1, true},
	} {
		h := newHeirs()
		h.told(h.former, 0, 0)
		p := h.heir.part.Part
		p.Opened(time.Time{}, 0,
			&inheritance.State{Handover: record.Handover{Running: x.inherited}}, 0)
		p.Reported(record.Outcome{Seq: x.told, Kind: record.OutcomeFailed, Holder: "former"}, 0)
		h.w.isTold(h.heir.part, h.heir.d, h.fate)
		h.w.forgets(h.heir.d)
		if h.record(h.stintOf("third", 30), 0, 1); len(h.w.broken) > 0 != x.broken {
			t.Errorf("%s: %q", name, h.w.broken)
		}
	}
}

// A checkpoint of a former run can be overwritten by one built between the two runs.
func TestACrashCountsWhereACheckpointToldOfTheRun(t *testing.T) {
	for name, composed := range map[string]int{"before the run began": 19, "when it began": 20,
		"later": 21} {
		h := newHeirs()
		s := h.heir
		h.w.hazards = []hazard{noLeader}
		h.w.write(TablePartitions, record.CheckpointKey("api",
			0), Record{Exists: true, Revision: 7, Value: record.Encode(record.Checkpoint{
			V: record.Version, Epoch: s.part.Epoch, Handover: record.Handover{
				Running: []record.Run{{Seq: s.Seq, Holder: s.d.core.Lease.Id}},
				Stream:  s.fate.stream.created.UnixNano(),
			},
		})})
		h.w.composed[7] = composed
		if noted := h.w.noted(s); noted != (composed >= s.slot.number) {
			t.Errorf("%s: noted %v", name, noted)
		}
	}
}

// For its owner a run is over when it gets the outcome, or if it acknowledged the job itself.
func TestARemovedJobsRunHoldsItsBucket(t *testing.T) {
	for _, removed := range []bool{false, true} {
		h := newHeirs()
		p := h.heir.part
		h.w.policyOf("api").OutflowTotal = leaky("api", "1/s").Outflow
		h.heir.d.told = map[string]*told{"api": {Policy: *h.w.policyOf("api")}}
		h.w.set.elsewhere["api"] = true
		clear(h.fate.stream.consumers)
		h.w.publish("api", "k0", 0)
		h.fate.given = true
		h.w.opens(p, h.fate.stream, 2)
		h.w.delivered(p, []job.Arrived{*h.fate.message, *h.w.fates()[1].message})
		c := h.w.contests[p]
		c.keys["k0"].held = false
		if h.w.able(h.heir.d, c, "k0") {
			t.Error("it may start a job beside one that runs")
		}
		if removed {
			h.w.remove(h.fate)
		} else {
			delete(h.fate.stream.messages, h.fate.seq)
		}
		if h.w.able(h.heir.d, c, "k0") == removed {
			t.Errorf("removed %v: able %v", removed, removed)
		}
	}
}

// A former owner's run counts for its heir once reported, and then for its own bucket, until the
// pause ends.
func TestAPauseHoldsABucketUpOnceItsOwnerHears(t *testing.T) {
	h := newHeirs()
	h.w.watchStandstill()
	api := &told{Policy: *h.w.policyOf("api")}
	h.former.d.told = map[string]*told{"api": api}
	h.former.part.Surrender(0)
	cool := func(key queue.Key) time.Duration {
		return h.w.stands.buckets[bucketOf("api", key)].cool
	}
	pause := record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: time.Minute}
	if h.w.hears(h.former, pause, false); cool("k0") != 0 {
		t.Errorf("until %v, before it is reported", cool("k0"))
	}
	if h.w.cools("api/k0", api, pause); cool("k0") != time.Minute+answers || cool("k1") != 0 {
		t.Errorf("k0 until %v, want a minute and %v more; k1 until %v, want 0", cool("k0"), answers,
			cool("k1"))
	}
}

// The pause is the bucket's, in any process. Other outcomes do not take a bucket out of the
// contest, unless they were reported before the job arrived.
func TestAPausedBucketMissesNoTurn(t *testing.T) {
	for _, x := range []struct {
		outcome record.Outcome
		arrives bool
		held    bool
	}{
		{outcome: record.Outcome{Kind: record.OutcomeDone}},
		{outcome: record.Outcome{Kind: record.OutcomeProgress}},
		{outcome: record.Outcome{Kind: record.OutcomeDone, RetryAfter: time.Minute}, held: true},
		{outcome: record.Outcome{Kind: record.OutcomeThrottled}, held: true},
		{outcome: record.Outcome{Kind: record.OutcomeFailed, Unavailable: true}, held: true},
		{outcome: record.Outcome{Kind: record.OutcomeDone}, arrives: true, held: true},
	} {
		h := newHeirs()
		h.w.policyOf("api").OutflowTotal = leaky("api", "1/s").Outflow
		p, d, f := h.heir.part, h.heir.d, h.fate
		d.told = map[string]*told{"api": {Policy: *h.w.policyOf("api")}}
		c := d.core
		c.Lease.Held, c.Lease.Fence, c.Connected, c.server.known = true, pace.Never, true, true
		c.shares.all[shareOf(p.Partition)] = &share{policy: "api", part: p, state: shareOwned}
		h.w.opens(p, f.stream, 1)
		k := h.w.contests[p].keys[f.key]
		f.given, k.held = true, false
		x.outcome.Seq, x.outcome.Stream = f.seq, f.stream.created.UnixNano()
		if !h.w.reported(record.Report{Policy: "api", Outcome: x.outcome}) {
			t.Fatal("nobody hears the report")
		}
		if x.arrives {
			h.w.delivered(p, []job.Arrived{*f.message})
		}
		if k.held != x.held {
			t.Errorf("%+v: held %v, want %v", x, k.held, x.held)
		}
	}
}

// A report, which a busy drainer's core gets at once, may end what it is busy with.
func TestABusyDrainerHearsInOrder(t *testing.T) {
	w := emptyWorld(1, noSabotage)
	w.join()
	d := w.drainers[0]
	d.busy = time.Millisecond
	var heard []int
	d.receive(func() { heard = append(heard, 1) })
	d.busy = 0
	d.receive(func() { heard = append(heard, 2) })
	for w.now <= time.Second {
		e := w.queue.Remove(0)
		w.now = e.at
		e.do()
	}
	if !slices.Equal(heard, []int{1, 2}) {
		t.Errorf("it heard %v", heard)
	}
}
