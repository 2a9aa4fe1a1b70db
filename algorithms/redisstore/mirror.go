package redisstore

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

type script struct{ source, hash string }

func newScript(source string) *script {
	source = commonSource + source
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

var (
	//go:embed common.lua
	commonSource string
	//go:embed meter.lua
	meterSource string
	//go:embed fixedwindow.lua
	fixedWindowSource string
	//go:embed slidingcounter.lua
	slidingCounterSource string
	//go:embed slidinglog.lua
	slidingLogSource string
	//go:embed group.lua
	groupSource string

	meterScript          = newScript(meterSource)
	fixedWindowScript    = newScript(fixedWindowSource)
	slidingCounterScript = newScript(slidingCounterSource)
	slidingLogScript     = newScript(slidingLogSource)

	// The rules' scripts are functions here.
	groupScript = newScript("local parts = {}\n" + part("meter", meterSource) +
		part("fixedwindow", fixedWindowSource) + part("slidingcounter", slidingCounterSource) +
		part("slidinglog", slidingLogSource) + groupSource)
)

func part(name, source string) string {
	return "function parts." + name + "(KEYS, ARGV, answer)\n" + source + "\nend\n"
}

// exact is 2^53, from where Lua's numbers are inexact.
const exact = 1 << 53

type mirror[S any] struct {
	store      *Store[S]
	rule       algorithms.Rule[S]
	script     *script
	part       string
	parameters []any
	history    history[S]
	forgets    bool // refusals: they change the state
}

type history[S any] interface {
	pair(r *request) (n, times int64)
	// begin parses a key's part of the reply.
	begin(said string, now time.Time) (replay, error)
	// recall returns a later decision from a refusing state, if it is certainly a refusal.
	recall(o outcome[S], age time.Duration, n int64) (algorithms.Decision, bool)
}

type outcome[S any] struct {
	at       time.Time // by Redis's clock
	refused  bool
	changed  bool // units were taken or returned
	state    S    // except for a sliding log
	cost     int64
	decision algorithms.Decision
}

func newMirror[S any](s *Store[S], rule algorithms.Rule[S]) (*mirror[S], error) {
	m := &mirror[S]{store: s, rule: rule}
	var h any
	switch r := any(rule).(type) {
	case algorithms.TokenBucket:
		m.script, m.part = meterScript, "meter"
		m.parameters = []any{r.Capacity, r.Refill.Per.Microseconds(), r.Refill.Count}
		h = &states[algorithms.TokenBucketState]{r, parseTokenBucket}
	case algorithms.LeakingBucket:
		m.script, m.part = meterScript, "meter"
		m.parameters = []any{r.Capacity, r.Outflow.Per.Microseconds(), r.Outflow.Count}
		h = &states[algorithms.LeakingBucketState]{r, parseLeakingBucket}
	case algorithms.FixedWindow:
		m.script, m.part = fixedWindowScript, "fixedwindow"
		var offset time.Duration
		if r.SinceEpoch {
			offset = 3 * 24 * time.Hour // from Monday to Thursday
		}
		m.parameters = []any{r.Limit, r.Window.Microseconds(), offset.Microseconds()}
		h = &states[algorithms.FixedWindowState]{r, parseFixedWindow}
	case algorithms.SlidingCounter:
		m.script, m.part = slidingCounterScript, "slidingcounter"
		m.parameters = []any{r.Limit, r.Window.Microseconds()}
		h = &states[algorithms.SlidingCounterState]{r, parseSlidingCounter}
	case algorithms.SlidingLog:
		m.script, m.part = slidingLogScript, "slidinglog"
		m.parameters = []any{r.Limit, r.Window.Microseconds(), r.CountAccepted}
		h, m.forgets = logs{r}, !r.CountAccepted
	default:
		return nil, fmt.Errorf("rule %T: there is no script for it", rule)
	}
	m.history = h.(history[S])
	return m, nil
}

func (m *mirror[S]) most() int64                      { return m.rule.Most() }
func (m *mirror[S]) program() *script                 { return m.script }
func (m *mirror[S]) arguments() []any                 { return m.parameters }
func (m *mirror[S]) pair(r *request) (n, times int64) { return m.history.pair(r) }

func (m *mirror[S]) settle(key, said string, now time.Time, sent time.Duration,
	requests []*request) error {
	o, err := m.replay(said, now, requests)
	if err != nil {
		return &algorithms.StateError{Name: m.store.lane.redisKey(key), Err: err}
	}
	if m.store.client.now != nil {
		return nil // refusals count down on the real clock
	}
	switch {
	case o.refused:
		m.store.refusals.remember(key, refusal[S]{m, o, sent})
	case o.changed:
		m.store.refusals.forget(key)
	}
	return nil
}

func (m *mirror[S]) replay(said string, now time.Time, requests []*request) (outcome[S], error) {
	o := outcome[S]{at: now}
	one, err := m.begin(said, now)
	if err != nil {
		return o, err
	}
	for _, r := range requests {
		o.cost = r.n
		switch r.kind {
		case take:
			r.decision = one.take(r.n)
		case takeUpTo:
			r.decision, o.cost = one.takeUpTo(r.n), 1
		case peek:
			r.decision = one.peek(r.n)
			continue
		case refund:
			one.refund(r.n)
			o.refused, o.changed = false, true
			continue
		}
		o.decision = r.decision
		o.refused = (o.refused || !o.decision.Allowed) && !m.forgets
		o.changed = o.changed || o.decision.Allowed
	}
	if known, ok := one.(*replayedState[S]); ok {
		o.state = known.state
	}
	if !one.complete() {
		err = fmt.Errorf("%q does not answer %d requests", said, len(requests))
	}
	return o, err
}

func (m *mirror[S]) doubt(key string) { m.store.refusals.forget(key) }

// states is the history of a rule whose script returns the former state.
type states[S any] struct {
	rule  algorithms.Rule[S]
	parse func(text string) (S, bool)
}

func (h *states[S]) pair(r *request) (n, times int64) {
	switch r.kind {
	case takeUpTo:
		return 1, min(r.n, h.rule.Most())
	case peek:
		return 0, 0
	}
	return r.pair()
}

func (h *states[S]) recall(o outcome[S], age time.Duration, n int64) (algorithms.Decision, bool) {
	d := h.rule.Peek(o.state, o.at.Add(age), n)
	return d, !d.Allowed
}
