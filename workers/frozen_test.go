//go:build unix

package workers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// actAsFreezer makes this test binary the process to freeze; its value is the server's URL and the
// lease.
const actAsFreezer = "PENSTOCK_TEST_FREEZER"

// TestAProcessFrozenBeforeTheFinalCheck freezes a real process (SIGSTOP) between the
// decision to start a job and the worker's last check. The start may be late, but must not outlast
// the lease.
func TestAProcessFrozenBeforeTheFinalCheck(t *testing.T) {
	if how := os.Getenv(actAsFreezer); how != "" {
		freezer(t, how)
		return
	}
	unpaced := policy.Policy{
		Name: "api",
		Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 5,
			Window: policy.Duration(time.Second)},
		Queue: &policy.Queue{Capacity: 100}, Partitions: 1,
	}
	paced := leaky("api", "1000/s")
	paced.Partitions = 1
	for name, c := range map[string]struct {
		policy  policy.Policy
		subject string
		lease   time.Duration
		passes  bool
	}{
		"for longer than its lease": {unpaced, "penstock.admitted.api.a", time.Second,
			false},
		"for a moment": {paced, "penstock.jobs.api.a", deadline, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRestartableBench(t, c.policy)
			b.pause(true)
			if _, err := b.nc.Request(c.subject, []byte("job"), deadline); err != nil {
				t.Fatal(err)
			}
			child := b.freezer(c.lease)
			child.expect("decided")
			child.signal(syscall.SIGSTOP)
			b.pause(false)
			var ran seen
			if !c.passes {
				b.drain(Options{}, map[string]Handler{"api": ran.handle})
				b.empty("api")
			}
			wait(t.Context(), 100*time.Millisecond)
			child.signal(syscall.SIGCONT)
			child.say("go on")
			child.expect(fmt.Sprintf("passed: %v", c.passes))
			b.empty("api")
		})
	}
}

// freezer drains until its input ends. It prints a line when it has decided to start a job, waits
// for a line of input, and prints whether the job passed its last check.
func freezer(t *testing.T, how string) {
	url, lease, _ := strings.Cut(how, " ")
	duration, err := time.ParseDuration(lease)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	tell := func(e queue.Event) {
		if e.Type == queue.EventStarted || e.Type == jet.EventReturned {
			fmt.Println("passed:", e.Type == queue.EventStarted)
		}
	}
	d, err := New(nc, Options{Lease: duration, Sink: queue.SinkFunc(tell)})
	if err != nil {
		t.Fatal(err)
	}
	d.Handle("api", func(context.Context, Job) error { return nil })
	var goOn func(now pace.Instant)
	goOn = func(now pace.Instant) {
		if !d.core.Open(now) { // expired on a busy machine, and soon renewed
			go d.post(goOn)
			return
		}
		resumed := maps.Clone(d.set)
		entry := *resumed["api"]
		entry.Paused, entry.Revision = false, entry.Revision+1
		resumed["api"] = &entry
		d.setPolicies(resumed, nil, now)
		d.core.Decide(now)
		d.core.Perform(freezing{performer{d.parts}, bufio.NewReader(os.Stdin)})
	}
	end := make(chan error)
	go func() { end <- d.Run(t.Context()) }()
	waittest.Until(t, "the job has come", func() bool {
		a, err := d.broker.AskValve(t.Context(), "api", 0,
			job.Question{Op: job.OpBucket, Key: "a"})
		return err == nil && a.Bucket != nil && a.Bucket.Waiting == 1
	})
	d.post(goOn)
	if err := <-end; err != nil {
		t.Error(err)
	}
}

type freezing struct {
	performer
	input *bufio.Reader
}

func (f freezing) Start(r valve.Run) {
	fmt.Println("decided")
	if _, err := f.input.ReadString('\n'); err != nil {
		panic(err)
	}
	go func() {
		_, err := io.Copy(io.Discard, f.input)
		panic(fmt.Sprint("the test is gone: ", err))
	}()
	f.performer.Start(r)
}

type child struct {
	b     *bench
	cmd   *exec.Cmd
	input io.WriteCloser
	lines chan string
}

func (b *bench) freezer(lease time.Duration) *child {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestAProcessFrozenBeforeTheFinalCheck$")
	c := &child{b: b, cmd: cmd, lines: make(chan string, 100)}
	c.cmd.Env = append(os.Environ(), actAsFreezer+"="+b.url+" "+lease.String())
	c.cmd.Stderr = os.Stderr
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	output, err := c.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(output); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	b.t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-read
		_ = c.cmd.Wait()
	})
	return c
}

func (c *child) expect(want string) {
	c.b.t.Helper()
	select {
	case got := <-c.lines:
		if got != want {
			c.b.t.Fatalf("the process says %q, want %q", got, want)
		}
	case <-time.After(deadline):
		c.b.t.Fatalf("waited in vain for %q", want)
	}
}

func (c *child) signal(s syscall.Signal) {
	c.b.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.b.t.Fatal(err)
	}
}

func (c *child) say(line string) {
	c.b.t.Helper()
	if _, err := fmt.Fprintln(c.input, line); err != nil {
		c.b.t.Fatal(err)
	}
}
