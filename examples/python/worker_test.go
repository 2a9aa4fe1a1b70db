// Package python holds the test of worker.py, a worker written in Python: it runs as a process of
// its own, against a server with a port and a drainer that has no workers.
package python

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/brokertest"
	"github.com/penstock-mq/penstock/internal/proctest"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// script is what the worker runs for a job: it notes that it ran, and ends as the payload says.
const script = `
read -r payload
echo "$PENSTOCK_KEY $PENSTOCK_ATTEMPT $PENSTOCK_JOB $PENSTOCK_IDEMPOTENCY $payload" >> "$NOTES"
case $payload in
fail*) echo "it will not do" >&2; exit 1 ;;
permanent*) exit 65 ;;
down*) exit 69 ;;
throttled*) [ -e "$NOTES.throttled" ] || { touch "$NOTES.throttled"; exit 75; } ;;
slow*) sleep 2 ;;
esac
`

// installation is a server with a drainer that has no workers.
type installation struct {
	t      *testing.T
	nc     *nats.Conn
	broker *queue.Broker
	server *embedded.Server
	notes  string
}

func start(t *testing.T, p policy.Policy) *installation {
	t.Helper()
	server, nc := brokertest.Start(t, embedded.Options{Listen: "127.0.0.1:0"})
	i := &installation{t: t, nc: nc, server: server, notes: filepath.Join(t.TempDir(), "notes"),
		broker: brokertest.Open(t, nc, p)}
	drainer, err := workers.New(nc, workers.Options{OwnAll: true, Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- drainer.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("drainer: %v", err)
		}
	})
	return i
}

func (i *installation) publish(key, payload string) {
	i.t.Helper()
	if _, err := i.nc.Request("penstock.jobs.shell."+key, []byte(payload+"\n"),
		waittest.Patience()); err != nil {
		i.t.Fatal(err)
	}
}

// worker starts worker.py, which says all that it says in its log.
func (i *installation) worker(policy string, args ...string) *proctest.Process {
	i.t.Helper()
	args = append([]string{"worker.py", "--nats-url", i.server.URL(), "--policy", policy}, args...)
	cmd := exec.Command("python3", args...)
	cmd.Env = append(os.Environ(), "NOTES="+i.notes)
	return proctest.Start(i.t, cmd)
}

// work starts worker.py. stop ends it in order and waits for it.
func (i *installation) work() (stop func()) {
	i.t.Helper()
	worker := i.worker("shell", "--room", "3", "--", "sh", "-c", script)
	stop = sync.OnceFunc(func() {
		if err := worker.Stop(); err != nil || strings.Contains(worker.Log.String(), "Traceback") {
			i.t.Errorf("worker.py: %v\n%s", err, worker.Log)
		}
	})
	i.t.Cleanup(stop)
	return stop
}

func (i *installation) empty() {
	i.t.Helper()
	i.until("the queue is empty", func() bool {
		n, err := i.broker.Depth(i.t.Context(), "shell")
		return err == nil && n == 0
	})
}

func (i *installation) until(what string, done func() bool) {
	i.t.Helper()
	waittest.Until(i.t, what, done)
}

// ran returns the lines that the worker's command noted.
func (i *installation) ran() []string {
	i.t.Helper()
	data, err := os.ReadFile(i.notes)
	if err != nil && !os.IsNotExist(err) {
		i.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func shell() policy.Policy {
	return policy.Policy{
		Name: "shell",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow: algorithms.Rate{Count: 20, Per: time.Second}, Capacity: 100},
		Partitions: 2, Timeout: policy.Duration(time.Second),
		Retry: policy.Retry{MaxAttempts: 2, Backoff: policy.Duration(10 * time.Millisecond)},
	}
}

func TestWorker(t *testing.T) {
	i := start(t, shell())
	want := map[string]int{}
	for n := range 10 {
		i.publish("fine", fmt.Sprint("number ", n))
		want[fmt.Sprint("fine 1 number ", n)] = 1
	}
	for payload, attempts := range map[string][]int{
		"fail": {1, 2}, "permanent": {1}, "throttled": {1, 1},
		"slow, longer than the time-out": {1},
	} {
		key, _, _ := strings.Cut(payload, ",")
		i.publish(key, payload)
		for _, attempt := range attempts {
			want[fmt.Sprint(key, " ", attempt, " ", payload)]++
		}
	}
	i.work()
	i.empty()
	got := map[string]int{}
	for _, line := range i.ran() {
		words := strings.Fields(line)
		if len(words) < 5 || !strings.HasPrefix(words[2], "shell:") ||
			!strings.HasPrefix(words[3], "shell-") {
			t.Fatalf("the job's variables are missing: %q", line)
		}
		got[strings.Join(append(words[:2:2], words[4:]...), " ")]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("it ran %v, want %v", got, want)
	}
	js, err := i.nc.JetStream(nats.MaxWait(waittest.Patience()))
	if err != nil {
		t.Fatal(err)
	}
	for key, reason := range map[string]string{"fail": "attempts", "permanent": "permanent"} {
		m, err := js.GetLastMsg("PENSTOCK_DEAD_shell", "penstock.dead.shell."+key)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Header.Get("Penstock-Dead-Reason"); got != reason {
			t.Errorf("%s: dead letter %q, want %q", key, got, reason)
		}
		if text := m.Header.Get("Penstock-Dead-Error"); key == "fail" &&
			!strings.Contains(text, "it will not do") {
			t.Errorf("the dead letter says %q", text)
		}
	}
}

// TestAWorkerSaysThatItsTargetIsDown, and the drainer's breaker opens.
func TestAWorkerSaysThatItsTargetIsDown(t *testing.T) {
	i := start(t, shell())
	opened, err := i.nc.SubscribeSync("penstock.event.shell.down")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		i.publish("down", "down")
	}
	i.work()
	for {
		m, err := opened.NextMsg(waittest.Patience())
		if err != nil {
			t.Fatalf("no breaker opens: %v; it ran:\n%s", err, strings.Join(i.ran(), "\n"))
		}
		if strings.Contains(string(m.Data), `"type":"breaker_opened"`) {
			return
		}
	}
}

// TestWorkerStops ends a worker while it runs a job: it finishes the job, and another takes the
// rest.
func TestWorkerStops(t *testing.T) {
	i := start(t, shell())
	i.publish("a", "slow")
	stop := i.work()
	i.until("the job runs", func() bool { return len(i.ran()[0]) > 0 })
	stop()
	i.empty()
	i.publish("a", "second")
	stop = i.work()
	i.empty()
	stop()
	if got := i.ran(); len(got) != 2 || !strings.HasPrefix(got[0], "a 1 ") ||
		!strings.HasPrefix(got[1], "a 1 ") {
		t.Errorf("it ran %q", got)
	}
}

// TestAWorkerReportsThatNobodyOffers: a policy that nobody drains, and one whose target runs all
// of its jobs.
func TestAWorkerReportsThatNobodyOffers(t *testing.T) {
	p := shell()
	p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://127.0.0.1:1"}}
	i := start(t, p)
	for name, want := range map[string]string{"shell": "has a target",
		"shel": "no drainer owns it"} {
		worker := i.worker(name, "--", "true")
		says := func(what string) {
			t.Helper()
			i.until("it says "+what, func() bool {
				return strings.Contains(worker.Log.String(), what)
			})
		}
		says(want)
		if name == "shell" {
			if _, err := store.New(i.broker, nil).Put(t.Context(), shell().WithDefaults()); err !=
				nil {
				t.Fatal(err)
			}
			says("jobs can come now")
		}
	}
}
