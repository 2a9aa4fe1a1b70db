package valve

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

type offering struct {
	*Valve
	part *Part
	seq  uint64
}

func newOffering(p policy.Policy) *offering {
	v := New(p.WithDefaults(), false, "me", func() float64 { return 0 }, wallOfTests, &Actions{})
	o := &offering{Valve: v, part: v.Own(handle.Partition{Policy: p.Name}, 1)}
	o.part.GoLive(0)
	return o
}

func (o *offering) publish(key queue.Key, n int, now pace.Instant) {
	for range n {
		o.seq++
		o.part.arrive(&job.Arrived{Seq: o.seq, Key: key, Stored: originWall, Cost: 1,
			Body: []byte{}}, now)
	}
}

func (o *offering) step(now pace.Instant) string {
	o.Advance(now, pace.Never)
	var given []uint64
	for _, r := range o.out.Starts {
		if r.Worker != "" {
			given = append(given, r.Seq)
			r.Decide(atOnce(r), nil)
		}
	}
	said := fmt.Sprintf("%d offers, gives %v, refuses %v", len(o.out.Offers), given, o.out.Refusals)
	o.out.Reset()
	return said
}

func (o *offering) claim(until pace.Instant, except ...queue.Key) {
	o.Offered(crew.OfferClaimed, 0)
	o.Crew.Claimants.Offers = max(0, o.Crew.Claimants.Offers)
	o.Crew.Claim(crew.Claim{Worker: "w", Except: except, Until: until})
}

const milli = pace.Instant(time.Millisecond)

func TestClaims(t *testing.T) {
	o := newOffering(leaky("api", "10/s"))
	expect := func(now pace.Instant, want string) {
		t.Helper()
		if got := o.step(now); got != want {
			t.Fatalf("at %v: %s, want %s", time.Duration(now), got, want)
		}
	}
	now := 1000 * milli
	o.publish("a", 3, now)
	expect(now, "1 offers, gives [], refuses []")
	expect(now, "0 offers, gives [], refuses []")
	o.claim(now + 40*milli)
	expect(now, "0 offers, gives [1], refuses []")

	if at := o.Wake(true); at != now+100*milli-pace.Instant(ahead) {
		t.Fatalf("wakes at %v", time.Duration(at))
	}
	expect(now+80*milli, "1 offers, gives [], refuses []")
	o.claim(now + 120*milli)
	expect(now+99*milli, "0 offers, gives [], refuses []")
	if at := o.Wake(true); at != now+100*milli {
		t.Fatalf("wakes at %v", time.Duration(at))
	}
	expect(now+100*milli, "0 offers, gives [2], refuses []")

	// a claim without a job in time is refused; an offer without workers is repeated after a pause
	expect(now+180*milli, "1 offers, gives [], refuses []")
	o.claim(now + 190*milli)
	expect(now+180*milli, "0 offers, gives [], refuses []")
	if at := o.Wake(true); at != now+190*milli {
		t.Fatalf("wakes at %v", time.Duration(at))
	}
	expect(now+190*milli, "1 offers, gives [], refuses [w]")
	o.Offered(crew.OfferNobody, now+190*milli)
	expect(now+200*milli, "0 offers, gives [], refuses []")
	if at := o.Wake(true); at != now+440*milli {
		t.Fatalf("wakes at %v", time.Duration(at))
	}
	expect(now+440*milli, "1 offers, gives [], refuses []")
	o.Offered(crew.OfferBusy, now+440*milli)
	expect(now+459*milli, "0 offers, gives [], refuses []")
	expect(now+460*milli, "1 offers, gives [], refuses []")
}

func TestAClaimIsNotForABucketThatItsWorkerExcepts(t *testing.T) {
	for _, p := range []policy.Policy{leaky("api", "1000/s"), total("1000/s")} {
		o := newOffering(p)
		now := 1000 * milli
		o.publish("hangs", 3, now)
		o.step(now)
		o.claim(now + 40*milli)
		if got := o.step(now); !strings.Contains(got, "gives [1]") {
			t.Fatal(got)
		}
		now += 10 * milli
		if o.Fits([]queue.Key{"hangs"}, now) || !o.Fits([]queue.Key{"fine"}, now) ||
			!o.Fits(nil, now) {
			t.Error("a claim fits other buckets than those that have jobs")
		}
		o.claim(now+40*milli, "hangs")
		if got := o.step(now); !strings.HasSuffix(got, "gives [], refuses []") {
			t.Errorf("the bucket that hangs took another's worker: %s", got)
		}
		o.publish("fine", 3, now)
		if !o.Fits([]queue.Key{"hangs"}, now) || o.Fits([]queue.Key{"hangs", "fine"}, now) {
			t.Error("a claim fits other buckets than those that have jobs")
		}
		o.claim(now+40*milli, "gone", "hangs")
		var given []uint64
		for end := now + 5*milli; now < end; now += milli {
			o.Advance(now, pace.Never)
			for _, r := range o.out.Starts {
				given = append(given, r.Seq)
			}
			o.out.Reset()
		}
		if want := []uint64{4, 5}; !slices.Equal(given, want) {
			t.Errorf("the claims were given %v, want jobs of the bucket that is fine, %v", given,
				want)
		}
	}
}

