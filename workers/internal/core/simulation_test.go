package core

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// The simulation runs whole drainers (core, valves, clocks: everything but I/O) in virtual time
// against a model of JetStream, from a seed. It checks the laws of DESIGN.md by the world's
// observations, not the drainers'.
//
// This file has the world. Others have its parts: simulation_jetstream_test.go stored state,
// simulation_drainer_test.go a process, simulation_job_test.go jobs, simulation_run_test.go
// workers, simulation_elsewhere_test.go remote workers, simulation_change_test.go and
// simulation_edit_test.go operators, simulation_disturbance_test.go failures,
// simulation_judge_test.go and simulation_turns_test.go the laws.

var (
	seeds     = flag.Int("seeds", 50, "how many seeds the simulation runs")
	firstSeed = flag.Uint64("first-seed", 1, "the first of them")
	fresh     = flag.Duration("fresh", 0,
		"for how long the laws run seeds that are drawn, instead of those")
)

// sabotage breaks a law on purpose; the simulation must notice.
type sabotage string

const (
	noSabotage          sabotage = ""
	noFence             sabotage = "no fence"
	noTakeoverWait      sabotage = "takeover starts at once"
	oldConsumerStays    sabotage = "old consumer not deleted"
	handedOverRunsAgain sabotage = "handed-over jobs started again"
	lossyAcks           sabotage = "acknowledged before the handler ran"
	clumps              sabotage = "lateness made up at once"
	slotsOfPlans        sabotage = "starts take no slots but when they are decided"
	countThrottles      sabotage = "a throttle counts as an attempt"
	costIgnored         sabotage = "every job costs one slot"
	weightIgnored       sabotage = "every bucket weighs the same"
	noUnseenGate        sabotage = "inherited runs hold no concurrency before they arrive"
	cancelForgotten     sabotage = "cancelled jobs start all the same"
	workersIgnored      sabotage = "a change of workers does not arrive"
	breakerCounts       sabotage = "attempts count while a breaker is open"
	buriesFailed        sabotage = "what failed is buried as permanent"
	triesForever        sabotage = "attempts have no end"
	crashesForgotten    sabotage = "no crash counts"
	deadlineIgnored     sabotage = "deadlines do not arrive"
	notBeforeIgnored    sabotage = "jobs that are not due yet start"
	backoffIgnored      sabotage = "nothing backs off"
	cooldownIgnored     sabotage = "no bucket cools down"
	hintsIgnored        sabotage = "no bucket cools down whose target has nothing left"
	priorityReversed    sabotage = "the least priority goes first"
	stepsIgnored        sabotage = "the higher priority goes first, whoever waits"
	jumpsUnheard        sabotage = "nobody minds that the clocks jumped"
	streamsAlike        sabotage = "a stream made anew is taken for the former one"
	countsBelieved      sabotage = "a sweep ends when as much has come as a consumer counted"
	deadKeep            sabotage = "nobody claims what a dead owner left"
	savedForgotten      sabotage = "nothing behind a job starts when its crash is recorded"
	probesForgotten     sabotage = "no job is a probe of a target that was down"
	editsForgotten      sabotage = "a new owner knows of no changed job"
)

