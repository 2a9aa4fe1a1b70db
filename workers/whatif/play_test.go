package whatif

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const begin = int64(1_900_000_000) * int64(time.Second)

func at(key queue.Key, ms ...int64) (all []Request) {
	for _, n := range ms {
		all = append(all, Request{At: begin + n*int64(time.Millisecond), Key: key, Cost: 1})
	}
	return all
}

func read(t *testing.T, text string) policy.Policy {
	t.Helper()
	p, err := policy.Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func play(t *testing.T, p policy.Policy, o Options, requests []Request) *Report {
	t.Helper()
	r, err := Play(p, slices.Values(requests), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tale(r *Report) string {
	text := fmt.Sprintf("%d of %d", r.Accepted, r.Requests)
	for _, why := range []Reason{Capacity, Jobs, Limit, Deadline, Cost} {
		if n := r.Refusals[why]; n > 0 {
			text += fmt.Sprintf(", %s %d", why, n)
		}
	}
	round := func(m Millis) time.Duration { return time.Duration(m).Round(time.Millisecond) }
	text += fmt.Sprintf("; started %d, waits %v %v %v; depth %d, worst %d", r.Started,
		round(r.Wait.P50), round(r.Wait.P99), round(r.Wait.Max), r.Depth, r.Worst)
	if r.Stale > 0 {
		text += fmt.Sprintf("; stale %d", r.Stale)
	}
	return text
}

func TestSmallCasesComeOutAsByHand(t *testing.T) {
	urgent := append(at("a", 0, 0), Request{At: begin, Key: "a", Cost: 1, Priority: 1},
		Request{At: begin, Key: "a", Cost: 1, Priority: 1})
	costly := []Request{{At: begin, Key: "a", Cost: 3}, {At: begin, Key: "a", Cost: 1},
		{At: begin, Key: "a", Cost: 9}}
	for _, c := range []struct {
		name, policy string
		options      Options
		requests     []Request
		want         string
	}{{
		// One starts at once and frees its place; three wait.
		"a full bucket", `"algorithm": "leaking_bucket", "outflow": "2/s", "capacity": 3`, Options{},
		at("a", 0, 0, 0, 0, 0),
		"4 of 5, capacity 1; started 4, waits 500ms 1.5s 1.5s; depth 3, worst 2",
	}, {
		"what runs holds its place", `"algorithm": "leaking_bucket", "outflow": "10/s",
			"capacity": 3, "concurrency": 1`, Options{Duration: time.Second},
		at("a", 0, 0, 0, 0, 1000, 1000),
		"4 of 6, capacity 2; started 4, waits 1s 2s 2s; depth 3, worst 1",
	}, {
		"each runs as long as its request says", `"algorithm": "leaking_bucket", "outflow": "10/s",
			"capacity": 9, "concurrency": 1`, Options{Duration: time.Second},
		[]Request{{At: begin, Key: "a", Cost: 1, Duration: 3 * time.Second},
			{At: begin, Key: "a", Cost: 1}, {At: begin, Key: "a", Cost: 1}},
		"3 of 3; started 3, waits 3s 4s 4s; depth 3, worst 1",
	}, {
		"workers are short", `"algorithm": "leaking_bucket", "outflow": "10/s", "capacity": 9`,
		Options{Duration: time.Second, Workers: 2}, slices.Concat(at("a", 0, 0), at("b", 0, 0)),
		"4 of 4; started 4, waits 0s 1s 1s; depth 2, worst 1",
	}, {
		"all buckets share a bound", `"algorithm": "leaking_bucket", "outflow": "1/s",
			"capacity": 2, "max_jobs": 3`, Options{},
		slices.Concat(at("a", 0, 0, 0), at("b", 0, 0, 0)),
		"5 of 6, max_jobs 1; started 5, waits 1s 2s 2s; depth 2, worst 1",
	}, {
		"a deadline that cannot be met", `"algorithm": "leaking_bucket", "outflow": "1/s",
			"capacity": 9`, Options{Deadline: 1500 * time.Millisecond}, at("a", 0, 0, 0, 0),
		"2 of 4, deadline 2; started 2, waits 0s 1s 1s; depth 1, worst 1",
	}, {
		"a deadline that others use up", `"algorithm": "leaking_bucket", "outflow": "1/s",
			"capacity": 9`, Options{Deadline: 1500 * time.Millisecond}, urgent[:3],
		"3 of 3; started 2, waits 0s 1s 1s; depth 2, worst 1; stale 1",
	}, {
		"costs", `"algorithm": "leaking_bucket", "outflow": "1/s", "capacity": 8`, Options{},
		costly, "2 of 3, cost 1; started 2, waits 0s 3s 3s; depth 1, worst 3",
	}, {
		"turns", `"algorithm": "leaking_bucket", "outflow_total": "2/s", "capacity": 8`, Options{},
		slices.Concat(at("a", 0, 0, 0), at("b", 0)),
		"4 of 4; started 4, waits 500ms 1.5s 1.5s; depth 2, worst 2",
	}, {
		"a window of the clock", `"algorithm": "fixed_window", "limit": 2, "window": "1s"`,
		Options{}, at("a", 100, 200, 300, 1000, 1100),
		"4 of 5, limit 1; started 4, waits 0s 0s 0s; depth 0, worst 3",
	}, {
		"a meter says when to go ahead", `"algorithm": "leaking_bucket", "outflow": "2/s",
			"capacity": 3, "queue": false`, Options{}, at("a", 0, 0, 0, 0),
		"3 of 4, limit 1; started 3, waits 500ms 1s 1s; depth 0, worst 2",
	}, {
		"a cost that no window has", `"algorithm": "fixed_window", "limit": 2, "window": "1s"`,
		Options{}, costly, "1 of 3, cost 2; started 1, waits 0s 0s 0s; depth 0, worst 1",
	}, {
		// If the queue has no room, the limit is refunded.
		"a door with a queue", `"algorithm": "token_bucket", "capacity": 5, "refill": "1/h",
			"queue": {"capacity": 2}`, Options{Duration: time.Second, Workers: 1},
		at("a", 0, 0, 0, 0, 0, 2000, 2000, 2000, 10000, 10000),
		"5 of 10, capacity 4, limit 1; started 5, waits 0s 1s 1s; depth 2, worst 1",
	}, {
		"shadow", `"algorithm": "fixed_window", "limit": 1, "window": "1h", "shadow": true`,
		Options{Window: time.Minute}, at("a", 0, 1000),
		"2 of 2; started 2, waits 0s 0s 0s; depth 0, worst 2",
	}, {
		"no address", `"limits": [{"key": "{ip}", "algorithm": "fixed_window", "limit": 1,
			"window": "1h"}]`, Options{}, at("a", 0),
		"0 of 1, cost 1; started 0, waits 0s 0s 0s; depth 0, worst 0",
	}, {
		"a limit on starts", `"algorithm": "leaking_bucket", "capacity": 9, "limits":
			[{"algorithm": "sliding_log", "limit": 2, "window": "10s"}]`, Options{},
		at("a", 0, 0, 0, 0, 0),
		"5 of 5; started 5, waits 10.05s 20.1s 20.1s; depth 3, worst 2",
	}, {
		"a limit that others share", `"algorithm": "leaking_bucket", "capacity": 9, "limits":
			[{"shared": "account", "algorithm": "sliding_log", "limit": 2, "window": "10s"}]`,
		Options{}, at("a", 0, 0, 0, 0, 0),
		"5 of 5; started 5, waits 10.05s 20.1s 20.1s; depth 3, worst 2",
	}, {
		// The third starts 10.01 s after the first two are answered, the fifth so long after them.
		"a limit that counts from the answer", `"algorithm": "leaking_bucket", "capacity": 9,
			"limits": [{"algorithm": "sliding_log", "limit": 2, "window": "10s",
			"count_from": "answer"}]`, Options{Duration: time.Second}, at("a", 0, 0, 0, 0, 0),
		"5 of 5; started 5, waits 11.01s 22.02s 22.02s; depth 5, worst 2",
	}} {
		t.Run(c.name, func(t *testing.T) {
			p := read(t, `{"name": "api", `+c.policy+`}`)
			if got := tale(play(t, p, c.options, c.requests)); got != c.want {
				t.Errorf("it comes to\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// A limit that counts from the answer starts N in T + latency: its price.
func TestThePriceOfCountingFromTheAnswer(t *testing.T) {
	const n = 2000
	p := read(t, `{"name": "api", "algorithm": "leaking_bucket", "capacity": 2000, "limits":
		[{"algorithm": "sliding_log", "limit": 20, "window": "1s", "count_from": "answer"}]}`)
	for _, latency := range []time.Duration{0, 20, 110, 500} {
		latency *= time.Millisecond
		r := play(t, p, Options{Duration: latency}, at("a", make([]int64, n)...))
		is := float64(n-20) / time.Duration(r.Wait.Max).Seconds()
		if want := 20 / (time.Second + latency).Seconds(); is < want*0.98 || is > want*1.001 {
			t.Errorf("with %v until an answer %.2f/s start, want %.2f/s", latency, is, want)
		}
	}
}

func TestKeysAreReportedByRequests(t *testing.T) {
	p := read(t, `{"name": "api", "algorithm": "leaking_bucket", "outflow": "1/s", "capacity": 2}`)
	requests := slices.Concat(at("b", 0, 0, 0, 0), at("a", 0, 0, 0, 0), at("c", 0))
	r := play(t, p, Options{Keys: 2}, requests)
	if r.Buckets != 3 || len(r.Keys) != 2 || r.Keys[0].Key != "a" || r.Keys[1].Key != "b" {
		t.Fatalf("of %d keys it tells of %v", r.Buckets, r.Keys)
	}
	if a := r.Keys[0]; a.Accepted != 3 || a.Refused != 1 || a.Wait.Max != Millis(2*time.Second) {
		t.Errorf("a is %+v", a)
	}
}

func TestTheTimelineIsComplete(t *testing.T) {
	p := read(t, `{"name": "api", "algorithm": "leaking_bucket", "outflow": "1/s", "capacity": 9}`)
	for _, every := range []int64{1, 700, 3_600_000} {
		var ms []int64
		for i := range int64(50) {
			ms = append(ms, i*every)
		}
		r := play(t, p, Options{Bins: 20}, at("a", ms...))
		sum := Bin{}
		for _, b := range r.Bins {
			sum.Requests += b.Requests
			sum.Refused += b.Refused
			sum.Started += b.Started
			sum.Depth = max(sum.Depth, b.Depth)
			sum.Wait = max(sum.Wait, b.Wait)
		}
		want := Bin{50, r.Refused, r.Started, r.Depth, time.Duration(r.Wait.Max)}
		if n := len(r.Bins); sum != want || n > 40 {
			t.Errorf("every %d ms: %d bins of %v come to %+v, want %+v", every, n, r.Width, sum,
				want)
		}
	}
}

func TestInvalidInputIsAnError(t *testing.T) {
	p := read(t, `{"name": "api", "algorithm": "leaking_bucket", "outflow": "1/s", "capacity": 9}`)
	if _, err := Play(p, slices.Values(at("a", 1, 0)), Options{}); err == nil {
		t.Error("requests out of order are no error")
	}
	p.Capacity = 0
	if _, err := Play(p, slices.Values(at("a", 0)), Options{}); err == nil {
		t.Error("a policy without a capacity is no error")
	}
}

func drawn(seed uint64, n int, mean time.Duration) (all []Request) {
	rng, now := rand.New(rand.NewPCG(seed, 1)), begin
	for len(all) < n {
		now += int64(rng.ExpFloat64() * float64(mean) * 4)
		key := queue.Key(fmt.Sprintf("key-%d", int(rng.ExpFloat64()*2)))
		for range 1 + int(rng.ExpFloat64()*3) {
			all = append(all, Request{At: now, Key: key, Cost: 1 + int64(rng.ExpFloat64()/2)})
			now += int64(rng.ExpFloat64() * float64(mean) / 10)
		}
	}
	return all[:n]
}

// Random traces keep law 2 and end all accepted jobs, which requires that jobs dropped from memory
// are read again.
func TestTheLawsHoldInAPlay(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		rate, burst := 5+rng.IntN(50), 1+rng.IntN(5)
		p := read(t, fmt.Sprintf(`{"name": "api", "algorithm": "leaking_bucket",
			"outflow": "%d/s", "burst": %d, "capacity": %d, "concurrency": %d}`, rate, burst,
			10+rng.IntN(300), rng.IntN(4)))
		o := Options{Duration: time.Duration(rng.IntN(3)) * 100 * time.Millisecond,
			memory: int64(rng.IntN(3)) << 14}
		if rng.IntN(2) == 0 {
			o.Deadline = time.Duration(1+rng.IntN(5)) * time.Second
		}
		requests := drawn(seed, 3000, time.Second/time.Duration(20+rng.IntN(40)))
		r := play(t, p, o, requests)
		if r.Started+r.Stale != r.Accepted || r.Accepted+r.Refused != 3000 ||
			r.Stale > 0 && o.Deadline == 0 {
			t.Errorf("seed %d: %s", seed, tale(r))
		}
		// The last start of a window may take slots in advance, at any cost.
		most := float64(rate)*policy.DefaultPeak*1.002 + float64(burst)
		dearest := slices.MaxFunc(requests, func(a, b Request) int { return int(a.Cost - b.Cost) })
		if float64(r.Worst) > most+float64(dearest.Cost) {
			t.Errorf("seed %d: %d start in a second, at %d/s with a burst of %d", seed, r.Worst,
				rate, burst)
		}
	}
}

// BenchmarkPlay simulates a million requests of 1,000 keys at two thirds of their policy's rate,
// with bursts beyond its capacity.
func BenchmarkPlay(b *testing.B) {
	const n = 1_000_000
	rng, now := rand.New(rand.NewPCG(1, 1)), begin
	requests := make([]Request, n)
	for i := range requests {
		if rng.IntN(1000) == 0 {
			now += int64(time.Second)
		}
		now += int64(rng.ExpFloat64() * float64(100*time.Microsecond))
		requests[i] = Request{At: now, Key: queue.Key(fmt.Sprintf("key-%d", rng.IntN(1000))),
			Cost: 1}
	}
	for _, c := range []struct{ name, policy string }{
		{"queue", `"algorithm": "leaking_bucket", "outflow": "2/s", "capacity": 20`},
		{"total", `"algorithm": "leaking_bucket", "outflow_total": "2000/s", "capacity": 2000`},
		{"door", `"algorithm": "token_bucket", "capacity": 10, "refill": "1/s"`},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, err := policy.Read([]byte(`{"name": "api", ` + c.policy + `}`))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				r, err := Play(p, slices.Values(requests), Options{Keys: 20, Bins: 240})
				if err != nil || r.Requests != n {
					b.Fatal(r, err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/million")
		})
	}
}
