package schedules_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// crons has the jobs of cron patterns, by the times after theirs.
type crons struct {
	mu   sync.Mutex
	jobs map[string]int
}

func (c *crons) run(_ context.Context, j workers.Job) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs == nil {
		c.jobs = map[string]int{}
	}
	c.jobs[j.IdempotencyKey[strings.LastIndex(j.IdempotencyKey, " ")+1:]]++
	return nil
}

func (c *crons) times() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.jobs))
}

// check fails unless each second from the first to the last one has one job. If the server was away
// for longer than times are made up for, seconds may lack theirs.
func (c *crons) check(t *testing.T, away time.Duration) {
	t.Helper()
	times := c.times()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, one := range times {
		at, err := time.Parse(time.RFC3339, one)
		if err != nil {
			t.Fatal(err)
		}
		if n := c.jobs[one]; n != 1 {
			t.Errorf("%d jobs of %s", n, one)
		}
		next := at.Add(time.Second).UTC().Format(time.RFC3339)
		if i+1 < len(times) && away < 8*time.Second && next != times[i+1] {
			t.Errorf("after %s comes %s", one, times[i+1])
		}
	}
}

func setCron(t *testing.T, p *penstock.Penstock, when string, header ...string) {
	t.Helper()
	if status, body := ask(t, p, "POST", "/v1/schedules/report/acme", "tick",
		append(header, "Penstock-Schedule", when)...); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
}

func TestEachTimeOfACronPatternBecomesOneJob(t *testing.T) {
	ran := &crons{}
	o := penstock.Options{Policies: []policy.Policy{paced("report", 100, 1000)},
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}}
	begin := func() (first *penstock.Penstock) {
		first = open(t, o)
		first.Handle("report", ran.run)
		run(t, first)
		for range 2 {
			run(t, open(t, penstock.Options{URL: first.NATSURL(), AdmitOnly: true}))
		}
		return first
	}
	p := begin()
	setCron(t, p, "* * * * * *")
	eventually(t, "three times come", func() bool { return len(ran.times()) >= 3 })
	ran.check(t, 0)
	var away time.Duration
	for range 2 {
		closed := time.Now()
		p.Close()
		p = begin()
		before := len(ran.times())
		away = max(away, time.Since(closed))
		eventually(t, "times come again", func() bool { return len(ran.times()) >= before+3 })
		ran.check(t, away)
	}
	setCron(t, p, "0 0 0 1 1 *")
	eventually(t, "the timer is the new pattern's", func() bool {
		return strings.HasSuffix(timer(t, p), "-01-01T00:00:00Z")
	})
}

// timer returns the instant of the only timer.
func timer(t *testing.T, p *penstock.Penstock) string {
	t.Helper()
	stream, _ := scheduleStream(t, p)
	m, err := stream.GetLastMsgForSubject(t.Context(), "penstock.schedule.next.report.default.acme")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(m.Header.Get("Nats-Schedule"), "@at ")
}

func publishSchedule(t *testing.T, p *penstock.Penstock, kind string, header ...string) {
	t.Helper()
	nc, err := p.Connect("a former version")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	m := nats.NewMsg("penstock.schedule." + kind + ".report.default.acme")
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	m.Data = []byte("tick")
	eventually(t, "the stream is there", func() bool {
		_, err = js.PublishMsg(t.Context(), m)
		return err == nil
	})
}

const dueSubject = "penstock.schedule.due.report.default.acme"

func TestAnOutageOfACronPatternsTimesIsOneJob(t *testing.T) {
	ran := &crons{}
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("report", 100, 100)}})
	p.Handle("report", ran.run)
	run(t, p)
	setCron(t, p, "0 0 * * * *")
	hour := time.Now().UTC().Truncate(time.Hour)
	publishSchedule(t, p, "next", "Nats-Schedule", "@at "+hour.Add(-4*time.Hour).
		Format(time.RFC3339), "Nats-Schedule-Target", dueSubject,
		"Penstock-Schedule-After", hour.Add(-5*time.Hour).Format(time.RFC3339))
	eventually(t, "the next time is in the future", func() bool {
		at, err := time.Parse(time.RFC3339, timer(t, p))
		return err == nil && at.After(time.Now())
	})
	want := hour.Add(-3 * time.Hour).Format(time.RFC3339)
	eventually(t, "one job is made up for", func() bool {
		return slices.Equal(ran.times(), []string{want})
	})
}

// A timer that was set by other rules of a zone, or for a pattern that was replaced.
func TestATimerOfAnotherTimeMakesNoJob(t *testing.T) {
	ran := &crons{}
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("report", 100, 100)}})
	p.Handle("report", ran.run)
	run(t, p)
	setCron(t, p, "0 9 1 * *", "Penstock-Schedule-Zone", "America/Santiago")
	want := timer(t, p)
	now := time.Now().UTC()
	publishSchedule(t, p, "next", "Nats-Schedule", "@at "+now.Format(time.RFC3339),
		"Nats-Schedule-Target", dueSubject, "Penstock-Schedule-After", now.Format(time.RFC3339))
	eventually(t, "the timer is right again", func() bool { return timer(t, p) == want })
	if got := ran.times(); got != nil {
		t.Errorf("jobs of %v", got)
	}
}

func TestAPausedOrRemovedCronScheduleHasNoTimer(t *testing.T) {
	ran := &crons{}
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("report", 100, 100)}})
	p.Handle("report", ran.run)
	run(t, p)
	do := func(method, query string, want int) {
		t.Helper()
		if status, body := ask(t, p, method, "/v1/schedules/report/acme"+query,
			""); status != want {
			t.Fatalf("%s: %d %s", method, status, body)
		}
	}
	setCron(t, p, "0 9 1 * *")
	want := timer(t, p)
	do("PATCH", "?paused=1", 200)
	if got := timer(t, p); got != "" {
		t.Errorf("paused: %s", got)
	}
	past := time.Now().UTC().AddDate(0, -2, 0).Format(time.RFC3339)
	publishSchedule(t, p, "due", "Penstock-Schedule-After", past)
	stream, _ := scheduleStream(t, p)
	gone := func() bool {
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(dueSubject))
		return err == nil && len(info.State.Subjects) == 0
	}
	eventually(t, "a tick of the paused one is dropped", gone)
	do("PATCH", "?paused=0", 200)
	if got := timer(t, p); got != want {
		t.Errorf("resumed: %s, want %s", got, want)
	}
	do("DELETE", "", 204)
	if got := timer(t, p); got != "" {
		t.Errorf("removed: %s", got)
	}
	publishSchedule(t, p, "due", "Penstock-Schedule-After", past)
	setCron(t, p, "@every 1h")
	eventually(t, "a tick of the replaced one is dropped", gone)
	if got := ran.times(); got != nil {
		t.Errorf("jobs of %v", got)
	}
}
