package redisstore

import (
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// logs is a sliding log's history. Its script returns the number of counted units, the latest time,
// and each time that a refusal waits for; the rest follows from the requests.
type logs struct{ rule algorithms.SlidingLog }

func (h logs) pair(r *request) (n, times int64) {
	if r.kind == takeUpTo {
		return min(r.n, h.rule.Limit), 0
	}
	return r.pair()
}

func (h logs) begin(said string, now time.Time) (replay, error) {
	l := &replayedLog{SlidingLog: h.rule, now: now.UnixMicro(), rest: said}
	l.have, l.latest = l.next(), l.next()
	l.bad = l.bad || l.have > l.Limit
	return l, nil
}

// recall supports only the refused cost.
func (h logs) recall(o outcome[algorithms.SlidingLogState], age time.Duration,
	n int64) (algorithms.Decision, bool) {
	d := o.decision
	d.RetryAfter -= age
	d.ResetAfter -= age
	return d, n == o.cost && d.RetryAfter > 0
}

func (h logs) forgets() bool { return !h.rule.CountAccepted }

type replayedLog struct {
	algorithms.SlidingLog
	now, have, latest int64
	rest              string
	bad               bool
}

func (l *replayedLog) peek(n int64) algorithms.Decision {
	d := l.decide(n)
	d.Allowed = d.RetryAfter == 0
	return d
}

func (l *replayedLog) take(n int64) algorithms.Decision { return l.pass(n, n) }

func (l *replayedLog) takeUpTo(n int64) algorithms.Decision {
	return l.pass(min(n, l.Limit), max(1, min(n, l.Limit-l.have)))
}

func (l *replayedLog) refund(n int64) {
	if l.have = max(0, l.have-n); l.have > 0 {
		l.latest = l.next()
	}
}

func (l *replayedLog) complete() bool { return !l.bad && l.rest == "" }

func (l *replayedLog) next() int64 {
	text, rest, _ := strings.Cut(l.rest, " ")
	n, ok := parseNumber(text)
	l.rest, l.bad = rest, l.bad || !ok
	return n
}

// until is the wait until a unit of time t expires.
func (l *replayedLog) until(t int64) time.Duration {
	wait := time.Duration(min(t, l.now)-l.now)*time.Microsecond + l.Window
	l.bad = l.bad || wait <= 0
	return wait
}

func (l *replayedLog) decide(n int64) algorithms.Decision {
	d := algorithms.Decision{Limit: l.Limit, Remaining: l.Limit - l.have}
	if l.have > 0 {
		d.ResetAfter = l.until(l.latest)
	}
	if n > d.Remaining {
		d.RetryAfter = l.until(l.next())
	}
	return d
}

func (l *replayedLog) pass(asked, pass int64) algorithms.Decision {
	allowed := l.have+pass <= l.Limit
	var d algorithms.Decision
	if !allowed {
		d = l.decide(pass)
	}
	switch {
	case !l.CountAccepted:
		l.have, l.latest = min(l.Limit, l.have+asked), l.now
	case allowed:
		l.have, l.latest = l.have+pass, l.now
	}
	d.Limit, d.Remaining, d.Allowed = l.Limit, l.Limit-l.have, allowed
	if l.have > 0 {
		d.ResetAfter = l.until(l.latest)
	}
	if allowed {
		d.Granted = pass
	}
	return d
}
