package valve

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

var update = flag.Bool("update", false, "write the golden files anew")

type scene struct {
	name     string
	policy   policy.Policy
	takes    time.Duration
	length   time.Duration
	arrivals []arrival
	outcome  func(r Run) record.Outcome
}

type arrival struct {
	at   time.Duration
	key  string
	n    int
	cost int64
}

func with(p policy.Policy, change func(*policy.Policy)) policy.Policy {
	change(&p)
	return p
}

var scenes = []scene{
	{name: "a burst at 10/s leaves one by one", policy: leaky("api", "10/s"), length: 2 * second,
		arrivals: []arrival{{at: 0, key: "a", n: 8}, {at: 1500 * ms, key: "a", n: 1}}},
	{name: "idleness earns a burst of 3 and no more",
		policy:   with(leaky("api", "5/s"), func(p *policy.Policy) { p.Burst = 3 }),
		length:   3 * second,
		arrivals: []arrival{{at: 0, key: "a", n: 5}, {at: 1800 * ms, key: "a", n: 5}}},
	{name: "two keys, each at its own pace", policy: leaky("api", "5/s"), length: 2 * second,
		arrivals: []arrival{{at: 0, key: "a", n: 6}, {at: 300 * ms, key: "b", n: 3}}},
	{name: "a job of cost 5 takes five slots", policy: leaky("api", "10/s"), length: 2 * second,
		arrivals: []arrival{{at: 0, key: "a", n: 2}, {at: 100 * ms, key: "a", n: 1, cost: 5},
			{at: 200 * ms, key: "a", n: 3}}},
	{name: "concurrency 2, and jobs that take 500 ms", takes: 500 * ms, length: 3 * second,
		policy:   with(leaky("api", "10/s"), func(p *policy.Policy) { p.Concurrency = 2 }),
		arrivals: []arrival{{at: 0, key: "a", n: 7}}},
	{name: "one worker for two keys: who runs nothing goes first", takes: 300 * ms,
		length:   2 * second,
		policy:   with(leaky("api", "10/s"), func(p *policy.Policy) { p.Workers = 1 }),
		arrivals: []arrival{{at: 0, key: "a", n: 4}, {at: 100 * ms, key: "b", n: 2}}},
	{name: "a target that throttles for 1 s: opening is no burst", length: 3 * second,
		policy:   with(leaky("api", "10/s"), func(p *policy.Policy) { p.Burst = 3 }),
		arrivals: []arrival{{at: 0, key: "a", n: 12}},
		outcome: func(r Run) record.Outcome {
			if r.Seq == 5 && r.Due < origin.Add(second) {
				return record.Outcome{Kind: record.OutcomeThrottled, RetryAfter: time.Second}
			}
			return record.Outcome{Kind: record.OutcomeDone}
		}},
	{name: "unpaced with two workers", takes: 200 * ms, length: second,
		policy: policy.Policy{Name: "door",
			Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 10,
				Refill: leaky("", "1/s").Outflow},
			Queue: &policy.Queue{Capacity: 100}, Workers: 2},
		arrivals: []arrival{{at: 0, key: "a", n: 3}, {at: 100 * ms, key: "b", n: 3}}},
}

const cell = 100 * time.Millisecond

func (s scene) play(t *testing.T) (keys []string, came, began map[string][]int) {
	b := newValveBench(t, s.policy)
	came, began = map[string][]int{}, map[string][]int{}
	count := func(in map[string][]int, key string, at time.Duration) {
		if in[key] == nil {
			in[key] = make([]int, s.length/cell)
		}
		in[key][at/cell]++
	}
	type ending struct {
		at time.Duration
		r  Run
	}
	var running []ending
	next := 0
	for at := time.Duration(0); at < s.length; at += ms {
		b.at(at)
		for len(running) > 0 && running[0].at <= at {
			r := running[0].r
			running = running[1:]
			o := record.Outcome{Kind: record.OutcomeDone}
			if s.outcome != nil {
				o = s.outcome(r)
			}
			b.end(r, o)
			b.p.Confirmed(r.Seq, b.now)
		}
		for ; next < len(s.arrivals) && s.arrivals[next].at <= at; next++ {
			a := s.arrivals[next]
			if !slices.Contains(keys, a.key) {
				keys = append(keys, a.key)
			}
			for range a.n {
				b.arrive(a.key, cost(max(1, a.cost)))
				count(came, a.key, at)
			}
		}
		for _, r := range b.start() {
			count(began, string(r.Key), at)
			running = append(running, ending{at + s.takes, r})
		}
	}
	return keys, came, began
}

func draw(cells []int, length time.Duration) string {
	var line strings.Builder
	for i := range int(length / cell) {
		switch {
		case i >= len(cells) || cells[i] == 0:
			line.WriteByte('.')
		case cells[i] > 9:
			line.WriteByte('+')
		default:
			fmt.Fprint(&line, cells[i])
		}
	}
	return line.String()
}