func TestSimulationLaws(t *testing.T) {
	first, some := *firstSeed, uint64(*seeds)
	end := time.Now().Add(*fresh)
	if *fresh > 0 {
		first, some = uint64(rand.Uint32()), math.MaxUint32
		// a core's panic would lose the log
		fmt.Println("the first seed is", first)
	}
	var next, failed atomic.Uint64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := next.Add(1); n <= some && (*fresh == 0 || time.Now().Before(end)) &&
				failed.Load() < 10; n = next.Add(1) {
				seed := first + n - 1
				w := simulate(seed, noSabotage)
				if len(w.broken) > 0 {
					failed.Add(1)
					t.Errorf(
						"seed %d (go test ./workers -run TestSimulationLaws -seeds 1 -first-seed "+
							"%d), hazards %v:\n%s",
						seed, seed, w.hazards, strings.Join(w.broken, "\n"))
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d seeds from %d on", min(next.Load()-1, some), first)
}

func playSeeds(t *testing.T, play func(seed uint64) *world) { playShare(t, 1, play) }

// playShare plays one of so many of the seeds' number.
func playShare(t *testing.T, of int, play func(seed uint64) *world) {
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+uint64(max(1, *seeds/of)); seed++ {
		if w := play(seed); len(w.broken) > 0 {
			t.Errorf("seed %d, hazards %v: %s", seed, w.hazards, w.broken)
		}
	}
}

// All targets are down for ten minutes, while drainers come, go and crash. No job uses up its
// attempts, which without breakers takes a minute; afterwards all is done, at the rates.
func TestSimulationOfAnOutage(t *testing.T) {
	const begins, length = 5 * time.Second, 10 * time.Minute
	for seed := *firstSeed; seed < *firstSeed+uint64(min(*seeds, 12)); seed++ {
		w := newWorld(seed, noSabotage)
		if w.has(streamsAnew) || w.has(retiring) {
			continue
		}
		for i := range w.policies {
			p := &w.policies[i]
			p.Retry.MaxAttempts = 25
			w.set.tries[p.Name] = span{25, 25}
			w.after(begins, func() { w.set.down[p.Name] = begins + length })
		}
		w.live()
		for _, f := range w.fates() {
			if f.dead == string(queue.ReasonAttempts) && f.tries == 0 {
				w.fail("law 6: %s used its attempts up", job.ID(f.policy, f.seq))
			}
		}
		if len(w.broken) > 0 {
			t.Errorf(
				"seed %d (go test ./workers -run TestSimulationOfAnOutage -seeds 1 -first-seed "+
					"%d):\n%s",
				seed, seed, strings.Join(w.broken, "\n"))
		}
	}
}

// TestSimulationNoticesSabotage breaks laws on purpose: a simulation that still passes has no
// value.
func TestSimulationNoticesSabotage(t *testing.T) {
	const enough = uint64(200)
	for _, s := range []sabotage{
		noFence, noTakeoverWait, oldConsumerStays, handedOverRunsAgain, lossyAcks, clumps,
		countThrottles,
		slotsOfPlans, costIgnored, weightIgnored, noUnseenGate, cancelForgotten, workersIgnored,
		breakerCounts,
		buriesFailed, triesForever, crashesForgotten, deadlineIgnored, notBeforeIgnored,
		backoffIgnored, cooldownIgnored, hintsIgnored,
		priorityReversed, stepsIgnored, jumpsUnheard, streamsAlike, countsBelieved, deadKeep,
		savedForgotten, probesForgotten, editsForgotten,
	} {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= enough; seed++ {
				if broken := simulate(seed, s).broken; len(broken) > 0 {
					t.Logf("seed %d: %s", seed, broken[0])
					return
				}
			}
			t.Errorf("%d seeds did not notice", enough)
		})
	}
}

func TestSimulationIsDeterministic(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+10; seed++ {
		if a, b := simulate(seed, noSabotage).history(), simulate(seed, noSabotage).history(); a !=
			b {
			t.Errorf("seed %d went two ways", seed)
		}
	}
}

type world struct {
	rng      *rand.Rand
	sabotage sabotage
	now      time.Duration
	queue    heap.Heap[*event]
	events   int

	records [2]map[string]*Record
	// decisions before a checkpoint was built, by its revision
	composed map[uint64]int
	attempts map[string]StoredAttempt
	revision uint64
	down     bool
	outages  int
	hazards  []hazard
	aim      aim
	flawless bool
	stalls   []stall
	poison   bool
	orphaned map[string]time.Duration // streams and tables without a leader: until when
	held     time.Duration
	skews    map[string]time.Duration // lead of servers' clocks, by stream or table

	policies []policy.Policy
	set      settings
	streams  map[string]*stream
	drainers []*drainer
	names    int
	lenders  []*lendingProcess

	accepted  map[identity]*fate
	decided   map[*valve.Ticket]bool
	decisions int
	// running jobs by bucket, unless their process was disturbed
	active    map[string]map[*stint]bool
	contests  map[*partition]*contest // by the partition with the turns
	takeovers map[string][]takeover   // after crashes, by partition
	changes   map[string][]change
	cool      map[string]time.Duration
	urgent    map[string][]*fate // by bucket, jobs that may go before others: of a higher priority
	stands    standstill
	broken    []string

	arrivals  *arrivals         // nil: no target counts
	callSlots map[string][]slot // starts of calls, by bucket; nil: there are no callers
	granting  *slot
	callers   []*caller
	settledAt map[tenure]ids
	settledIn map[string]storedIDs // by the record's key
	repeats   int                  // of settlements that their owner knew
	// prints a test's story; may be nil
	chronicle func(format string, args ...any)
}

type event struct {
	at time.Duration
	n  int
	do func()
}

func (e *event) Before(f *event) bool { return e.at < f.at || e.at == f.at && e.n < f.n }
func (e *event) Moved(int)            {}

func (w *world) after(delay time.Duration, do func()) {
	w.events++
	w.queue.Push(&event{w.now + delay, w.events, do})
}

func (w *world) fail(format string, args ...any) {
	if len(w.broken) < 5 {
		w.broken = append(w.broken, fmt.Sprintf("%v: ", w.now)+fmt.Sprintf(format, args...))
	}
}

