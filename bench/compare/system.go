package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"time"

	"github.com/penstock-mq/penstock/internal/pgtest"
	"github.com/penstock-mq/penstock/internal/proctest"
)

const (
	// limit is the number of jobs that may start in a second over all workers.
	limit = 100
	// crew is the number of worker processes.
	crew = 4
	// slots is a worker's concurrency.
	slots = 10
	// bodyBytes is the size of a job's text without its number.
	bodyBytes = 100
)

// system is a job queue under test: its server and the operations measured. Workers are separate
// processes.
type system interface {
	name() string
	setting() string // of the limit
	version() string // known when it is open
	// first reports whether this is the first setting of the system: what does not depend on that
	// is measured once.
	first() bool

	open(ctx context.Context) error
	// add puts n jobs into the queue one at a time, 64 callers at once, or in bulk.
	add(ctx context.Context, n int, bulk bool) (took time.Duration, err error)
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	left(ctx context.Context) (int, error) // jobs that have not ended
	// unlimited has all calls from now on be about a queue whose starts nothing limits.
	unlimited()
	// work is the command of a worker that posts each job's number to a URL at the limit; without a
	// URL it does nothing with jobs, and knows no limit.
	work(url string) *exec.Cmd
	// victim returns which worker does most harm when it is killed.
	victim(ctx context.Context, crew []*proctest.Process) (*proctest.Process, error)
	servers(ctx context.Context) ([]int, error) // process ids
	close()
}

func systems(dir string) []system {
	all := []system{
		&penstock{dir: dir},
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

// start starts a worker, which says when it is ready.
func start(ctx context.Context, cmd *exec.Cmd) (*proctest.Process, error) {
	p, err := proctest.Open(cmd)
	if err != nil {
		return nil, err
	}
	go func() {
		for range p.Lines { // what nobody reads must not hold it up
		}
	}()
	if _, err := p.Ready(ctx); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// body is the text of a job.
func body(number int) []byte {
	return fmt.Appendf(nil, `{"number":%d,"text":"%0*d"}`, number, bodyBytes, 0)
}

func numberOf(body []byte) (int, error) {
	var job struct{ Number int }
	err := json.Unmarshal(body, &job)
	return job.Number, err
}

// until asks every 20 ms, at most for a time, and reports whether it was so.
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
