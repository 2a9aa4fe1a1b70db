package algorithms_test

import (
	"encoding/binary"
	"math"
	"math/bits"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

type script struct{ data []byte }

func (s *script) done() bool { return len(s.data) == 0 }

func (s *script) byte() byte {
	if s.done() {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

// number returns 0 to limit. Its first byte gives the size, which makes small numbers likely.
func (s *script) number(limit int64) int64 {
	var b [8]byte
	size := int(s.byte() % 9)
	for i := range size {
		b[i] = s.byte()
	}
	n := int64(binary.LittleEndian.Uint64(b[:]) & math.MaxInt64)
	if limit == math.MaxInt64 {
		return n
	}
	return n % (limit + 1)
}

func (s *script) rate() algorithms.Rate {
	periods := []time.Duration{
		time.Second, time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, time.Millisecond,
		366 * 24 * time.Hour,
	}
	per := periods[s.byte()%8%7]
	if s.byte()%4 == 0 {
		per = time.Millisecond + time.Duration(s.number(366*24*3600*1e6-1000))*time.Microsecond
	}
	return algorithms.Rate{Count: 1 + s.number(min(per.Microseconds(), algorithms.MaxCount)-1),
		Per: per}
}

func (s *script) window() time.Duration {
	windows := []time.Duration{
		time.Minute, time.Second, algorithms.MinWindow, time.Hour, 7 * 24 * time.Hour,
		algorithms.MaxWindow,
		1234567 * time.Microsecond,
	}
	if i := s.byte() % 8; i < 7 {
		return windows[i]
	}
	return algorithms.MinWindow + time.Duration(s.number(366*24*3600*1e6-1000))*time.Microsecond
}

// passed records the units of a step, and the total microseconds that the clock had moved forward.
type passed struct{ forward, units int64 }

const eventsPerHistory = 80

// play runs a script of takes, peeks and optional refunds with a clock that jumps back and forth,
// and checks every guarantee except the bound. It calls after with each step's decision.
func play[S any](t *testing.T, rule algorithms.Rule[S], s S, in *script, refunds bool,
	after func(now time.Time, n int64, upTo bool, d algorithms.Decision)) []passed {
	now := time.UnixMicro(in.number(4e15)).Add(time.Duration(in.byte()) * time.Nanosecond)
	var (
		history []passed
		forward int64
		last    algorithms.Decision
	)
	for range eventsPerHistory {
		if in.done() {
			break
		}
		op := in.byte()
		var move time.Duration
		switch op % 8 {
		case 1:
			move = last.RetryAfter
		case 2:
			move = last.RetryAfter - time.Microsecond
		case 3:
			move = last.ResetAfter
		case 4:
			move = time.Duration(in.number(1000)) * time.Microsecond
		case 5:
			move = time.Duration(in.number(366*24*3600*1e6)) * time.Microsecond
		case 6:
			move = -time.Duration(in.number(10_000_000)) * time.Microsecond
		case 7:
			move = -time.Duration(in.number(366*24*3600*1e6)) * time.Microsecond
		}
		before := now.UnixMicro()
		if now = now.Add(move); now.Unix() < 0 {
			now = time.Unix(0, 0)
		}
		forward += max(0, now.UnixMicro()-before)

		n, upTo := min(rule.Most(), 1+in.number(rule.Most()-1)), false
		if op&0x10 != 0 {
			n = 1 + n%min(4, rule.Most())
		}
		if op&0x60 == 0x60 && refunds {
			s = rule.Refund(s, now, n)
			checkState(t, rule, s, now)
			continue
		}
		peeked := rule.Peek(clone(s), now, n)
		if upTo = op&0x60 == 0x20; upTo {
			if op&0x80 != 0 {
				n = 1 + in.number(math.MaxInt64-1)
			}
			s, last = rule.TakeUpTo(s, now, n)
		} else {
			s, last = rule.Take(s, now, n)
			if last.Allowed != peeked.Allowed || last.Delay != peeked.Delay {
				t.Fatalf("take of %d says %+v, peek said %+v", n, last, peeked)
			}
		}
		checkDecision(t, rule, s, now, n, upTo, last)
		checkState(t, rule, s, now)
		if after != nil {
			after(now, n, upTo, last)
		}
		history = append(history, passed{forward, last.Granted})
	}
	return history
}

func checkDecision[S any](t *testing.T, rule algorithms.Rule[S], s S, now time.Time, n int64,
	upTo bool,
	d algorithms.Decision) {
	t.Helper()
	switch {
	case d.Limit != rule.Most(), d.Remaining < 0, d.Remaining > d.Limit, d.Granted < 0,
		d.Granted > n,
		d.Granted > d.Limit, d.Allowed != (d.Granted > 0), d.Allowed != (d.RetryAfter == 0),
		!upTo && d.Allowed && d.Granted != n,
		upTo && d.Granted < n && d.Remaining > 0, !d.Allowed && d.Delay != 0:
		t.Fatalf("%+v: a decision on %d units (up to: %t) that contradicts itself", d, n, upTo)
	}
	for _, span := range []time.Duration{d.RetryAfter, d.ResetAfter, d.Delay} {
		if span < 0 || span%time.Microsecond != 0 {
			t.Fatalf("%+v: durations must be whole microseconds, not negative", d)
		}
	}
	if d.Allowed {
		return
	}
	if upTo {
		n = 1
	}
	if _, early := rule.Take(clone(s), now.Add(d.RetryAfter-time.Microsecond), n); early.Allowed {
		t.Fatalf("%+v: %d units pass 1 µs before retry-after", d, n)
	}
	if _, due := rule.Take(clone(s), now.Add(d.RetryAfter), n); !due.Allowed {
		t.Fatalf("%+v: %d units do not pass at retry-after: %+v", d, n, due)
	}
}

// checkState checks a state against its decision: exactly Remaining units pass, and the state is as
// new at ResetAfter, not before.
func checkState[S any](t *testing.T, rule algorithms.Rule[S], s S, now time.Time) {
	t.Helper()
	d := rule.Peek(s, now, 1)
	if d.Granted != 0 || d.Remaining < 0 || d.Remaining > rule.Most() ||
		d.Allowed != (d.Remaining > 0) {
		t.Fatalf("peek: %+v", d)
	}
	if d.Remaining > 0 {
		if _, all := rule.Take(clone(s), now, d.Remaining); !all.Allowed || all.Remaining != 0 {
			t.Fatalf("%+v: taking all that remains: %+v", d, all)
		}
	}
	if d.Remaining < rule.Most() {
		if _, more := rule.Take(clone(s), now, d.Remaining+1); more.Allowed {
			t.Fatalf("%+v: one more than remains passes", d)
		}
	}
	if reset := rule.Peek(s, now.Add(d.ResetAfter), 1); reset.Remaining != rule.Most() ||
		reset.ResetAfter != 0 {
		t.Fatalf("%+v: at reset-after: %+v", d, reset)
	}
	if d.ResetAfter > 0 {
		if early := rule.Peek(s, now.Add(d.ResetAfter-time.Microsecond), 1); early.ResetAfter !=
			time.Microsecond {
			t.Fatalf("%+v: 1 µs before reset-after: %+v", d, early)
		}
	}
}

// checkBound checks that no stretch with forward movements of T passed more than bound(T) units; a
// negative bound is unlimited.
func checkBound(t *testing.T, history []passed, bound func(forward int64) int64) {
	t.Helper()
	for i := range history {
		var units int64
		for j := i; j < len(history); j++ {
			units += history[j].units
			forward := history[j].forward - history[i].forward
			if most := bound(forward); most >= 0 && units > most {
				t.Fatalf("%d units passed within %d µs, the bound is %d", units, forward, most)
			}
		}
	}
}

// scaled returns a·b/c rounded down; c is at least 1 and the result must fit.
func scaled(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}
