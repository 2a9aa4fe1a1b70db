//go:build unix

// Command chaos runs three NATS servers configured by deploy/nats.conf, two admitters, three
// drainers, a target that fails, and clients of every kind. A seeded nemesis kills, freezes, stops
// and restarts them, slows and cuts links, rolls the cluster and fills disks. Then a judge checks
// the laws of DESIGN.md by the clients' answers, the target's requests, dead letters and the
// drainers' starts. Status 1: a law was broken; 2: the run could not be judged.
//
//	chaos -bin bin -for 3m -seed 7
//
// The seed determines the nemesis's choices, not their effects.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/wiretest"
)

const (
	// drainPatience is two leases, the slowest bucket, and a margin.
	drainPatience = 2 * time.Minute
	// without the servers' small disks
	mostDisk = 2 << 30
)

func main() {
	// Small disks need a private namespace.
	status, ran, disks := ownNamespace()
	if !ran {
		status = chaos(disks)
	}
	os.Exit(status)
}

func chaos(disks bool) (status int) {
	seed := flag.Uint64("seed", rand.Uint64N(1_000_000), "what the nemesis draws from")
	long := flag.Duration("for", 3*time.Minute, "how long the nemesis rages")
	bin := flag.String("bin", "bin", "`directory` of admitter, drainer and nats-server")
	deploy := flag.String("deploy", "deploy", "`directory` of nats.conf")
	lease := flag.Duration("lease", 15*time.Second, "of the drainers")
	syncs := flag.String("sync", "10s",
		"`interval` at which the servers sync their files, or always")
	only := flag.String("only", "",
		"the `kinds` of faults to play, a regular expression; empty: all")
	policies := flag.Int("policies", 6, "how many; those beyond six have few jobs")
	flag.Parse()
	kinds, err := regexp.Compile("^(" + *only + ")")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	dir, err := os.MkdirTemp("", "penstock-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	w := &world{
		seed:    *seed,
		bin:     *bin,
		dir:     dir,
		disks:   disks,
		began:   time.Now(),
		epochs:  map[string]epoch{},
		wires:   map[string][]*wiretest.Link{},
		history: &history{rules: rules(*policies), lease: *lease},
	}
	fmt.Printf("seed %d, for %v; again with SEED=%d CHAOS=%v\n", *seed, *long, *seed, *long)
	if !disks {
		fmt.Println("no disk can be mounted here: none is filled")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err = w.play(ctx, *deploy, *syncs, *long, kinds)
	w.end()
	if err == nil {
		err = w.readLogs()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\nlogs: %s\n", err, w.logs)
		return 2
	}
	v := judge(w.history)
	told := report(w.history, v, alwaysBusy) + complaints(v)
	fmt.Print("\n", told)
	if len(v.violations) > 0 {
		_ = os.WriteFile(filepath.Join(w.logs, "report.txt"), []byte(told), 0o600)
		for _, server := range w.servers { // their disks go with this process
			store := os.DirFS(filepath.Join(dir, server.name))
			_ = os.CopyFS(filepath.Join(w.logs, "store", server.name), store)
		}
		fmt.Printf("FAILED with seed %d; logs: %s\n", *seed, w.logs)
		return 1
	}
	if err := os.RemoveAll(dir); err != nil && !disks { // mounts go with this process
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Printf("all laws held, seed %d\n", *seed)
	return 0
}

// play lets clients publish while the nemesis does harm; then faults are undone and queues drain.
func (w *world) play(ctx context.Context, deploy, syncs string, long time.Duration,
	kinds *regexp.Regexp) error {
	if err := w.prepare(deploy, syncs); err != nil {
		return err
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	c, err := newClients(w)
	if err != nil {
		return err
	}
	defer c.nc.Close()
	w.say("all processes run")
	watching, unwatch := context.WithCancel(ctx)
	publishing, silence := context.WithCancel(ctx)
	raging, appease := context.WithTimeoutCause(ctx, long, errors.New("the time is over"))
	defer appease()
	var rest, traffic sync.WaitGroup
	rest.Go(func() { c.watch(watching) })
	rest.Go(func() { w.bound(watching, appease) })
	rest.Go(func() { w.keepCopies(watching) })
	traffic.Go(func() { c.publish(publishing) })
	traffic.Go(func() { c.call(publishing) })
	newNemesis(w, kinds).rage(raging)
	w.say("the nemesis rests; everything runs")
	pause(ctx, 5*time.Second)
	silence()
	traffic.Wait()
	draining, drained := context.WithTimeout(ctx, drainPatience)
	w.history.left = c.drained(draining)
	drained()
	w.say("drained, but for %v", w.history.left)
	unwatch()
	rest.Wait()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	reading, read := context.WithTimeout(ctx, time.Minute)
	defer read()
	if err := c.letters(reading); err != nil {
		return err
	}
	for _, p := range append(w.drainers[:drainers:drainers], w.admitters...) {
		if err := p.stop(); err != nil {
			return err
		}
	}
	return nil
}

// bound ends the harm when too much was written.
func (w *world) bound(ctx context.Context, enough func()) {
	for pause(ctx, 5*time.Second) {
		var size int64
		names, _ := filepath.Glob(filepath.Join(w.logs, "*"))
		for _, name := range names {
			if info, err := os.Stat(name); err == nil {
				size += info.Size()
			}
		}
		if size > mostDisk {
			w.say("the logs have %d bytes: enough", size)
			enough()
			return
		}
	}
}
