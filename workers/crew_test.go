package workers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// fleet is a group of drainers for the policy "api". Each can be cut off.
type fleet struct {
	b     *bench
	began time.Time
	ran   seen
	names int

	mu      sync.Mutex
	members map[int]*nats.Conn
	last    int
}

func newCrew(b *bench) *fleet {
	return &fleet{b: b, began: time.Now(), members: map[int]*nats.Conn{}}
}

func (c *fleet) join(n int) {
	for range n {
		c.names++
		me, nc := c.names, c.b.connect()
		c.mu.Lock()
		c.members[me] = nc
		c.mu.Unlock()
		d, err := New(nc, Options{Lease: time.Second, Grace: time.Second})
		if err != nil {
			c.b.t.Fatal(err)
		}
		d.Handle("api", func(ctx context.Context, job Job) error {
			c.mu.Lock()
			c.last = me
			c.mu.Unlock()
			return c.ran.handle(ctx, job)
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		c.b.t.Cleanup(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil && !nc.IsClosed() {
					c.b.t.Errorf("drainer %d: %v", me, err)
				}
			case <-time.After(deadline):
				c.b.t.Errorf("drainer %d did not stop", me)
			}
		})
	}
}

// cutOwner closes the connection of the drainer that started the last job, which then cannot hand
// over or acknowledge.
func (c *fleet) cutOwner() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[c.last].Close()
}

func (c *fleet) count() int { return len(c.ran.all()) }

func (c *fleet) starts() (starts []time.Duration) {
	for _, job := range c.ran.all() {
		starts = append(starts, job.Started.Sub(c.began))
	}
	return starts
}

func (c *fleet) allRan(jobs int) {
	c.b.t.Helper()
	times := map[string]int{}
	for _, job := range c.ran.all() {
		times[string(job.Body)]++
	}
	repeated := 0
	for _, body := range numbers(jobs) {
		switch {
		case times[body] == 0:
			c.b.t.Errorf("job %s never ran", body)
		case times[body] > 1:
			repeated++
		}
	}
	if repeated > jobs/20 {
		c.b.t.Errorf("%d of %d jobs ran more than once", repeated, jobs)
	}
	for _, key := range []queue.Key{"a", "b"} {
		var once []Job
		for _, job := range c.ran.all() {
			if job.Key == key && times[string(job.Body)] == 1 {
				once = append(once, job)
			}
		}
		if !slices.IsSortedFunc(once, func(a, b Job) int {
			return a.Accepted.Compare(b.Accepted)
		}) {
			c.b.t.Errorf("bucket %s: jobs that ran once ran out of order", key)
		}
	}
}

func newRestartableBench(t *testing.T, policies ...policy.Policy) *bench {
	t.Helper()
	b := &bench{t: t, restartable: &embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}}
	b.start()
	t.Cleanup(func() { b.server.Shutdown() })
	b.restartable.Listen = b.server.URL()[len("nats://"):]
	b.url = b.server.URL()
	b.setUp(policies...)
	return b
}

func (b *bench) start() {
	b.t.Helper()
	var err error
	if b.server, err = embedded.Start(*b.restartable); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) restart() {
	b.t.Helper()
	b.server.Shutdown()
	b.start()
}

func (b *bench) send(policy, key, body string, headers ...string) {
	b.t.Helper()
	m := nats.NewMsg("penstock.jobs." + policy + "." + key)
	m.Data = []byte(body)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	js, err := b.nc.JetStream(nats.MaxWait(deadline))
	if err == nil {
		_, err = js.PublishMsg(m)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
