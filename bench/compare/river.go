package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/time/rate"

	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

// rivers is River. It has no limit shared by processes: each worker gets its part.
type rivers struct {
	dir string
	postgres
	client *river.Client[pgx.Tx]
	free   bool
}

// riverQueue is new each time: a dead worker's jobs stay for an hour.
func riverQueue(free bool) string {
	if free {
		return "free"
	}
	return river.QueueDefault
}

func (r *rivers) name() string    { return "River" }
func (r *rivers) version() string { return paper.Version("github.com/riverqueue/river") }
func (r *rivers) first() bool     { return true }
func (r *rivers) setting() string {
	return fmt.Sprintf("`rate.NewLimiter(%d, 1)` in each worker", limit/crew)
}

func (r *rivers) open(ctx context.Context) error {
	if err := r.postgres.open(ctx, r.dir); err != nil {
		return err
	}
	driver := riverpgxv5.New(r.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		r.client, err = river.NewClient(driver, &river.Config{})
	}
	return err
}

type numbered struct {
	Body string `json:"body"`
}

func (numbered) Kind() string { return "numbered" }

func (r *rivers) add(ctx context.Context, n int, bulk bool) (time.Duration, error) {
	to := &river.InsertOpts{Queue: riverQueue(r.free)}
	if !bulk {
		return side(ctx, n, func(number int) error {
			_, err := r.client.Insert(ctx, numbered{string(body(number))}, to)
			return err
		})
	}
	begin := time.Now()
	const each = 5000
	for from := 0; from < n; from += each {
		var jobs []river.InsertManyParams
		for i := from; i < min(from+each, n); i++ {
			jobs = append(jobs, river.InsertManyParams{
				Args: numbered{string(body(i))}, InsertOpts: to})
		}
		if _, err := r.client.InsertManyFast(ctx, jobs); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// pause writes what QueuePause does, which fails for an unused queue.
func (r *rivers) pause(ctx context.Context) error {
	_, err := r.pool.Exec(ctx, `
		INSERT INTO river_queue (name, paused_at, updated_at) VALUES ($1, now(), now())
		ON CONFLICT (name) DO UPDATE SET paused_at = now()`, riverQueue(r.free))
	return err
}

func (r *rivers) resume(ctx context.Context) error {
	return r.client.QueueResume(ctx, riverQueue(r.free), nil)
}

func (r *rivers) left(ctx context.Context) (n int, err error) {
	err = r.pool.QueryRow(ctx,
		`SELECT count(*) FROM river_job WHERE finalized_at IS NULL AND queue = $1`,
		riverQueue(r.free)).Scan(&n)
	return n, err
}

func (r *rivers) unlimited() { r.free = true }

func (r *rivers) work(url string) *exec.Cmd { return child(roleRiver, workSpec{r.At, url, slots}) }

func (r *rivers) victim(_ context.Context, crew []*proctest.Process) (*proctest.Process, error) {
	return crew[0], nil
}

// servers is empty: jobs are in files, and the server's memory is its cache.
func (r *rivers) servers(context.Context) ([]int, error) { return nil, nil }

type runner struct {
	river.WorkerDefaults[numbered]
	limiter *rate.Limiter
	url     string
}

func (r *runner) Work(ctx context.Context, job *river.Job[numbered]) error {
	if r.url == "" {
		return nil
	}
	if err := r.limiter.Wait(ctx); err != nil {
		return err
	}
	return post(ctx, r.url, []byte(job.Args.Body))
}

func workRiver(spec workSpec) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, spec.Server)
	if err != nil {
		return err
	}
	free, atOnce := spec.URL == "", slots
	if free {
		atOnce = 10 * slots
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &runner{limiter: rate.NewLimiter(limit/crew, 1), url: spec.URL})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{riverQueue(free): {MaxWorkers: atOnce}},
		Workers: workers, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}
