package redisstore

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/algorithmstest"
)

// TestMulDiv compares the scripts' multiplication with math/big in its valid range: a and b below
// 2^53, c below 2^45, and a quotient below 2^53.
func TestMulDiv(t *testing.T) {
	rdb := server.Client()
	defer rdb.Close()
	const program = `
local out = {}
for i = 2, #ARGV, 3 do
  local q, r = mul_div(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
  out[#out + 1] = format('%.0f %.0f', q, r)
end
return out`
	var args []any
	var want []string
	add := func(a, b, c int64) {
		if c < 1 {
			return
		}
		q, r := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c),
			new(big.Int))
		if q.IsInt64() && q.Int64() < exact {
			args = append(args, a, b, c)
			want = append(want, fmt.Sprint(q, " ", r))
		}
	}
	edges := []int64{0, 1, 2, 3, 127, 128, 1e6, 1e9 - 1, 1e9, 1e12 - 1, 1e12, 31_622_399_999_999,
		31_622_400_000_000,
		1<<45 - 1, 3_162_240_000_000_000, 1<<53 - 1}
	check := func() {
		t.Helper()
		got, err := rdb.Eval(t.Context(), commonSource+program, nil,
			append([]any{""}, args...)...).StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%d·%d/%d: got %s, want %s", args[3*i], args[3*i+1], args[3*i+2], got[i],
					want[i])
			}
		}
		args, want = nil, nil
	}
	for _, a := range edges {
		for _, b := range edges {
			for _, c := range edges {
				if c < 1<<45 {
					add(a, b, c)
				}
			}
		}
	}
	check()
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		for range 1000 {
			add(random.Int64N(1<<53)>>random.IntN(53), random.Int64N(1<<53)>>random.IntN(53),
				random.Int64N(1<<45)>>random.IntN(45))
			b := 1 + random.Int64N(1<<45-1) // a weight of a sliding counter: b/c at most 1
			add(random.Int64N(1<<53), random.Int64N(b+1), b)
		}
		check()
	}
}

type asked struct {
	request *request
	want    algorithms.Decision
}

func play[S any](random *rand.Rand, rule algorithms.Rule[S], s S, now time.Time) (S, []asked) {
	var all []asked
	for range 1 + random.IntN(12) {
		r := &request{done: make(chan struct{}, 1),
			n: 1 + random.Int64N(rule.Most())>>random.IntN(40)}
		if random.IntN(2) == 0 && len(all) > 0 {
			r.kind, r.n = all[len(all)-1].request.kind, all[len(all)-1].request.n
		} else {
			r.kind = []kind{take, take, take, takeUpTo, peek, refund}[random.IntN(6)]
		}
		var d algorithms.Decision
		switch r.kind {
		case take:
			s, d = rule.Take(s, now, r.n)
		case takeUpTo:
			s, d = rule.TakeUpTo(s, now, r.n)
		case peek:
			d = rule.Peek(s, now, r.n)
		case refund:
			s = rule.Refund(s, now, r.n)
		}
		all = append(all, asked{r, d})
	}
	return s, all
}

// requestsTogether sends several requests in one command, and compares answers, stored states and
// their expiry with the rule applied one by one.
func requestsTogether[S any](rule algorithms.Rule[S], stored func(S) string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		c := newClient(t, server, Options{})
		now := time.Date(2026, 3, 2, 1, 59, 58, 999_999_000, time.UTC)
		latest := now
		c.now = func() time.Time { return now }
		store := New(c, "policy", rule)
		keys := []string{"a", "b", "c"}
		states := make(map[string]S)
		for seed := range uint64(120) {
			random := rand.New(rand.NewPCG(seed, 7))
			flight := &call{terms: store.mirror.Load()}
			answers := make(map[string][]asked)
			for _, key := range keys {
				b := &bucket{lane: &store.lane, key: key, name: redisKey(store.lane.stem, key)}
				states[key], answers[key] = play(random, rule, states[key], now)
				for _, a := range answers[key] {
					b.flying = append(b.flying, a.request)
				}
				flight.buckets = append(flight.buckets, b)
			}
			if !flight.prepare(c, &node{}, 0) {
				t.Fatal("nothing was sent")
			}
			c.send([]*call{flight})
			flight.settle(c, &node{}, 0)
			for _, key := range keys {
				for i, a := range answers[key] {
					<-a.request.done
					if a.request.err != nil || a.request.decision != a.want {
						t.Fatalf(
							"seed %d, request %d of %q (kind %d, %d units): got %+v, %v; want %+v",
							seed, i, key, a.request.kind, a.request.n, a.request.decision,
							a.request.err, a.want)
					}
				}
				reset := rule.Peek(states[key], now, 1).ResetAfter
				compareStored(t, c, redisKey(store.lane.stem, key), stored(states[key]),
					reset-latest.Sub(now), reset == 0)
			}
			step := int64(2e6) // a large log may make the instants one
			if random.IntN(2) == 0 {
				step += int64(rule.Peek(states["a"], now, 1).ResetAfter)
			}
			now = now.Add(time.Duration(random.Int64N(step) / 2))
			if random.IntN(8) == 0 {
				now = now.Add(-time.Duration(random.Int64N(int64(time.Hour))))
			}
			now = now.Truncate(time.Microsecond)
			if now.After(latest) {
				latest = now
			}
		}
	}
}

