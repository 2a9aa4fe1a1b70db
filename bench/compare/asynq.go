package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

// async is asynq. It has no limit shared by processes: each worker gets its part.
type async struct {
	dir string
	store
	queue     *asynq.Client
	inspector *asynq.Inspector
}

const asynqQueue = "default"

func (a *async) name() string    { return "asynq" }
func (a *async) version() string { return paper.Version("github.com/hibiken/asynq") }
func (a *async) first() bool     { return true }
func (a *async) setting() string {
	return fmt.Sprintf("`rate.NewLimiter(%d, 1)` in each worker", limit/crew)
}

func (a *async) open(context.Context) error {
	if err := a.store.open(a.dir); err != nil {
		return err
	}
	at := asynq.RedisClientOpt{Addr: a.Addr()}
	a.queue, a.inspector = asynq.NewClient(at), asynq.NewInspector(at)
	return nil
}

func (a *async) add(ctx context.Context, n int, _ bool) (time.Duration, error) {
	return side(ctx, n, func(number int) error {
		_, err := a.queue.EnqueueContext(ctx, asynq.NewTask("job", body(number)))
		return err
	})
}

// side has 64 callers add jobs.
func side(ctx context.Context, n int, add func(number int) error) (time.Duration, error) {
	begin := time.Now()
	var next atomic.Int64
	g, _ := errgroup.WithContext(ctx)
	for range 64 {
		g.Go(func() error {
			for number := next.Add(1) - 1; number < int64(n); number = next.Add(1) - 1 {
				if err := add(int(number)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}

func (a *async) pause(context.Context) error {
	// A queue that was never used, or is already paused, cannot be paused.
	if _, err := a.queue.Enqueue(asynq.NewTask("job", body(0)), asynq.TaskID("first")); err != nil {
		return err
	}
	return errors.Join(a.inspector.DeleteTask(asynqQueue, "first"),
		a.inspector.PauseQueue(asynqQueue))
}

func (a *async) resume(context.Context) error { return a.inspector.UnpauseQueue(asynqQueue) }

func (a *async) left(context.Context) (int, error) {
	info, err := a.inspector.GetQueueInfo(asynqQueue)
	if err != nil {
		return 0, err
	}
	return info.Pending + info.Active + info.Scheduled + info.Retry, nil
}

func (a *async) work(url string) *exec.Cmd {
	return child(roleAsynq, workSpec{a.Addr(), url, slots})
}

func (a *async) victim(_ context.Context, crew []*proctest.Process) (*proctest.Process, error) {
	return crew[0], nil
}

func workAsynq(spec workSpec) error {
	limiter := rate.NewLimiter(limit/crew, 1)
	config := asynq.Config{Concurrency: 10 * slots, LogLevel: asynq.FatalLevel}
	handle := func(context.Context, *asynq.Task) error { return nil }
	if spec.URL != "" {
		config.Concurrency = slots
		handle = func(ctx context.Context, task *asynq.Task) error {
			if err := limiter.Wait(ctx); err != nil {
				return err
			}
			return post(ctx, spec.URL, task.Payload())
		}
	}
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: spec.Server}, config)
	if err := server.Start(asynq.HandlerFunc(handle)); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

func post(ctx context.Context, url string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// childCommand is followed by a role and its JSON.
const (
	childCommand = "child"
	roleAsynq    = "asynq"
	roleRiver    = "river"
	rolePenstock = "penstock"
)

type workSpec struct {
	Server, URL string
	Slots       int
}

func child(role string, spec workSpec) *exec.Cmd {
	text, _ := json.Marshal(spec)
	return exec.Command(os.Args[0], childCommand, role, string(text))
}

func runChild(role, spec string) error {
	var s workSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	slots = s.Slots
	switch role {
	case roleAsynq:
		return workAsynq(s)
	case roleRiver:
		return workRiver(s)
	default:
		return workPenstock(s)
	}
}