func TestAClaimFitsAJobThatIsSoonDue(t *testing.T) {
	o := newOffering(leaky("api", "10/s"))
	now := 1000 * milli
	o.publish("a", 2, now)
	o.step(now)
	o.claim(now + 40*milli)
	for _, x := range []struct {
		at   pace.Instant
		fits bool
	}{{now, false}, {now + 80*milli, true}} {
		if o.step(x.at); o.Fits([]queue.Key{"b"}, x.at) != x.fits {
			t.Errorf("%v before its start, the job fits a claim: %v", 100*milli+now-x.at, !x.fits)
		}
	}
}

func TestClaimsWhenStartsAreForbidden(t *testing.T) {
	o := newOffering(leaky("api", "1000/s"))
	o.publish("a", 1, 1000*milli)
	o.step(1000 * milli)
	o.claim(1040 * milli)
	o.Advance(1001*milli, 0)
	if !slices.Equal(o.out.Refusals, []string{"w"}) || len(o.out.Starts) > 0 {
		t.Errorf("refuses %v, gives %d", o.out.Refusals, len(o.out.Starts))
	}
}

func TestClaimsUnderTotal(t *testing.T) {
	o := newOffering(total("10/s"))
	now := 1000 * milli
	o.publish("a", 5, now)
	o.publish("b", 5, now)
	o.step(now)
	o.claim(now + 40*milli)
	o.claim(now + 40*milli)
	if got := o.step(now); got != "0 offers, gives [1], refuses []" {
		t.Fatal(got)
	}
	if got := o.step(now + 40*milli); got != "0 offers, gives [], refuses [w]" {
		t.Fatal(got)
	}
	if at := o.Wake(true); at != now+100*milli-pace.Instant(ahead) {
		t.Fatalf("wakes at %v", time.Duration(at))
	}
	if got := o.step(now + 80*milli); got != "1 offers, gives [], refuses []" {
		t.Fatal(got)
	}
	o.claim(now + 120*milli)
	if got := o.step(now + 100*milli); got != "0 offers, gives [6], refuses []" {
		t.Fatal(got)
	}
}

// Excepted buckets are in turn again for other claims.
func TestAnExceptedBucketDelaysNoOther(t *testing.T) {
	o := newOffering(total("1000/s"))
	now := 1000 * milli
	for _, key := range []queue.Key{"a", "b", "c", "d"} {
		o.publish(key, 2, now)
	}
	o.step(now)
	for _, x := range []struct {
		except []queue.Key
		gives  string
	}{{[]queue.Key{"a", "b"}, "[5]"}, {nil, "[1]"}, {[]queue.Key{"c", "d"}, "[3]"}} {
		o.claim(now+40*milli, x.except...)
		if got := o.step(now); !strings.Contains(got, "gives "+x.gives) {
			t.Errorf("a claim except for %v: %s, want %s", x.except, got, x.gives)
		}
		now += 10 * milli
	}
}

// A claim costs the same beside many due buckets.
func BenchmarkClaimBesideManyDueBuckets(b *testing.B) {
	for _, buckets := range []int{100, 100_000} {
		b.Run(fmt.Sprint(buckets), func(b *testing.B) {
			o := newOffering(total("1000000/s"))
			now := 1000 * milli
			for i := range buckets {
				o.publish(queue.Key(fmt.Sprint(i)), 1, now)
			}
			o.Advance(now, pace.Never)
			o.Crew.Claim(crew.Claim{Except: []queue.Key{"0", "1", "2"}, Until: pace.Never})
			for b.Loop() {
				if to, _ := o.match(); to == nil {
					b.Fatal("no match")
				}
			}
		})
	}
}
