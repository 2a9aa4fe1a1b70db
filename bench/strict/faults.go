package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/wiretest"
)

// hurt freezes and kills processes, and holds, slows and cuts links, until ctx ends. The seed
// determines what is done; then all is undone.
func (w *world) hurt(ctx context.Context, seed uint64) {
	var hands sync.WaitGroup
	hands.Go(func() { w.hurtProcesses(ctx, rand.New(rand.NewPCG(seed, 1))) })
	for i, l := range w.links {
		hands.Go(func() { w.hurtLink(ctx, l, rand.New(rand.NewPCG(seed, uint64(2+i)))) })
	}
	hands.Wait()
}

// draw draws a duration.
func draw(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func (w *world) hurtProcesses(ctx context.Context, r *rand.Rand) {
	for pause(ctx, draw(r, 200*time.Millisecond, 1500*time.Millisecond)) {
		p, kill := w.victims[r.IntN(len(w.victims))], r.IntN(20) == 0
		frozen, away := draw(r, 20*time.Millisecond, 300*time.Millisecond),
			draw(r, 0, 500*time.Millisecond)
		if !kill || p == w.target { // its log is the measurement
			w.say("%s is frozen for %v", p.name, frozen)
			p.Freeze()
			pause(ctx, frozen)
			p.Thaw()
			continue
		}
		w.say("%s is killed", p.name)
		p.Kill()
		pause(ctx, away)
		if err := p.start(context.WithoutCancel(ctx)); err != nil {
			w.fail(err)
			return
		}
	}
}

func (w *world) hurtLink(ctx context.Context, l *link, r *rand.Rand) {
	for pause(ctx, draw(r, 2*time.Second, 8*time.Second)) {
		kind := r.IntN(7)
		held, cut := draw(r, time.Second, longestHold), draw(r, 0, 500*time.Millisecond)
		late, slowly := draw(r, 10*time.Millisecond, 200*time.Millisecond),
			draw(r, time.Second, 3*time.Second)
		switch {
		case kind < 3:
			w.say("%s is held for %v", l.name, held)
			l.Become(wiretest.Stalled)
			pause(ctx, held)
			l.Become(wiretest.Open)
		case kind < 6:
			w.say("%s is slower by %v for %v", l.name, late, slowly)
			l.Slow(late)
			pause(ctx, slowly)
			l.Slow(0)
		default:
			w.say("%s is cut for %v", l.name, cut)
			l.Become(wiretest.Cut)
			pause(ctx, cut)
			l.Become(wiretest.Open)
		}
	}
}

// outlast holds each link longer than attempts and max_delay take together, three times.
func (w *world) outlast(ctx context.Context, _ uint64) {
	for range 3 {
		for _, l := range w.links {
			l.Become(wiretest.Stalled)
		}
		pause(ctx, longestHold)
		for _, l := range w.links {
			l.Become(wiretest.Open)
		}
		pause(ctx, longestHold)
	}
}
