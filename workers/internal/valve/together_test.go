package valve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func account() policy.Policy {
	return policy.Policy{Name: "api", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Capacity: 100_000}, Limits: policy.Limits{
		{Name: "own", Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 100,
			Window: policy.Duration(time.Minute)}},
		{Name: "account", Key: policy.KeyGlobal, Cost: "tokens", Rule: policy.Rule{
			Algorithm: policy.SlidingLog, Limit: 10,
			Window: policy.Duration(10 * time.Second)}}}}
}

// startedKeys lists whose jobs start until an instant, as "a@0s".
func (b *valveBench) startedKeys(end time.Duration) string {
	var all []string
	b.until(end, func(r Run) {
		all = append(all, fmt.Sprintf("%s@%v", r.Key, b.now.Since(origin).Round(10*ms)))
		b.done(r)
		b.noted()
	})
	return strings.Join(all, " ")
}

func TestALimitForAllKeysIsTakenInTurns(t *testing.T) {
	b := newValveBench(t, account())
	for range 9 {
		b.arrive("a", tokens(2))
	}
	for range 2 {
		b.arrive("b", tokens(2))
	}
	const want = "a@0s b@0s a@0s b@0s a@0s a@10.05s a@10.05s a@10.05s a@10.05s a@10.05s"
	if got := b.startedKeys(11 * second); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if by, until := b.view().held(b.p.buckets["a"]); by != "limit:account" || until <= b.now {
		t.Errorf("held by %q until %v", by, until)
	}
}

// Weights count when the balance is less than any job takes: no bucket is due then, because all let
// others pass, but turns do not restart.
func TestABucketThatLetsOthersPassKeepsItsTurn(t *testing.T) {
	p := account()
	p.Limits = p.Limits[1:]
	b := newValveBench(t, p)
	weight := int64(3)
	b.v.SetOverride("a", inforce.Override{Weight: &weight}, b.now)
	for range 20 {
		b.arrive("a", tokens(4))
		b.arrive("b", tokens(4))
	}
	got := b.startedKeys(75 * second)
	if n := strings.Count(got, "a@"); n != 12 || strings.Count(got, "b@") != 4 {
		t.Errorf("%s, want three quarters of 16 to be a's", got)
	}
}

func TestABucketThatAwaitsACheckpointKeepsItsTurn(t *testing.T) {
	p := account()
	p.Limits = p.Limits[1:]
	p.Limits[0].Window = policy.Duration(time.Minute)
	b := newValveBench(t, p)
	weight := int64(3)
	b.v.SetOverride("a", inforce.Override{Weight: &weight}, b.now)
	for range 20 {
		b.arrive("a", tokens(5))
		b.arrive("b", tokens(5))
	}
	counts := map[queue.Key]int{}
	for n := range 16 {
		b.noted()
		b.until(time.Duration(n+1)*31*second, func(r Run) {
			counts[r.Key]++
			b.done(r)
		})
	}
	if counts["a"] != 12 || counts["b"] != 4 {
		t.Errorf("%v, want three quarters of 16 to be a's", counts)
	}
}

