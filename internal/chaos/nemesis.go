//go:build unix

package main

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"
)

// nemesis has two independent hands: for the servers and their network, and for the rest. The seed
// determines kind, target and duration.
type nemesis struct {
	w     *world
	hands []hand
}

type hand struct {
	name  string
	r     *rand.Rand
	harms []harm
	calm  func(context.Context)
}

type harm struct {
	kind   string
	weight int
	least  time.Duration
	most   time.Duration
	strike func(r *rand.Rand) (whom string, heal func())
	stale  bool
}

func newNemesis(w *world, kinds *regexp.Regexp) *nemesis {
	lease := w.history.lease
	n := &nemesis{w: w}
	n.hands = []hand{
		{"servers", rand.New(rand.NewPCG(w.seed,
			1<<32)), n.againstServers(), func(ctx context.Context) {
			// Operators usually wait until a cluster is healthy.
			if err := w.healthy(ctx, 30*time.Second); err != nil && ctx.Err() == nil {
				w.say("servers are not in step yet: %v", err)
			}
		}},
		{"processes", rand.New(rand.NewPCG(w.seed, 2<<32)), n.againstProcesses(lease),
			func(context.Context) {}},
	}
	for i, h := range n.hands {
		n.hands[i].harms = slices.DeleteFunc(h.harms, func(x harm) bool {
			return !kinds.MatchString(x.kind)
		})
	}
	n.hands = slices.DeleteFunc(n.hands, func(h hand) bool { return len(h.harms) == 0 })
	return n
}

func (n *nemesis) rage(ctx context.Context) {
	done := make(chan struct{})
	for _, h := range n.hands {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				breath := time.Duration(h.r.IntN(5000)) * time.Millisecond
				patient := h.r.IntN(4) > 0
				if !pause(ctx, breath) {
					return
				}
				if patient {
					h.calm(ctx)
				}
				if ctx.Err() != nil {
					return
				}
				n.do(ctx, h)
			}
		}()
	}
	for range n.hands {
		<-done
	}
}

func (n *nemesis) do(ctx context.Context, h hand) {
	harm := h.draw()
	lasts := harm.least + time.Duration(h.r.Int64N(int64(harm.most-harm.least)+1))
	f := fault{kind: harm.kind, stale: harm.stale, from: n.w.now()}
	whom, heal := harm.strike(h.r)
	f.whom = whom
	n.w.say("%s: %s, for %v", f.kind, f.whom, lasts.Round(time.Millisecond))
	pause(ctx, lasts)
	heal()
	f.until = n.w.now()
	n.w.history.struck(f)
}

func (h hand) draw() harm {
	sum := 0
	for _, harm := range h.harms {
		sum += harm.weight
	}
	at := h.r.IntN(sum)
	i := slices.IndexFunc(h.harms, func(harm harm) bool {
		at -= harm.weight
		return at < 0
	})
	return h.harms[i]
}

func some[T any](r *rand.Rand, list []T, n int) []T {
	list = slices.Clone(list)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:n]
}

// A failure shows at the end of the run.
func (n *nemesis) begin(p *process) {
	if err := p.start(); err != nil {
		n.w.say("%v", err)
	}
}
