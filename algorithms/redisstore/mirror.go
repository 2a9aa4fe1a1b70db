package redisstore

import (
	"context"
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
}

type history[S any] interface {
	pair(r *request) (n, times int64)
	// begin parses a key's part of the reply.
	begin(said string, now time.Time) (replay, error)
	// recall returns a later decision from a refusing state, if it is certainly a refusal.
	recall(o outcome[S], age time.Duration, n int64) (algorithms.Decision, bool)
	// forgets reports that refusals change the state.
	forgets() bool
}

type outcome[S any] struct {
	at       time.Time // by Redis's clock
	refused  bool
	changed  bool // units were taken or returned
	state    S    // except for a sliding log
	cost     int64
	decision algorithms.Decision
}

// scripted is how Redis keeps the states S of a rule R.
type scripted[S any, R algorithms.Rule[S]] struct {
	part   string // of a group's script
	script *script
	// more are parameters after those of the rule's bound; nil: none.
	more func(R) []any
	// parse reads a former state.
	parse func(text string) (S, bool)
	// history is nil: states that parse reads.
	history func(R) history[S]
}

// scripts has a row for each rule.
var scripts = []opener{
	scripted[algorithms.TokenBucketState, algorithms.TokenBucket]{part: "meter",
		script: meterScript, parse: parseTokenBucket},
	scripted[algorithms.LeakingBucketState, algorithms.LeakingBucket]{part: "meter",
		script: meterScript, parse: parseLeakingBucket},
	scripted[algorithms.FixedWindowState, algorithms.FixedWindow]{part: "fixedwindow",
		script: fixedWindowScript, parse: parseFixedWindow,
		more: func(f algorithms.FixedWindow) []any {
			var offset time.Duration
			if f.SinceEpoch {
				offset = 3 * 24 * time.Hour // from Monday to Thursday
			}
			return []any{offset.Microseconds()}
		}},
	scripted[algorithms.SlidingCounterState, algorithms.SlidingCounter]{part: "slidingcounter",
		script: slidingCounterScript, parse: parseSlidingCounter},
	scripted[algorithms.SlidingLogState, algorithms.SlidingLog]{part: "slidinglog",
		script: slidingLogScript,
		history: func(l algorithms.SlidingLog) history[algorithms.SlidingLogState] {
			return logs{l}
		},
		more: func(l algorithms.SlidingLog) []any {
			return []any{l.CountAccepted, l.Grain().Microseconds()}
		}},
}

type opener interface {
	// open returns the store of a rule with the row's state, or nil.
	open(c *Client, policy, suffix string, rule algorithms.Parametrized) AnyStore
}

// AnyStore is a [Store] without the type of its states.
type AnyStore interface {
	Member
	Take(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	TakeUpTo(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Peek(ctx context.Context, key string, n int64) (algorithms.Decision, error)
	Refund(ctx context.Context, key string, n int64) error
}

// Open returns the store of a policy's rule, or of one of several with different names, for a
// [Group].
func Open(c *Client, policy, name string, rule algorithms.Parametrized) (AnyStore, error) {
	if name != "" {
		name = ":" + name
	}
	for _, row := range scripts {
		if s := row.open(c, policy, name, rule); s != nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("rule %T: there is no script for it", rule)
}

func (scripted[S, R]) open(c *Client, policy, suffix string,
	rule algorithms.Parametrized) AnyStore {
	if of, ok := rule.(R); ok {
		return newStore[S](c, policy, suffix, of)
	}
	return nil
}

// equip completes the mirror of the row's rule, and reports whether it is one.
func (row scripted[S, R]) equip(m *mirror[S]) bool {
	rule, ok := m.rule.(R)
	if !ok {
		return false
	}
	m.script, m.part = row.script, row.part
	if b := rule.Bound(); b.Window == 0 {
		m.parameters = []any{b.Units, b.Rate.Per.Microseconds(), b.Rate.Count}
	} else {
		m.parameters = []any{b.Units, b.Window.Microseconds()}
	}
	if row.more != nil {
		m.parameters = append(m.parameters, row.more(rule)...)
	}
	if m.history = (&states[S]{rule, row.parse}); row.history != nil {
		m.history = row.history(rule)
	}
	return true
}

func newMirror[S any](s *Store[S], rule algorithms.Rule[S]) (*mirror[S], error) {
	m := &mirror[S]{store: s, rule: rule}
	for _, row := range scripts {
		if row, ok := row.(interface{ equip(*mirror[S]) bool }); ok && row.equip(m) {
			return m, nil
		}
	}
	return nil, fmt.Errorf("rule %T: there is no script for it", rule)
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
		o.refused = (o.refused || !o.decision.Allowed) && !m.history.forgets()
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

func (h *states[S]) forgets() bool { return false }
