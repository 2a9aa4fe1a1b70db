package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/pgtest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

const (
	// starts in a second over all workers
	limit     = 100
	crew      = 4
	bodyBytes = 100
)

// slots is how many jobs a worker process may run at once.
var slots = 10

// system is a job queue with the operations measured. Workers are separate processes.
type system interface {
	name() string
	setting() string
	version() string
	// first reports whether this is the system's first setting: the others repeat less.
	first() bool

	open(ctx context.Context) error
	// add adds n jobs one at a time, by 64 callers, or in bulk.
	add(ctx context.Context, n int, bulk bool) (took time.Duration, err error)
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	left(ctx context.Context) (int, error)
	// unlimited makes later calls use a queue without a limit.
	unlimited()
	// work returns the command of a worker that posts jobs' numbers to a URL at the limit, or
	// without one runs empty jobs without a limit.
	work(url string) *exec.Cmd
	// victim returns the worker whose crash does most harm.
	victim(ctx context.Context, crew []*proctest.Process) (*proctest.Process, error)
	servers(ctx context.Context) ([]int, error)
	close()
}

func systems(dir string) []system {
	all := []system{
		&penstock{dir: dir, rule: fmt.Sprintf("outflow: %d/s", limit)},
		&bull{dir: dir, max: limit, duration: 1000},
		&bull{dir: dir, max: 1, duration: 1000 / limit},
		&async{dir: dir},
	}
	if _, found := pgtest.Programs(); found {
		return append(all, &rivers{dir: dir})
	}
	say("River is left out, for want of PostgreSQL")
	return all
}

func start(ctx context.Context, cmd *exec.Cmd) (*proctest.Process, error) {
	p, err := proctest.Open(cmd)
	if err != nil {
		return nil, err
	}
	go func() {
		for range p.Lines {
		}
	}()
	if _, err := p.Ready(ctx); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func body(number int) []byte {
	return fmt.Appendf(nil, `{"number":%d,"text":"%0*d"}`, number, bodyBytes, 0)
}

func numberOf(body []byte) (int, error) {
	var job struct{ Number int }
	err := json.Unmarshal(body, &job)
	return job.Number, err
}

func until(ctx context.Context, most time.Duration, done func() (bool, error)) (bool, error) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(most); time.Now().Before(end); {
		if ok, err := done(); ok || err != nil {
			return ok, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}