func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) latency() time.Duration {
	switch {
	case w.chance(0.02):
		return w.between(5*time.Millisecond, 150*time.Millisecond)
	default:
		return w.between(50*time.Microsecond, 2*time.Millisecond)
	}
}

func (w *world) wall() time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(w.now)
}

const simulatedLease = 3 * time.Second

const busy = 40 * time.Second

var collectLess = sync.OnceFunc(func() { debug.SetGCPercent(1000) })

func emptyWorld(seed uint64, s sabotage) *world {
	collectLess()
	return &world{
		rng:       rand.New(rand.NewPCG(seed, 20)),
		sabotage:  s,
		records:   [2]map[string]*Record{{}, {}},
		composed:  map[uint64]int{},
		settledAt: map[tenure]ids{},
		settledIn: map[string]storedIDs{},
		attempts:  map[string]StoredAttempt{},
		set:       newSettings(),
		streams:   map[string]*stream{},
		accepted:  map[identity]*fate{},
		decided:   map[*valve.Ticket]bool{},
		active:    map[string]map[*stint]bool{},
		contests:  map[*partition]*contest{},
		takeovers: map[string][]takeover{},
		changes:   map[string][]change{},
		orphaned:  map[string]time.Duration{},
		skews:     map[string]time.Duration{},
		cool:      map[string]time.Duration{},
		urgent:    map[string][]*fate{},
	}
}

func newWorld(seed uint64, s sabotage) *world {
	return newWorldWith(seed, s, func(*world) {})
}

func newWorldWith(seed uint64, s sabotage, change func(w *world)) *world {
	w := emptyWorld(seed, s)
	w.pickHazards(seed)
	w.pickPolicies()
	change(w)
	for range 1 + w.rng.IntN(4) {
		w.join()
	}
	w.publishers(busy)
	w.disturbances(busy)
	w.aims(busy)
	w.hazardsStrike(busy)
	w.after(busy+time.Second, func() {
		for _, d := range w.drainers {
			d.leaving = false
			d.ownAll()
		}
		w.join()
	})
	return w
}

func simulate(seed uint64, s sabotage) *world {
	w := newWorld(seed, s)
	w.operators(busy)
	w.targetsFail(busy)
	return w.live()
}

func (w *world) live() *world {
	w.watchStandstill()
	for len(w.queue) > 0 && w.now < 45*time.Minute && len(w.broken) == 0 {
		e := w.queue.Remove(0)
		w.now = e.at
		e.do()
		if w.now > busy+5*time.Second && w.settled() {
			break
		}
	}
	w.judge()
	return w
}

func (w *world) history() string {
	var h strings.Builder
	for _, f := range w.fates() {
		fmt.Fprintf(&h, "%s:%d %d %v %q %v %v\n", f.policy, f.seq, f.failed, f.done, f.dead,
			f.cancelled, f.slots)
	}
	fmt.Fprint(&h, w.events, w.broken)
	return h.String()
}

func (w *world) pickPolicies() {
	for range 1 + w.rng.IntN(2) {
		p := policy.Policy{
			Name: fmt.Sprintf("p%d", len(w.policies)),
			Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: someRate(w),
				Capacity: 10 + w.rng.Int64N(40), Burst: 1},
			Concurrency: []int{0, 0, 1, 2, 4, 8}[w.rng.IntN(6)], Workers: 16,
			Partitions: 1 + w.rng.IntN(4),
			Timeout:    policy.Duration(20 * time.Second),
			Retry: policy.Retry{MaxAttempts: 3, Backoff: policy.Duration(200 * time.Millisecond),
				MaxBackoff: policy.Duration(2 * time.Second)},
		}
		if w.chance(0.3) {
			p.Burst = 1 + w.rng.Int64N(5)
		}
		w.vary(&p)
		p = p.WithDefaults()
		w.valid(p)
		w.add(p)
	}
}

func (w *world) add(p policy.Policy) {
	w.policies = append(w.policies, p)
	w.set.tries[p.Name] = span{p.Retry.MaxAttempts, p.Retry.MaxAttempts}
	w.streams[p.Name] = newStream(w.wall())
}

func (w *world) valid(p policy.Policy) {
	if problems := p.Validate(); len(problems) > 0 {
		panic(fmt.Sprint(problems))
	}
}

func (w *world) policyOf(name string) *policy.Policy {
	i := slices.IndexFunc(w.policies, func(p policy.Policy) bool { return p.Name == name })
	return &w.policies[i]
}

func (w *world) settled() bool {
	for _, s := range w.streams {
		if len(s.messages) > 0 {
			return false
		}
	}
	return true
}