// A job that costs more than the balance lets others pass until it could have started without them.
// Then they wait.
func TestACostlyJobDelaysNoOtherAndDoesNotStarve(t *testing.T) {
	b := newValveBench(t, account())
	b.arrive("small", tokens(2))
	got := b.startedKeys(ms)
	b.arrive("large", tokens(10))
	got += " " + b.startedKeys(5*second)
	for range 30 {
		b.arrive("small", tokens(2))
	}
	got += " " + b.startedKeys(26*second)
	want := "small@0s  small@5s small@5s small@5s small@5s large@15.05s " +
		"small@25.1s small@25.1s small@25.1s small@25.1s small@25.1s"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestALimitForAllKeysIsHandedOverAndChargedByACrash(t *testing.T) {
	policy := account()
	policy.Limits = policy.Limits[1:]
	for _, crashed := range []bool{false, true} {
		b := newValveBench(t, policy)
		b.arrive("a", tokens(4))
		b.done(b.start()[0])
		b.noted()
		h := b.p.Handover(b.now)
		next := unownedValve(t, policy)
		next.own()
		next.seq = b.seq
		next.p.Opened(originWall, 0, &inheritance.State{Handover: h, Crashed: crashed,
			Elapsed: second, Age: second, Fence: ms}, next.now)
		next.p.GoLive(next.now)
		next.noted()
		next.arrive("b", tokens(6))
		next.arrive("b", tokens(1))
		want := "b@0s b@9.05s"
		if crashed {
			want = "b@10.05s b@10.05s"
		}
		if got := next.startedKeys(12 * second); got != want {
			t.Errorf("crashed %v: %s, want %s", crashed, got, want)
		}
	}
}

// A limit that was lowered, taken over after a crash and raised again counts starts while it was
// high.
func TestALimitThatWasLoweredAtACrashCountsStartsFromBefore(t *testing.T) {
	sized := func(at int, most int64) policy.Policy {
		p := account()
		p.Limits[at].Limit, p.Limits[at].Window = most, policy.Duration(10*time.Second)
		p.Limits = p.Limits[at : at+1]
		return p
	}
	for at, name := range []string{"of a key", "over all keys"} {
		high, low := sized(at, 10), sized(at, 4)
		b := newValveBench(t, high)
		b.noted()
		h := b.p.Handover(b.now)
		next := unownedValve(t, low)
		next.own()
		next.seq = b.seq
		next.p.Opened(originWall, 0, &inheritance.State{Handover: h, Crashed: true,
			Elapsed: second, Age: second, Fence: ms}, next.now)
		next.p.GoLive(next.now)
		next.noted()
		next.v.Change(high.WithDefaults(), false, next.now)
		next.arrive("b")
		next.noted()
		if got := next.startedKeys(12 * second); got != "b@10.05s" {
			t.Errorf("%s: %s, want b@10.05s", name, got)
		}
	}
}

func TestUsedCostsOfALimitForAllKeysAreSettled(t *testing.T) {
	b := newValveBench(t, account())
	b.arrive("a", tokens(9))
	b.arrive("b", tokens(9))
	b.v.Advance(b.now, pace.Never)
	r := b.out.Starts[0]
	b.out.Starts = nil
	if _, passed := r.Decide(func() (fence, now pace.Instant) {
		return pace.Never, b.now.Add(26 * ms)
	}, nil); passed {
		t.Fatal("it passes its last check after the guard")
	}
	b.end(r, record.Outcome{Kind: record.OutcomeReturned})
	if got := b.startedKeys(second); len(strings.Fields(got)) != 1 {
		t.Errorf("%s starts after one that did not happen", got)
	}
	b = newValveBench(t, account())
	b.arrive("a", tokens(9))
	b.arrive("b", tokens(9))
	b.end(b.start()[0],
		record.Outcome{Kind: record.OutcomeDone, Used: map[string]int64{"tokens": 1}})
	b.noted()
	if got := b.startedKeys(second); got != "b@0s" {
		t.Errorf("%s starts though 1 of 9 was used", got)
	}
}

func told(all []api.LimitLeft) string {
	var words []string
	for _, l := range all {
		words = append(words, fmt.Sprintf("%s %d/%d", l.Name, l.Left, l.Most))
	}
	return strings.Join(words, ", ")
}

func TestRemaindersOfLimitsAreReported(t *testing.T) {
	b := newValveBench(t, account())
	b.arrive("a", tokens(4))
	b.startedKeys(second)
	for key, want := range map[queue.Key]string{"a": "own 99/100, account 6/10",
		"never seen": "own 100/100, account 6/10"} {
		if got := told(b.view().bucketState(b.p, key).Limits); got != want {
			t.Errorf("of %s %s is left, want %s", key, got, want)
		}
	}
	if got := told(b.view().LeftOfAll()); got != "account 6/10" {
		t.Errorf("of all keys %s is left", got)
	}
	if got := told(b.at(11 * second).v.View(b.now).LeftOfAll()); got != "account 10/10" {
		t.Errorf("after the window %s is left", got)
	}
	elsewhere := unownedValve(t, account())
	if got := elsewhere.view().LeftOfAll(); got != nil {
		t.Errorf("%s is left, says who does not know", told(got))
	}
}
