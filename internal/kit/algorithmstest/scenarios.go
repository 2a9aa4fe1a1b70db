package algorithmstest

import (
	"fmt"
	"math"
	"time"
)

func costs[S any](p *pair[S]) {
	most := p.rule.Most()
	for _, n := range []int64{most, (most + 1) / 2, most/2 + 1, max(1, most/3), 1} {
		key := fmt.Sprint("cost ", n)
		for range 4 {
			p.peek(key, n)
			p.take(key, n)
			p.take(key, 1)
			p.take(key, most)
			p.peek(key, max(1, most-n))
			p.clock.move(100 * time.Millisecond)
		}
	}
}

// partialGrants checks that TakeUpTo takes the available units, and reports if it takes no unit.
func partialGrants[S any](p *pair[S]) {
	most := p.rule.Most()
	for _, n := range []int64{1, most, most + 1, math.MaxInt64} {
		key := fmt.Sprint("partial ", n)
		p.take(key, (most+1)/2)
		d := p.takeUpTo(key, n)
		p.takeUpTo(key, n)
		d = p.takeUpTo(key, max(1, n-d.Granted))
		p.take(key, 1)
		p.clock.move(d.RetryAfter)
		p.takeUpTo(key, n)
		p.peek(key, 1)
	}
}

// refunds checks that returned units can be taken again, and that an excessive refund gives no more
// than a fresh key has.
func refunds[S any](p *pair[S]) {
	most := p.rule.Most()
	p.refund("never seen", 5)
	p.take("never seen", most)
	for _, n := range []int64{1, (most + 1) / 2, most, most + 1, math.MaxInt64} {
		key := fmt.Sprint("refund ", n)
		p.take(key, most)
		p.take(key, 1)
		p.refund(key, n)
		p.peek(key, 1)
		p.take(key, min(n, most))
		p.refund(key, n)
		p.refund(key, 1)
		p.clock.move(-time.Second)
		p.peek(key, most)
		p.takeUpTo(key, most)
		p.clock.move(2 * time.Second)
		p.take(key, most)
	}
}

// waits checks that a request passes at its RetryAfter and no earlier, and that a key is as new at
// its ResetAfter.
func waits[S any](p *pair[S]) {
	most := p.rule.Most()
	for _, n := range []int64{1, (most + 1) / 2, most} {
		key := fmt.Sprint("wait ", n)
		p.take(key, most)
		for range 3 {
			d := p.take(key, n)
			if d.Allowed {
				continue
			}
			p.clock.move(d.RetryAfter - time.Microsecond)
			p.peek(key, n)
			p.clock.move(time.Microsecond)
			p.peek(key, n)
			p.take(key, n)
		}
		d := p.takeUpTo(key, most)
		p.clock.move(d.ResetAfter - time.Microsecond)
		p.peek(key, most)
		p.clock.move(time.Microsecond)
		p.take(key, most)
	}
}

// clockStepsBack checks decisions on a state from the future, with Peek and then Take.
func clockStepsBack[S any](p *pair[S]) {
	most := p.rule.Most()
	for i, back := range []time.Duration{time.Microsecond, time.Second, Grace / 2, time.Hour,
		400 * 24 * time.Hour} {
		for _, n := range []int64{1, (most + 1) / 2, most} {
			key := fmt.Sprint("step ", i, " ", n)
			p.take(key, n)
			p.clock.move(-back)
			p.peek(key, most)
			p.take(key, most)
			p.refund(key, 1)
			p.takeUpTo(key, most)
			p.clock.move(back / 2)
			p.peek(key, 1)
			p.take(key, n)
			p.clock.move(back - back/2)
			p.peek(key, most)
			p.take(key, 1)
		}
	}
}

func keysApart[S any](p *pair[S]) {
	keys := []string{
		"", " ", "a", "A", "a ", " a", "a\x00", "a\n", "a:b", "a:", ":a", "a}", "{a}", "a{b", "}{",
		"%", "%%", "%7D", "%7d",
		"%257D", "a%7D", "a%257D", "*", "a*", "?", "[a]", "\\", "a/b", "é", "e\u0301", "\xff",
		"\xff\xff", "0", "00", "-1",
	}
	for i, key := range keys {
		p.take(key, 1+int64(i)%p.rule.Most())
		p.clock.move(time.Microsecond)
	}
	for _, key := range keys {
		p.peek(key, 1)
	}
	for i := 0; i < len(keys); i += 2 {
		p.refund(keys[i], math.MaxInt64)
	}
	for _, key := range keys {
		p.take(key, 1)
	}
}
