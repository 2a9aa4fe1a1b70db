package core

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Hazards of a world, in addition to every world's. Each seed has some, and the tolerances that one
// requires apply only where it occurs.

var onlyHazards = flag.String("hazards", "",
	"hazards that every world of the simulation has, and no other, by comma")

type hazard string

const (
	slowRates hazard = "slow-rates" // that are slower than a lease: seconds to one start
	// one stream or bucket of records does not answer while others do
	noLeader hazard = "no-leader"
	// a step of a core takes time, by the number of its buckets
	costlySteps hazard = "costly-steps"
	// a process's renewals are lost: it is declared dead with writes in flight
	muteLeases hazard = "mute-leases"
	// attempt records and letters are stored after their callers have stopped waiting
	lateCalls    hazard = "late-calls"
	leanBodies   hazard = "lean-bodies"
	removals     hazard = "removals"
	twice        hazard = "twice"
	differingOwn hazard = "differing-own" // drainers may own different policies, and that changes
	// for seconds, consumers deliver only a part of the stored jobs
	lagging      hazard = "lagging"
	tightRecords hazard = "tight-records" // not every key fits a record
	// for some time, a drainer of another version takes free partitions
	strangers hazard = "strangers"
	// owners' records, leases and checkpoints become garbage
	damages hazard = "damages"
	// there is no memory for jobs that wait behind others
	shortMemory hazard = "short-memory"
	// steps of priority are worth a time of waiting, which changes
	prioritySteps hazard = "steps-of-priority"
)

// hazards lists all. New ones are appended, because seeds must keep theirs.
var hazards = []struct {
	name   hazard
	chance float64
	strike func(w *world)
}{
	{slowRates, 0.2, nil},
	{noLeader, 0.2, (*world).loseLeader},
	{costlySteps, 0.2, nil},
	{muteLeases, 0.2, (*world).muteLease},
	{lateCalls, 0.2, nil},
	{leanBodies, 0.2, nil},
	{removals, 0.2, (*world).removeSome},
	{twice, 0.2, nil},
	{differingOwn, 0.2, (*world).ownOthers},
	{stoppedClocks, 0.2, (*world).stopClocks},
	{serverClocks, 0.2, (*world).stepServers},
	{hostClocks, 0.2, nil},
	{lateCheckpoints, 0.2, (*world).holdCheckpoints},
	{lagging, 0.2, nil},
	{tightRecords, 0.2, nil},
	{strangers, 0.2, nil},
	{streamsAnew, 0.2, (*world).makeStreamAnew},
	{retiring, 0.2, (*world).retire},
	{shortMemory, 0.3, nil},
	{prioritySteps, 0.3, (*world).changeStep},
	{damages, 0.2, (*world).damage},
}

// pickHazards has a separate source of randomness, because a new hazard must change only its
// worlds.
func (w *world) pickHazards(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 21))
	calm := rng.Float64() < 0.3
	for _, h := range hazards {
		drawn := rng.Float64() < h.chance && !calm
		if *onlyHazards != "" {
			drawn = slices.Contains(strings.Split(*onlyHazards, ","), string(h.name))
		}
		if drawn {
			w.hazards = append(w.hazards, h.name)
		}
	}
}

func (w *world) has(h hazard) bool { return slices.Contains(w.hazards, h) }

func (w *world) hazardsStrike(until time.Duration) {
	for _, h := range hazards {
		if h.strike == nil || !w.has(h.name) {
			continue
		}
		for at := w.between(time.Second, 6*time.Second); at <
			until; at += w.between(200*time.Millisecond, 8*time.Second) {
			w.after(at, func() { h.strike(w) })
		}
	}
}

func (w *world) alive() (alive []*drainer) {
	for _, d := range w.drainers {
		if d.alive {
			alive = append(alive, d)
		}
	}
	return alive
}

func (w *world) someDrainer() *drainer {
	alive := w.alive()
	if len(alive) == 0 {
		return nil
	}
	return alive[w.rng.IntN(len(alive))]
}

var tableNames = [...]string{TableDrainers: "leases", TablePartitions: "owners"}

const attemptsName, lettersName = "attempts", "letters"

func (w *world) loseLeader() {
	names := append([]string{attemptsName, lettersName}, tableNames[:]...)
	for i := range w.policies {
		names = append(names, w.policies[i].Name)
	}
	name := names[w.rng.IntN(len(names))]
	w.orphaned[name] = max(w.orphaned[name], w.now+w.between(200*time.Millisecond, 8*time.Second))
}

func (w *world) headless(name string) bool {
	s := w.streams[name]
	return w.orphaned[name] > w.now || s != nil && s.missing
}

func (w *world) muteLease() {
	if d := w.someDrainer(); d != nil {
		d.mute = max(d.mute, w.now+w.between(simulatedLease/2, 3*simulatedLease))
	}
}

func (w *world) removeSome() {
	name := w.policies[w.rng.IntN(len(w.policies))].Name
	s := w.streams[name]
	for _, seq := range slices.Sorted(maps.Keys(s.messages)) {
		if w.chance(0.1) {
			w.remove(w.fateOf(name, s.messages[seq]))
		}
	}
}

// estrange lets a drainer of another version take a released partition, start no jobs, and leave it
// unchanged. This version cannot read its record meanwhile.
func (w *world) estrange(key string, released Record) {
	if w.records[TablePartitions][key].Revision != released.Revision || w.down {
		return
	}
	w.revision++
	w.write(TablePartitions, key,
		Record{Exists: true, Value: []byte(`{"v":2}`), Revision: w.revision})
	w.after(w.between(10*time.Millisecond, 4*time.Second), func() {
		w.revision++
		w.write(TablePartitions, key,
			Record{Exists: true, Value: released.Value, Revision: w.revision})
	})
}

// damage overwrites a record of owners or leases, or a checkpoint. A live owner has its contents;
// otherwise they are lost as in a crash, and jobs may run twice.
func (w *world) damage() {
	t := TablePartitions
	if w.chance(0.2) {
		t = TableDrainers
	}
	keys := slices.Sorted(maps.Keys(w.records[t]))
	if len(keys) == 0 || w.down {
		return
	}
	key := keys[w.rng.IntN(len(keys))]
	if !w.records[t][key].Exists {
		return
	}
	var r record.Owner
	if t == TablePartitions && (record.Decode(w.records[t][key].Value, &r) != nil || r.Released ||
		strings.HasSuffix(key, record.CheckpointSuffix)) {
		partition := strings.TrimSuffix(key, record.CheckpointSuffix)
		for _, f := range w.accepted {
			if record.ShareKey(f.policy, f.partition) == partition {
				f.forgiven, f.excepted = true, true
				if clear(w.active[f.bucket]); f.edit != nil {
					f.edit = &edited{Edit: f.edit.Edit}
				}
			}
		}
	}
	w.revision++
	w.write(t, key, Record{Exists: true, Value: []byte("garbage"), Revision: w.revision})
}

func (w *world) ownOthers() {
	if d := w.someDrainer(); d != nil {
		name := w.policies[w.rng.IntN(len(w.policies))].Name
		d.disowned[name] = !d.disowned[name]
		w.to(d, w.latency(), d.hearSettings)
	}
}

func (d *drainer) ownAll() {
	clear(d.disowned)
	d.w.to(d, d.w.latency(), d.hearSettings)
}
