package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"
)

type keySet struct {
	title  string
	keys   int
	suffix string
	goal   bool
}

var keySets = []keySet{
	{title: "One key", keys: 1},
	{title: "100,000 keys", keys: 100_000, goal: true},
	{title: "100,000 keys of 36 bytes", keys: 100_000, suffix: "@region-4.customers.example",
		goal: true},
}

func (k keySet) names(seed uint64) []string {
	all := make([]string, k.keys)
	for i, n := range rand.New(rand.NewPCG(seed, 0)).Perm(k.keys) {
		all[i] = fmt.Sprintf("key-%05d", n) + k.suffix
	}
	return all
}

var coreCounts = []int{1, 2}

var heapKeys = []int{100_000, 1_000_000}

func (b *bench) memory(ctx context.Context) ([]table, error) {
	all := contestants()
	measured := make([][]timing, len(keySets))
	for i := range measured {
		measured[i] = make([]timing, len(all))
	}
	for round := range b.rounds {
		b.say("memory: round %d of %d", round+1, b.rounds)
		for i, set := range keySets {
			requests, first := set.names(1), set.names(2)
			for j, c := range all {
				if c.unkeyed && set.keys > 1 {
					continue
				}
				samples, err := b.timeOne(ctx, c, set.keys, first, requests)
				if err != nil {
					return nil, fmt.Errorf("%s, %s, %s: %w", c.name, c.algorithm, set.title, err)
				}
				for k, s := range samples {
					measured[i][j].cores[k] = append(measured[i][j].cores[k], s)
				}
			}
		}
	}
	var tables []table
	for i, set := range keySets {
		tables = append(tables, timeTable(set, all, measured[i]))
	}
	b.say("memory: bytes per key")
	held, err := heapPerKey(ctx, all)
	if err != nil {
		return nil, err
	}
	return append(tables, heapTable(all, held)), nil
}

func (b *bench) timeOne(ctx context.Context, c contestant, keys int, first, requests []string) (
	samples []sample, err error) {

	l, err := c.open(keys)
	if err != nil {
		return nil, err
	}
	if err = fill(ctx, l, first); err == nil {
		runtime.GC()
		for _, cores := range coreCounts {
			var s sample
			if s, err = timeDecisions(ctx, l, requests, cores, b.length); err != nil {
				break
			}
			samples = append(samples, s)
		}
	}
	if failed := l.close(); err == nil {
		err = failed
	}
	return samples, err
}

func fill(ctx context.Context, l openLimiter, names []string) error {
	for _, name := range names {
		if err := l.decide(ctx, strings.Clone(name)); err != nil {
			return err
		}
	}
	return nil
}

// decisions between two readings of the clock
const batch = 2000

func timeDecisions(ctx context.Context, l openLimiter, requests []string, cores int,
	length time.Duration) (
	sample, error) {

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	var (
		wait      sync.WaitGroup
		decisions = make([]int, cores)
		failed    = make([]error, cores)
	)
	before, start := mallocs(), time.Now()
	for core := range cores {
		wait.Go(func() {
			next := core * len(requests) / cores
			for going := true; going; going = time.Since(start) < length && ctx.Err() == nil {
				for range batch {
					if err := l.decide(ctx, requests[next]); err != nil {
						failed[core] = err
						return
					}
					if next++; next == len(requests) {
						next = 0
					}
				}
				decisions[core] += batch
			}
		})
	}
	wait.Wait()
	took, allocated := time.Since(start), mallocs()-before
	n := 0
	for core := range cores {
		if failed[core] != nil {
			return sample{}, failed[core]
		}
		n += decisions[core]
	}
	if err := ctx.Err(); err != nil {
		return sample{}, err
	}
	return sample{ns: float64(took) / float64(n), allocs: float64(allocated) / float64(n)}, nil
}

func heapPerKey(ctx context.Context, all []contestant) ([][]float64, error) {
	held := make([][]float64, len(all))
	for _, keys := range heapKeys {
		names := keySet{keys: keys}.names(1)
		bytes := 0
		for _, name := range names {
			bytes += len(name)
		}
		for i, c := range all {
			if c.unkeyed {
				continue
			}
			before := heap()
			l, err := c.open(keys)
			if err == nil {
				err = fill(ctx, l, names)
			}
			if err != nil {
				return nil, fmt.Errorf("%s, %s, %d keys: %w", c.name, c.algorithm, keys, err)
			}
			held[i] = append(held[i], float64(heap()-before-int64(bytes))/float64(keys))
			runtime.KeepAlive(l)
			if err := l.close(); err != nil {
				return nil, fmt.Errorf("close %s: %w", c.name, err)
			}
		}
	}
	return held, nil
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
