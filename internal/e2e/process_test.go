//go:build unix

// Package e2e runs Penstock as users do: real processes over TCP, killed, frozen and restarted.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/httptarget"
)

// actAsDrainer is the environment variable that turns this test binary into a drainer process,
// whose handler records when the last check before it passed.
const actAsDrainer = "PENSTOCK_E2E_DRAINER"

// actAsCaller makes this test binary a process that begins a call and never ends it.
const actAsCaller = "PENSTOCK_E2E_CALLER"

func TestMain(m *testing.M) {
	if url := os.Getenv(actAsCaller); url != "" {
		fmt.Fprintln(os.Stderr, "caller:", call(url))
		os.Exit(1)
	}
	if url := os.Getenv(actAsDrainer); url != "" {
		if err := drain(url); err != nil {
			fmt.Fprintln(os.Stderr, "drainer:", err)
			os.Exit(1)
		}
		return
	}
	proctest.Main(m, "github.com/penstock-mq/penstock/cmd/admitter",
		"github.com/penstock-mq/penstock/cmd/drainer")
}

func call(url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	names, _ := jet.NewNames("")
	callers, err := permits.New(nc, names)
	if err != nil {
		return err
	}
	if _, err = callers.Acquire(context.Background(),
		permits.Request{Policy: "one", Key: "killed"}); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

func drain(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.PingInterval(2*time.Second))
	if err != nil {
		return err
	}
	defer nc.Close()
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	d, err := workers.New(nc, workers.Options{Lease: lease, Ready: func() { say("ready") },
		Target: httptarget.New(httptarget.Options{})})
	if err != nil {
		return err
	}
	// the same instant, by Go's clock and by the clock that all processes share
	began, zero := time.Now(), monotonic()
	d.Handle("api", func(ctx context.Context, job workers.Job) error {
		say("start %d %s %d %s", zero+job.Started.Sub(began), job.ID, job.Attempt, job.Key)
		took, err := time.ParseDuration(string(job.Body))
		if err != nil {
			return workers.Permanent(err)
		}
		timer := time.NewTimer(took)
		defer timer.Stop()
		select {
		case <-timer.C:
			say("end %d %s %d %s", monotonic(), job.ID, job.Attempt, job.Key)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	err = d.Run(ctx)
	if flushErr := nc.FlushTimeout(time.Second); err == nil && flushErr != nil &&
		!errors.Is(flushErr, nats.ErrReconnectBufExceeded) {
		err = flushErr
	}
	return err
}

func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

const lease = 5 * time.Second

type start struct {
	at      time.Duration
	job     string
	key     string
	seq     uint64
	attempt int
	by      *process
}

type record struct {
	mu     sync.Mutex
	starts []start
	ends   map[string]int
}

func newRecord() *record { return &record{ends: map[string]int{}} }

func (r *record) take(p *process, line string) {
	var kind, job, key string
	var at int64
	var attempt int
	if n, err := fmt.Sscan(line, &kind, &at, &job, &attempt, &key); n != 5 || err != nil {
		return
	}
	seq, err := strconv.ParseUint(job[strings.IndexByte(job, ':')+1:], 10, 64)
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if kind == "start" {
		r.starts = append(r.starts, start{time.Duration(at), job, key, seq, attempt, p})
	} else {
		r.ends[job]++
	}
}

func (r *record) started() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.starts)
}

func (r *record) ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ends)
}

func (r *record) lastBy() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.starts) == 0 {
		return nil
	}
	return r.starts[len(r.starts)-1].by
}

type process struct {
	*proctest.Process
	name string
}

func spawn(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{proctest.Start(t, cmd), name}
	if _, err := p.Ready(t.Context()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

func spawnAdmitter(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return spawn(t, name, exec.Command(proctest.Program("admitter"), args...))
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Errorf("%s: %v", p.name, err)
	}
}

type cluster struct {
	t       *testing.T
	dir     string
	http    string
	nats    string
	record  *record
	started int
}

func newCluster(t *testing.T, policies string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), http: proctest.FreeAddress(t),
		nats: proctest.FreeAddress(t), record: newRecord()}
	config := fmt.Sprintf(
		"http: {listen: %q}\nnats: {embedded: {dir: %q, listen: %q}}\ndrain: {lease: %s}\n"+
			"policies:\n%s",
		c.http, filepath.Join(c.dir, "nats"), c.nats, lease, policies)
	if err := os.WriteFile(c.config(), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) config() string { return filepath.Join(c.dir, "config.yaml") }
func (c *cluster) url() string    { return "nats://" + c.nats }

func (c *cluster) admitter() *process {
	c.t.Helper()
	return spawnAdmitter(c.t, "admitter", "--config", c.config())
}

func (c *cluster) drainer() *process {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), actAsDrainer+"="+c.url())
	c.started++
	d := spawn(c.t, fmt.Sprintf("drainer %d", c.started), cmd)
	go func() {
		for line := range d.Lines {
			c.record.take(d, line)
		}
	}()
	return d
}

func (c *cluster) connect() *nats.Conn {
	c.t.Helper()
	nc, err := nats.Connect(c.url(), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	return nc
}

// publish sends n jobs that each run for the given time to a bucket of policy "api", by plain NATS,
// and returns the number of accepted ones.
func (c *cluster) publish(nc *nats.Conn, key string, n int, takes time.Duration) (accepted int) {
	c.t.Helper()
	return c.publishTo(nc, slices.Repeat([]string{key}, n), takes)
}

func (c *cluster) publishTo(nc *nats.Conn, keys []string, takes time.Duration) (accepted int) {
	c.t.Helper()
	js, err := nc.JetStream(nats.MaxWait(waittest.Patience()))
	if err != nil {
		c.t.Fatal(err)
	}
	var futures []nats.PubAckFuture
	for _, key := range keys {
		f, err := js.PublishAsync("penstock.jobs.api."+key, []byte(takes.String()),
			nats.StallWait(waittest.Patience()))
		if err != nil {
			c.t.Fatal(err)
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		select {
		case <-f.Ok():
			accepted++
		case err := <-f.Err():
			if !strings.Contains(err.Error(), "maximum messages per subject exceeded") {
				c.t.Fatalf("publish: %v", err)
			}
		case <-time.After(waittest.Patience()):
			c.t.Fatal("a publish was not answered")
		}
	}
	return accepted
}

func (c *cluster) until(what string, done func() bool) {
	c.t.Helper()
	waittest.Until(c.t, what, done)
}

// ended waits for this many ended jobs, and fails only without progress, because the speed depends
// on the machine.
func (c *cluster) ended(jobs int) {
	c.t.Helper()
	for n := 0; n < jobs; {
		before := n
		c.until("more jobs end", func() bool {
			n = c.record.ended()
			return n > before
		})
	}
}

// after waits as part of a test's script, not for a condition.
func after(d time.Duration) { <-time.After(d) }
