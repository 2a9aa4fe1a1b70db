package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

const (
	// of a request, while a worker is killed
	takes = 100 * time.Millisecond
	// the kill, after the first start
	doomed = 3 * time.Second
	// patience for the killed worker's jobs
	comeBack = 3 * time.Minute
)

type result struct {
	name, setting, version string
	first                  bool

	paced  []arrival
	killed []arrival
	jobs   int
	back   bool

	one, bulk, free float64 // jobs per second: added one at a time, added in bulk, drained
	memory          float64 // bytes per waiting job, of all processes
	onDisk          bool
}

func measure(ctx context.Context, s system, o options) (r result, err error) {
	say("%s, %s", s.name(), s.setting())
	defer s.close()
	if err := s.open(ctx); err != nil {
		return r, err
	}
	r = result{name: s.name(), setting: s.setting(), version: s.version(), first: s.first(),
		jobs: o.jobs / 2}
	t, err := newTarget()
	if err != nil {
		return r, err
	}
	defer t.close()
	if r.paced, _, err = paced(ctx, s, t, o.jobs, false); err != nil {
		return r, err
	}
	if r.killed, r.back, err = paced(ctx, s, t, r.jobs, true); err != nil || !r.first {
		return r, err
	}
	return r, r.load(ctx, s, o.many)
}

func hire(ctx context.Context, s system, url string) (all []*proctest.Process, err error) {
	for range crew {
		p, err := start(ctx, s.work(url))
		if err != nil {
			dismiss(all)
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func dismiss(all []*proctest.Process) {
	for _, p := range all {
		p.Kill()
	}
}

// paced drains a backlog at the limit, and kills a worker on the way if kill is set.
func paced(ctx context.Context, s system, t *target, jobs int,
	kill bool) (_ []arrival, ended bool, err error) {
	t.begin(0)
	if kill {
		t.begin(takes)
	}
	if err := s.pause(ctx); err != nil {
		return nil, false, err
	}
	all, err := hire(ctx, s, t.url)
	if err != nil {
		return nil, false, err
	}
	defer dismiss(all)
	if _, err := s.add(ctx, jobs, false); err != nil {
		return nil, false, err
	}
	if err := s.resume(ctx); err != nil {
		return nil, false, err
	}
	if kill {
		if _, err := until(ctx, time.Minute, func() (bool, error) {
			return len(t.arrived()) > 0 && time.Since(t.began)-t.arrived()[0].at > doomed, nil
		}); err != nil {
			return nil, false, err
		}
		victim, err := s.victim(ctx, all)
		if err != nil {
			return nil, false, err
		}
		victim.Kill()
	}
	ended, err = until(ctx, time.Duration(jobs/limit)*time.Second+comeBack, func() (bool, error) {
		left, err := s.left(ctx)
		return left == 0, err
	})
	return t.arrived(), ended, err
}

func (r *result) load(ctx context.Context, s system, many int) error {
	s.unlimited()
	if err := s.pause(ctx); err != nil {
		return err
	}
	all, err := hire(ctx, s, "")
	if err != nil {
		return err
	}
	defer dismiss(all)
	everybody, err := s.servers(ctx)
	if err != nil {
		return err
	}
	r.onDisk = len(everybody) == 0
	for _, p := range all {
		everybody = append(everybody, p.Cmd.Process.Pid)
	}
	before := resident(everybody)
	alone := many / 10
	took, err := s.add(ctx, alone, false)
	if err != nil {
		return err
	}
	r.one = float64(alone) / took.Seconds()
	if took, err = s.add(ctx, many-alone, true); err != nil {
		return err
	}
	r.bulk = float64(many-alone) / took.Seconds()
	for pid, now := range resident(everybody) { // processes that returned memory do not count
		r.memory += float64(max(0, now-before[pid])) / float64(many)
	}
	begin := time.Now()
	if err := s.resume(ctx); err != nil {
		return err
	}
	ok, err := until(ctx, 10*time.Minute, func() (bool, error) {
		left, err := s.left(ctx)
		return left == 0, err
	})
	if err == nil && !ok {
		err = fmt.Errorf("%d jobs do not end", many)
	}
	r.free = float64(many) / time.Since(begin).Seconds()
	return err
}

func resident(pids []int) map[int]int64 {
	bytes := map[int]int64{}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 {
			continue
		}
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		bytes[pid] = pages * int64(os.Getpagesize())
	}
	return bytes
}