// TestTimelines draws arrivals above and starts below, 100 ms a character, as in the golden file.
func TestTimelines(t *testing.T) {
	var drawn strings.Builder
	for _, s := range scenes {
		keys, came, began := s.play(t)
		fmt.Fprintf(&drawn, "%s\n", s.name)
		for _, key := range keys {
			fmt.Fprintf(&drawn, "  %s arrives %s\n    starts  %s\n", key, draw(came[key], s.length),
				draw(began[key], s.length))
		}
		drawn.WriteByte('\n')
	}
	const golden = "testdata/timelines.txt"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(drawn.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if drawn.String() != string(want) {
		t.Errorf("timelines differ from %s (go test ./workers -run TestTimelines -update):\n%s",
			golden, drawn.String())
	}
}

func TestValveTimeline(t *testing.T) {
	type row struct {
		at   time.Duration
		key  string
		want time.Duration
	}
	for name, c := range map[string]struct {
		policy policy.Policy
		rows   []row
	}{
		"spaced, although they came together": {leaky("api", "10/s"), []row{
			{at: 0, key: "a", want: 0}, {at: 0, key: "a", want: 100 * ms},
			{at: 0, key: "a", want: 200 * ms},
			{at: 0, key: "b", want: 0}, {at: 0, key: "b", want: 100 * ms}}},
		"at once after idleness": {leaky("api", "10/s"), []row{
			{at: 0, key: "a", want: 0}, {at: 40 * ms, key: "a", want: 100 * ms},
			{at: 350 * ms, key: "a", want: 350 * ms}}},
		"credit up to the burst": {with(leaky("api", "10/s"), func(p *policy.Policy) {
			p.Burst = 2
		}), []row{
			{at: 0, key: "a", want: 0}, {at: 0, key: "a", want: 0},
			{at: 0, key: "a", want: 100 * ms},
			{at: 150 * ms, key: "a", want: 200 * ms}, {at: 900 * ms, key: "a", want: 900 * ms},
			{at: 900 * ms, key: "a", want: 900 * ms}}},
		"slow": {leaky("api", "1/m"), []row{
			{at: 0, key: "a", want: 0}, {at: 1 * second, key: "a", want: 60 * second},
			{at: 2 * second, key: "a", want: 120 * second}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newValveBench(t, c.policy)
			got := map[uint64]time.Duration{}
			take := func(r Run) {
				got[r.Seq] = b.now.Since(origin)
				b.done(r)
			}
			for i, r := range c.rows {
				if i > 0 && r.at > c.rows[i-1].at {
					b.until(r.at, take)
				}
				b.arrive(r.key)
			}
			b.until(time.Hour, take)
			for i, r := range c.rows {
				if off := got[uint64(i+1)] - r.want; off > 0 || off < -ms {
					t.Errorf("job %d of %s, accepted at %v, started at %v, want %v", i+1, r.key,
						r.at, got[uint64(i+1)], r.want)
				}
			}
		})
	}
}

func TestPriorityGoesFirst(t *testing.T) {
	b := newValveBench(t, leaky("api", "10/s"))
	for _, p := range []int{0, 5, -3, 5, 0} {
		b.arrive("a", priority(p))
	}
	var order []uint64
	b.until(second, func(r Run) { order = append(order, r.Seq); b.done(r) })
	if fmt.Sprint(order) != "[2 4 1 5 3]" {
		t.Errorf("started in the order %v", order)
	}
}

func TestLargeBodiesAreReadShortlyBeforeTheStart(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/s"))
	for range 4 {
		b.arrive("a", large(leanSize+1))
	}
	held := 0
	for _, j := range b.p.jobs {
		if j.Body != nil {
			held++
		}
	}
	if held != 1 {
		t.Errorf("%d bodies are held, want that of the head", held)
	}
	b.done(b.start()[0])
	if b.at(400 * ms).start(); len(b.out.Fetches) > 0 {
		t.Fatal("read too early")
	}
	if b.at(600 * ms).start(); len(b.out.Fetches) != 1 || b.out.Fetches[0].Seq != 2 {
		t.Fatalf("reads %d bodies", len(b.out.Fetches))
	}
	if runs := b.at(1100 * ms).start(); len(runs) > 0 {
		t.Fatal("started without its body")
	}
	b.p.Fetched(Text{Ref: b.p.jobs[2].ref(), Body: []byte("body")}, b.now)
	if runs := b.start(); b.seqs(runs) != "[2]" || string(runs[0].Body) != "body" {
		t.Errorf("started %s", b.seqs(runs))
	}
}

func TestIdleBucketsAreForgotten(t *testing.T) {
	b := newValveBench(t, with(leaky("api", "10/s"), func(p *policy.Policy) { p.Burst = 5 }))
	for i := range 1000 {
		b.arrive(fmt.Sprintf("key-%d", i), func(a *job.Arrived) {
			if i%10 == 0 {
				a.Deadline = a.Stored.Add(ms)
				a.NotBefore = a.Stored.Add(second)
			}
		})
	}
	b.until(5*second, b.done)
	for _, u := range b.out.Burials {
		b.p.Buried(u.Ref)
		b.p.Confirmed(u.Seq, b.now)
	}
	b.until(20*second, b.done)
	if len(b.p.buckets) != 0 || len(b.p.jobs) != 0 ||
		len(b.v.agenda.sched)+len(b.v.agenda.due)+len(b.v.agenda.timers) != 0 {
		t.Errorf("left: %d buckets, %d jobs, heaps of %d, %d and %d", len(b.p.buckets),
			len(b.p.jobs), len(b.v.agenda.sched), len(b.v.agenda.due), len(b.v.agenda.timers))
	}
}
