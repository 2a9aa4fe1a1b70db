package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// One line is logged when a policy's target goes down and one when it recovers, for any number of
// breakers.
func TestOutagesAreLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	var observed []int
	o := outages{
		loop: newLoop(slog.New(slog.NewTextHandler(&out, nil)),
			queue.SinkFunc(func(e queue.Event) { observed = append(observed, int(e.Value)) })),
		policies: map[string]*outage{},
	}
	now := pace.Instant(time.Hour)
	tell := func(buckets int) {
		now = now.Add(100 * ms)
		if b := (valve.Breakers{Buckets: buckets, All: buckets >= 3}); b != o.of("api").Breakers {
			o.changed("api", b, now)
		}
		o.look(now)
	}
	for range 10 {
		for buckets := 1; buckets < 20; buckets++ {
			p := o.of("api")
			p.key, p.err = queue.Key(fmt.Sprint(buckets)), "connection refused"
			tell(buckets)
		}
	}
	if text := out.String(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "level=WARN") ||
		!strings.Contains(text, `policy=api`) ||
		!strings.Contains(text, `error="connection refused"`) {
		t.Errorf("told:\n%s", text)
	}
	out.Reset()
	for range 2 * outagesEvery / (100 * ms) {
		tell(0)
	}
	if text := out.String(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "level=INFO") {
		t.Errorf("told:\n%s", text)
	}
	if n := len(observed); n == 0 || slices.Max(observed) < 2 || observed[n-1] != 0 {
		t.Errorf("observed %v", observed)
	}
}

func TestLaw6AnOutageOfTheTargetIsNotFailing(t *testing.T) {
	p := leaky("api", "200/s")
	p.Retry = policy.Retry{MaxAttempts: 3, Backoff: policy.Duration(50 * ms),
		MaxBackoff: policy.Duration(100 * ms)}
	b := newBench(t, p)
	var mu sync.Mutex
	told := map[string]int{}
	stop, err := b.broker.Events().Listen("api", ">", func(_ string, e queue.Event) {
		mu.Lock()
		defer mu.Unlock()
		told[e.Type]++
		if e.Type == queue.EventBreakerOpened &&
			(e.Error != "call: no route to host" || e.Job == "") {
			t.Errorf("told %+v", e)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	count := func(what string) int {
		mu.Lock()
		defer mu.Unlock()
		return told[what]
	}
	var open atomic.Int64
	var up atomic.Bool
	var ran seen
	b.drain(Options{Sink: on(jet.EventBreakers, func(e queue.Event) {
		open.Store(e.Value)
	})}, map[string]Handler{
		"api": func(ctx context.Context, job Job) error {
			if !up.Load() {
				return fmt.Errorf("call: %w", Unavailable(errors.New("no route to host")))
			}
			return ran.handle(ctx, job)
		}})
	const jobs = 60
	for k := range 6 {
		b.publish("api", fmt.Sprint("key-", k), k*10, 10)
	}
	b.until("a breaker is open and was probed", func() bool {
		return open.Load() > 0 && count(queue.EventFailed) > 20
	})
	up.Store(true)
	b.empty("api")
	if n := len(ran.all()); n != jobs {
		t.Errorf("%d jobs of %d ran", n, jobs)
	}
	b.until("all breakers are closed", func() bool {
		return open.Load() == 0 && count(queue.EventBreakerClosed) > 0
	})
	if count(queue.EventBreakerOpened) == 0 || count(queue.EventDead) > 0 {
		t.Errorf("told %v", told)
	}
}