// compareStored compares a value in Redis and its minimum expiry. A state as new may be present or
// absent.
func compareStored(t *testing.T, c *Client, name, want string, stays time.Duration, asNew bool) {
	t.Helper()
	kind, err := c.rdb.Type(t.Context(), name).Result()
	if err != nil {
		t.Fatal(err)
	}
	var got string
	switch kind {
	case "string":
		got, err = c.rdb.Get(t.Context(), name).Result()
	case "list":
		var numbers []int64
		err = c.rdb.LRange(t.Context(), name, 0, -1).ScanSlice(&numbers)
		for i := 1; i+1 < len(numbers); i += 2 { // an instant between the units before and until it
			got += fmt.Sprintln(numbers[i], numbers[i+1]-numbers[i-1])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if got != want && !(got == "" && asNew) {
		t.Fatalf("%q is stored as %q, want %q", name, got, want)
	}
	left, err := c.rdb.PTTL(t.Context(), name).Result()
	if err != nil {
		t.Fatal(err)
	}
	if got != "" && left < stays+algorithmstest.Grace-patient {
		t.Fatalf("%q expires in %s, want %s", name, left, stays+algorithmstest.Grace)
	}
}

func TestRequestsTogether(t *testing.T) {
	meter := func(us, frac int64) string {
		switch {
		case us == 0:
			return ""
		case frac == 0:
			return fmt.Sprint(us)
		}
		return fmt.Sprintf("%d+%d", us, frac)
	}
	odd := algorithms.Rate{Count: 7, Per: 3 * time.Second}
	t.Run("token bucket", requestsTogether(algorithms.TokenBucket{Capacity: 40, Refill: odd},
		func(s algorithms.TokenBucketState) string { return meter(s.FullAt, s.Frac) }))
	t.Run("large token bucket", requestsTogether(algorithms.TokenBucket{
		Capacity: algorithms.MaxLimit,
		Refill:   algorithms.Rate{Count: 999_999_937, Per: 1009 * time.Second},
	}, func(s algorithms.TokenBucketState) string { return meter(s.FullAt, s.Frac) }))
	t.Run("leaking bucket",
		requestsTogether(algorithms.LeakingBucket{Capacity: 12, Outflow: odd, Burst: 3},
			func(s algorithms.LeakingBucketState) string { return meter(s.EmptyAt, s.Frac) }))
	t.Run("fixed window",
		requestsTogether(algorithms.FixedWindow{Limit: 20, Window: 10 * time.Second},
			func(s algorithms.FixedWindowState) string {
				if s.Used == 0 {
					return ""
				}
				return fmt.Sprintf("%d:%d", s.Start, s.Used)
			}))
	counter := func(s algorithms.SlidingCounterState) string {
		if s.Previous == 0 && s.Current == 0 {
			return ""
		}
		return fmt.Sprintf("%d:%d:%d", s.Start, s.Previous, s.Current)
	}
	t.Run("sliding counter",
		requestsTogether(algorithms.SlidingCounter{Limit: 20, Window: 10 * time.Second}, counter))
	t.Run("large sliding counter", requestsTogether(algorithms.SlidingCounter{
		Limit: algorithms.MaxLimit - 11, Window: 24*time.Hour + time.Microsecond,
	}, counter))
	log := func(s algorithms.SlidingLogState) (text string) {
		for at, units := range s.All() {
			text += fmt.Sprintln(at, units)
		}
		return text
	}
	t.Run("sliding log",
		requestsTogether(algorithms.SlidingLog{Limit: 9, Window: 10 * time.Second}, log))
	t.Run("large sliding log",
		requestsTogether(algorithms.SlidingLog{Limit: 2345, Window: time.Second}, log))
	t.Run("sliding log of accepted", requestsTogether(algorithms.SlidingLog{
		Limit: 9, Window: 10 * time.Second, CountAccepted: true,
	}, log))
}

// TestEqualRequestsAreOnePair pins the wire format.
func TestEqualRequestsAreOnePair(t *testing.T) {
	ask := func(pairs ...int64) (all []*request) {
		for p := range slices.Chunk(pairs, 2) {
			all = append(all, &request{kind: kind(p[0]), n: p[1]})
		}
		return all
	}
	const most = 10
	bucket := &mirror[algorithms.TokenBucketState]{
		history: &states[algorithms.TokenBucketState]{algorithms.TokenBucket{Capacity: most,
			Refill: perSecond(1)}, nil},
	}
	log := &mirror[algorithms.SlidingLogState]{
		history: logs{algorithms.SlidingLog{Limit: most, Window: time.Second}}}
	for _, c := range []struct {
		requests           []*request
		ofBucket, ofTheLog string
	}{
		{ask(0, 3), "3", "3"},
		{ask(0, 3, 0, 3, 0, 3), "3 3", "3 3"},
		{ask(0, 3, 0, 2, 0, 2, 0, 3), "3 1 2 2 3 1", "3 1 2 2 3 1"},
		{ask(1, 5), "1 5", "5 0"},
		{ask(1, 1<<60), "1 10", "10 0"},
		{ask(1, 5, 0, 1), "1 6", "5 0 1 1"},
		{ask(2, 5), "0", "5 -1"},
		{ask(2, 5, 2, 5), "0", "5 -1 5 -1"},
		{ask(0, 4, 2, 5, 0, 4), "4 2", "4 1 5 -1 4 1"},
		{ask(2, 5, 0, 4), "4", "5 -1 4 1"},
		{ask(3, 5), "-5", "-5"},
		{ask(3, 5, 3, 5), "-5 1 -5 1", "-5 1 -5 1"},
		{ask(3, 1<<60), "-9007199254740991", "-9007199254740991"},
	} {
		if got := text(encode(bucket, c.requests)); got != c.ofBucket {
			t.Errorf("bucket: got %q, want %q", got, c.ofBucket)
		}
		if got := text(encode(log, c.requests)); got != c.ofTheLog {
			t.Errorf("log: got %q, want %q", got, c.ofTheLog)
		}
	}
}

func text(argument any) string {
	if b, ok := argument.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(argument)
}
