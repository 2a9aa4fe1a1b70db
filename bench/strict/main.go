// Command strict counts requests at a target that has a clock of its own, while processes are
// frozen and killed, and links are held, slowed and cut: no window of a limit with count_from:
// answer may hold more than its number, and with count_from: start some must, or the faults prove
// nothing. See docs/strict.md.
//
//	go -C bench run ./strict   # 100 windows of 0.2 s and more, in three minutes
//	go -C bench run ./strict -windows 300 -window 1s -for 30m -out ../docs
//
// Status 1: a window held too many, or the run does not count.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/bench/build"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

const (
	roleTarget = "target"
	roleCaller = "caller"
)

type options struct {
	seed    uint64
	windows int
	window  time.Duration
	most    time.Duration
	out     string
}

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == roleTarget:
		err = beTarget()
	case len(args) == 4 && args[0] == roleCaller:
		err = beCaller(args[1], args[2], args[3])
	default:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "strict:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	var o options
	flag.Uint64Var(&o.seed, "seed", rand.Uint64N(1_000_000), "what the faults are drawn from")
	flag.IntVar(&o.windows, "windows", 100, "how many windows are in full use at each rate")
	flag.DurationVar(&o.window, "window", 200*time.Millisecond, "of the limits, at least")
	flag.DurationVar(&o.most, "for", 4*time.Minute, "time to reach these windows within")
	flag.StringVar(&o.out, "out", "", "directory to write strict.md to; none: print only")
	flag.Parse()
	dir, err := os.MkdirTemp("", "penstock-strict-")
	if err != nil {
		return err
	}
	if err := build.Programs(ctx, dir, "./cmd/admitter", "./cmd/drainer"); err != nil {
		return err
	}
	fmt.Printf("seed %d, again with SEED=%[1]d; logs in %s\n", o.seed, dir)
	r := report{options: o}
	for _, part := range []struct {
		name  string
		world *world
		each  int
		to    *[]result
	}{
		// max_delay covers a link that is held and a target that is frozen.
		{"answer", &world{rows: rows(o.window), rules: rules{"answer", maxDelay, timeout},
			harm: (*world).hurt}, o.windows, &r.answer},
		{"start", &world{rows: rows(o.window), rules: rules{"start", maxDelay, timeout},
			harm: (*world).hurt}, o.windows / 5, &r.start},
		{"cut", &world{rows: rows(o.window)[1:2], rules: rules{"answer", time.Second, time.Second},
			harm: (*world).outlast}, math.MaxInt, &r.cut},
	} {
		w := part.world
		w.dir = filepath.Join(dir, part.name)
		if *part.to, err = w.play(ctx, dir, o, part.each); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if err := r.table().Print(os.Stdout); err != nil {
		return err
	}
	if o.out != "" {
		err = r.write(o.out)
	}
	if err = errors.Join(err, r.judge()); err == nil {
		err = os.RemoveAll(dir)
	}
	return err
}

// rows have windows of a length at least, with a whole number of requests, two or more.
func rows(window time.Duration) (all []row) {
	add := func(name string, perSecond int, calls bool) {
		n := max(2, int((time.Duration(perSecond)*window+time.Second-1)/time.Second))
		length := time.Duration(n) * time.Second / time.Duration(perSecond)
		all = append(all, row{name, n, length, calls})
	}
	for _, perSecond := range []int{8, 50, 300, 3000} {
		add(fmt.Sprintf("r%d", perSecond), perSecond, false)
	}
	add("calls", 50, true)
	return all
}

const (
	settles = 3 * time.Second
	// undisturbed is at least this, and some windows.
	undisturbed = 10 * time.Second
	looks       = 2 * time.Second
)

// play measures the rows undisturbed, and then harms them until each has had enough windows in full
// use.
func (w *world) play(ctx context.Context, bin string, o options, each int) (_ []result, err error) {
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		return nil, err
	}
	ctx, w.fail = context.WithCancelCause(ctx)
	defer w.fail(nil)
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(ctx, bin); err != nil {
		return nil, err
	}
	feeding, starve := context.WithCancel(ctx)
	var feeder sync.WaitGroup
	feeder.Go(func() { w.feed(feeding) })
	defer feeder.Wait()
	defer starve()
	results := make([]result, len(w.rows))
	if err := w.measure(ctx, results); err != nil {
		return nil, err
	}
	if _, err := w.witness.ask("PUT", "/harm"); err != nil {
		return nil, err
	}
	harmed, err := w.witness.now()
	if err != nil {
		return nil, err
	}
	hurting, heal := context.WithTimeout(ctx, o.most)
	defer heal()
	var hands sync.WaitGroup
	hands.Go(func() {
		defer heal()
		w.harm(w, hurting, o.seed)
	})
	for enough := false; !enough && pause(hurting, looks); {
		if enough, err = w.look(results, harmed, each); err != nil {
			return nil, err
		}
	}
	heal()
	hands.Wait()
	if _, err := w.look(results, harmed, each); err != nil {
		return nil, err
	}
	return results, context.Cause(ctx)
}

// measure fills in what rows do undisturbed.
func (w *world) measure(ctx context.Context, results []result) error {
	if err := w.await(ctx); err != nil {
		return err
	}
	pause(ctx, settles)
	from, err := w.witness.now()
	if err != nil {
		return err
	}
	w.mu.Lock()
	clear(w.took)
	w.mu.Unlock()
	longest := undisturbed
	for _, r := range w.rows {
		longest = max(longest, 20*r.window)
	}
	pause(ctx, longest)
	w.mu.Lock()
	times := maps.Clone(w.took)
	w.mu.Unlock()
	for i, r := range w.rows {
		visits, err := w.witness.visits(r.name)
		if err != nil {
			return err
		}
		results[i] = result{row: r, perSecond: cycles(between(visits, from, from+longest), r.n)}
		if t := times[r.name]; t != nil {
			results[i].latency = t.sum / time.Duration(t.jobs)
		}
		if results[i].perSecond == 0 {
			return fmt.Errorf("%s: hardly a request came, undisturbed", r.name)
		}
	}
	return context.Cause(ctx)
}

// await waits until each bucket has an owner.
func (w *world) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, proctest.Patience,
		errors.New("no request comes in time"))
	defer cancel()
	for _, r := range w.rows {
		for came := false; !came; {
			visits, err := w.witness.visits(r.name)
			if err != nil {
				return err
			}
			if came = len(visits) > 0; !came && !pause(ctx, 100*time.Millisecond) {
				return fmt.Errorf("%s: %w", r.name, context.Cause(ctx))
			}
		}
	}
	return nil
}

// look judges all requests so far. It reports whether each row has had enough windows in full use
// since the harm began.
func (w *world) look(results []result, harmed time.Duration, each int) (enough bool, _ error) {
	enough = true
	for i := range results {
		r := &results[i]
		visits, err := w.witness.visits(r.name)
		if err != nil {
			return false, err
		}
		period := time.Duration(float64(r.n) / r.perSecond * float64(time.Second))
		r.requests, r.full = len(visits), inUse(visits, harmed, period, r.n)
		r.counted = counted(visits, r.window, r.n)
		r.anywhere = anywhere(visits, r.window, r.n)
		enough = enough && r.full >= each
	}
	return enough, nil
}
