package workers

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// The judge of the simulation is judged itself, where the world obliges it to be lenient: by histories, some of which must fail.

// heirs are two processes, of which the second owns the partition of a job that the first owned before.
type heirs struct {
	w            *world
	fate         *fate
	former, heir *stint
}

func newHeirs() *heirs {
	w := emptyWorld(1, noSabotage)
	w.add(policy.Policy{Name: "api", Partitions: 1, Capacity: 10, Retry: policy.Retry{MaxAttempts: 9}}.WithDefaults())
	w.publish("api", "k0", 0)
	f := w.fates()[0]
	s := f.stream
	stintOf := func(name string, epoch uint64) *stint {
		d := &drainer{w: w, alive: true, core: newCore(coreOptions{name: name})}
		p := &partition{policy: "api", epoch: epoch, state: partitionLive}
		j := &job{Arrived: *f.message, bucket: &bucket{part: p}}
		w.drainers = append(w.drainers, d)
		s.consumers[0] = []*consumer{{stream: s, epoch: epoch, owner: d, part: p}}
		return &stint{run: &run{job: j, part: p}, d: d, fate: f, slot: slot{number: int(epoch), at: time.Duration(epoch)}}
	}
	return &heirs{w, f, stintOf("former", 10), stintOf("heir", 20)}
}

func (h *heirs) told(s *stint, failed, crashes int) {
	s.attempt, s.crashes = failed+1, crashes
	h.w.tells(s)
}

func (h *heirs) record(s *stint, attempts, crashes int) {
	saved := save{job: s.job, record: attemptRecord{V: version, Attempts: attempts, Crashes: crashes}}
	h.w.asksToRecord(s.d, saved)
	h.w.noteAttempt(s.d, saved)
}

// TestWhatAFormerOwnerRecordsMayCountLater: it may, and need not, and nothing beyond it does.
func TestWhatAFormerOwnerRecordsMayCountLater(t *testing.T) {
	for _, x := range []struct {
		name   string
		play   func(h *heirs)
		broken bool
	}{
		{"nobody recorded anything", func(h *heirs) { h.told(h.heir, 1, 0) }, true},
		{"the former did, and it counts", func(h *heirs) { h.record(h.former, 1, 1); h.told(h.heir, 1, 1) }, false},
		{"the former did, and it was not found", func(h *heirs) { h.record(h.former, 1, 1); h.told(h.heir, 0, 0) }, false},
		{"more counts than the former recorded", func(h *heirs) { h.record(h.former, 1, 1); h.told(h.heir, 2, 0) }, true},
		{"more crashes than the former recorded", func(h *heirs) { h.record(h.former, 1, 1); h.told(h.heir, 0, 2) }, true},
		{"the owner records what was not", func(h *heirs) { h.record(h.heir, 1, 0) }, true},
		{"the owner records a crash that was not", func(h *heirs) { h.record(h.heir, 0, 1) }, true},
		{"the former takes back what the owner knew", func(h *heirs) {
			h.w.hears(h.heir, outcome{Kind: outcomeFailed}, false)
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

// TestACrashCountsWhereACheckpointToldOfTheRun: of this run, for one that tells of a former run can be written over by one
// that was put together between the two.
func TestACrashCountsWhereACheckpointToldOfTheRun(t *testing.T) {
	for name, composed := range map[string]int{"before the run began": 19, "when it began": 20, "later": 21} {
		h := newHeirs()
		s := h.heir
		h.w.hazards = []hazard{noLeader} // else what was put together long ago must have been stored
		h.w.write(tablePartitions, checkpointKey("api", 0), record{exists: true, revision: 7, value: encode(checkpoint{
			V: version, Epoch: s.part.epoch, handover: handover{
				Running: []runRecord{{s.Seq, s.d.core.lease.id}}, Stream: s.fate.stream.created.UnixNano(),
			},
		})})
		h.w.composed[7] = composed
		if noted := h.w.noted(s); noted != (composed >= s.slot.number) {
			t.Errorf("%s: noted %v", name, noted)
		}
	}
}

// TestAPauseHoldsABucketUpOnceItsOwnerHears: a run of a former owner says nothing to its heir until it is reported, and then of
// its own bucket alone, until the pause ends.
func TestAPauseHoldsABucketUpOnceItsOwnerHears(t *testing.T) {
	h := newHeirs()
	h.w.watchStandstill()
	api := &told{Policy: *h.w.policyOf("api")}
	h.former.d.told = map[string]*told{"api": api}
	h.former.part.state = partitionSurrendered
	cool := func(key queue.Key) time.Duration { return h.w.stands.buckets[bucketOf("api", key)].cool }
	pause := outcome{Kind: outcomeThrottled, RetryAfter: time.Minute}
	if h.w.hears(h.former, pause, false); cool("k0") != 0 {
		t.Errorf("until %v, before it is reported", cool("k0"))
	}
	if h.w.cools("api/k0", api, pause); cool("k0") != time.Minute+answers || cool("k1") != 0 {
		t.Errorf("k0 until %v, want a minute and %v more; k1 until %v, want 0", cool("k0"), answers, cool("k1"))
	}
}
