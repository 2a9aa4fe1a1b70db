package adapt

import (
	"math"
	"testing"
	"time"
)

const least, most, second = 1.0, 100.0, time.Second

func TestThrottlesInARowLowerTheRateEverMore(t *testing.T) {
	var s State
	now := 1000 * second
	for i, want := range []float64{95, 85.5, 68.4, 41.04, 20.52, 10.26, 5.13, 2.565, 1.2825, 1, 1} {
		began := now
		lowered := false
		if s, lowered = s.Throttled(began, now+second, least, most); !lowered {
			t.Fatalf("throttle %d lowers nothing", i+1)
		}
		if _, again := s.Throttled(began, now+second, least, most); again {
			t.Fatalf("throttle %d: another run of then lowers the rate again", i+1)
		}
		now += second
		if got := s.Rate(now, least, most); math.Abs(got-want) > 0.01 {
			t.Errorf("after %d throttles the rate is %.3f, want %.3f", i+1, got, want)
		}
	}
}

func TestTheRateComesBackInAMinuteOrTwo(t *testing.T) {
	once, _ := State{}.Throttled(0, 0, least, most)
	halved := State{ceiling: 50, low: 25}
	for _, c := range []struct {
		s     State
		after time.Duration
		want  float64
	}{{once, 0, 95}, {once, 28 * second, 97.5}, {once, 100 * second, 100},
		{halved, 0, 25}, {halved, Recovery, 50}, {halved, 2 * Recovery, 75},
		{halved, -second, 25}} {
		if got := c.s.Rate(c.after, least, most); math.Abs(got-c.want) > 0.02 {
			t.Errorf("%+v after %v: %.2f, want %.2f", c.s, c.after, got, c.want)
		}
	}
	for _, s := range []State{once, halved} {
		if at := s.Until(most); s.Rate(at+1, least, most) < most-1e-6 ||
			s.Rate(at-second, least, most) >= most {
			t.Errorf("%+v is over after %v", s, at)
		}
	}
}

func FuzzParse(f *testing.F) {
	halved := State{ceiling: 50, low: 25, since: 3 * second, row: 2}
	f.Add(halved.Text(10*second, most))
	f.Add("100 1e300 1e-300 -9e18 9")
	f.Add("100 NaN 5 5 5")
	if got := Parse(halved.Text(10*second, most), 1000*second, most); got !=
		(State{ceiling: 50, low: 25, since: 993 * second, row: 2}) {
		f.Errorf("read as %+v", got)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := Parse(text, second, most)
		for _, now := range []time.Duration{0, second, time.Hour, math.MaxInt64 / 2} {
			if r := s.Rate(now, least, most); !(r >= least && r <= most) {
				t.Fatalf("%q: %v at %v", text, r, now)
			}
		}
		if s, _ := s.Throttled(time.Hour, time.Hour, least, most); !s.Known() ||
			s.Until(most) < 0 {
			t.Fatalf("%q: %+v", text, s)
		}
	})
}
