package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

type arrivals struct {
	*httptest.Server
	mu   sync.Mutex
	at   []time.Time
	jobs map[string]int
}

func target(t *testing.T) *arrivals {
	t.Helper()
	a := &arrivals{jobs: map[string]int{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.at = append(a.at, time.Now())
		a.jobs[r.Header.Get("Penstock-Job")]++
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

func (p *process) logs(n int, text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("the log does not say %d times: %s", n, text), func() bool {
		return strings.Count(p.Log.String(), text) >= n
	})
}

// SIGHUP once killed the process, and its buckets paused until the lease had expired.
func TestSIGHUPReadsTheConfigurationAgain(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		name := "an admitter that drains"
		if apart {
			name = "a drainer"
		}
		t.Run(name, func(t *testing.T) {
			const jobs, longest = 300, 50 * time.Second
			a := target(t)
			text := func(level, outflow, more string) string {
				return fmt.Sprintf("log: {level: %s}\ndrain: {lease: 60s}\ngrace: 30s\npolicies:\n"+
					"  - {name: stripe, algorithm: leaking_bucket, outflow: %s, capacity: %d, "+
					"target: {http: {url: %q}}}\n%s",
					level, outflow, jobs, a.URL, more)
			}
			file := configure(t, text("info", "50/s", ""))
			args := []string{"--config", file}
			if !apart {
				args = append(args, "--drain")
			}
			p := launch(t, args...).ready()
			reloaded, reloadedFile := p, file
			if apart {
				reloadedFile = configure(t, text("info", "50/s", ""))
				reloaded = launchProgram(t, "drainer", "--config", reloadedFile, "--nats-url",
					p.nats, "--http-listen", "").
					ready()
			}
			for range jobs {
				if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
					t.Fatalf("%d %s", status, body)
				}
			}
			eventually(t, "no job starts", func() bool { return a.count() > 0 })

			rewrite(t, reloadedFile,
				text("debug", "60/s",
					"  - {name: new, algorithm: token_bucket, capacity: 2, refill: 1/s}\n"))
			reloaded.Signal(syscall.SIGHUP)
			reloaded.logs(1, "configuration reloaded")
			rewrite(t, reloadedFile, text("verbose", "60/x", ""))
			reloaded.Signal(syscall.SIGHUP)
			reloaded.logs(2, "level=ERROR")
			rewrite(t, reloadedFile,
				strings.Replace(text("info", "60/s", ""), "grace: 30s", "grace: 40s", 1))
			reloaded.Signal(syscall.SIGHUP)
			reloaded.logs(1, "require a restart")

			eventually(t, "some jobs do not start", func() bool { return a.count() >= jobs })
			for _, want := range []string{"log.level", "policies[0].outflow", reloadedFile + ":",
				"settings=grace"} {
				if !strings.Contains(reloaded.Log.String(), want) {
					t.Errorf("the log does not say %q", want)
				}
			}
			if !apart {
				for _, want := range []string{"outflow 50/s → 60/s", "policy=new",
					"policy left the file, and belongs to the API"} {
					if !strings.Contains(p.Log.String(), want) {
						t.Errorf("the log does not say %q", want)
					}
				}
				p.posts("/v1/check/new/acme", "", 200)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			for i, at := range a.at[1:] {
				if gap := at.Sub(a.at[i]); gap > longest {
					t.Errorf("nothing started for %s", gap)
				}
			}
			if len(a.jobs) != jobs || len(a.at) != jobs {
				t.Errorf("%d jobs arrived %d times, want each of %d once", len(a.jobs), len(a.at),
					jobs)
			}
			reloaded.stop()
		})
	}
}

func TestSIGHUPChangesADrainersPolicies(t *testing.T) {
	a := target(t)
	text := func(drained string) string {
		return fmt.Sprintf(
			"drain: {lease: 2s, policies: [%s]}\npolicies:\n  - {name: stripe, algorithm: "+
				"leaking_bucket, "+
				"outflow: 10/s, capacity: 5, partitions: 2, target: {http: {url: %q}}}\n", drained,
			a.URL)
	}
	file := configure(t, text("none"))
	p := launch(t, "--drain", "--config", file).ready()
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	reload := func(drained string) {
		t.Helper()
		rewrite(t, file, text(drained))
		p.Signal(syscall.SIGHUP)
	}
	reload("stripe")
	p.says(`penstock_partitions_owned{policy="stripe"} 2`)
	eventually(t, "the job does not start", func() bool { return a.count() == 1 })
	reload("none")
	eventually(t, "it keeps partitions that it may not own", func() bool {
		_, metrics := p.get("/metrics")
		return !strings.Contains(metrics, "penstock_partitions_owned{policy=\"stripe\"}")
	})
	reload("stripe")
	p.says(`penstock_partitions_owned{policy="stripe"} 2`)
	if strings.Contains(p.Log.String(), "require a restart") {
		t.Error("a restart is asked for")
	}
	p.stop()
}

func TestSIGHUPWithoutAFileChangesNothing(t *testing.T) {
	dir := t.TempDir()
	p := launch(t, "--http-listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--nats-dir",
		dir).ready()
	p.Signal(syscall.SIGHUP)
	p.logs(1, "no configuration file to reload")
	if status, body := p.get("/readyz"); status != 200 {
		t.Errorf("readyz: %d %s", status, body)
	}
	p.stop()
}

func TestSIGHUPWithBadPoliciesChangesNothing(t *testing.T) {
	file := configure(t, policies)
	p := launch(t, "--config", file).ready()
	rewrite(t, file,
		strings.NewReplacer("outflow: 1/m, capacity: 3", "outflow: 1/m, capacity: 3, partitions: 2",
			"token_bucket, capacity: 2, refill: 1/h",
			"fixed_window, limit: 1, window: 1m").Replace(policies))
	p.Signal(syscall.SIGHUP)
	p.logs(2, "level=ERROR")
	for _, want := range []string{"policy stripe: partitions: cannot change",
		"policy door: algorithm: cannot change"} {
		if !strings.Contains(p.Log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	for range 2 {
		p.posts("/v1/check/door/acme", "", 200)
	}
	p.stop()
}

func stuck(t *testing.T, more string) (text string, started <-chan struct{}, release func()) {
	t.Helper()
	released, arrived := make(chan struct{}), make(chan struct{}, 10)
	release = sync.OnceFunc(func() { close(released) })
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { release(); server.Close() })
	return fmt.Sprintf(
		"drain: {lease: 2s}\n%spolicies:\n  - {name: stripe, algorithm: leaking_bucket, "+
			"outflow: 1/s, "+
			"capacity: 5, timeout: 10m, target: {http: {url: %q}}}\n", more,
		server.URL), arrived, release
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	for _, signals := range [][2]os.Signal{
		{syscall.SIGTERM, syscall.SIGTERM}, {syscall.SIGINT, syscall.SIGTERM},
		{syscall.SIGTERM, syscall.SIGINT},
	} {
		t.Run(fmt.Sprint(signals[0], signals[1]), func(t *testing.T) {
			text, started, _ := stuck(t, "grace: 1h\n")
			p := launch(t, "--drain", "--config", configure(t, text)).ready()
			if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
				t.Fatalf("%d %s", status, body)
			}
			<-started
			p.Signal(signals[0])
			p.Signal(signals[0]) // as from a program that signals process and group
			p.logs(1, "waiting for running jobs")
			eventually(t, "one counts as another, and the process ends", func() bool {
				p.Signal(signals[1])
				select {
				case <-p.Exited:
					return true
				default:
					return false
				}
			})
			if status := p.end(); status != 1 {
				t.Errorf("ended with status %d", status)
			}
			for _, want := range []string{"msg=stopping", "signal=", "grace=1h", "until=20",
				"jobs=1", "second signal"} {
				if !strings.Contains(p.Log.String(), want) {
					t.Errorf("the log does not say %q", want)
				}
			}
		})
	}
}

// A load balancer and Prometheus must reach the process until its jobs have finished.
func TestItServesWhileJobsFinish(t *testing.T) {
	text, started, release := stuck(t, "grace: 1h\n")
	p := launch(t, "--drain", "--config", configure(t, text)).ready()
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	<-started
	p.Signal(syscall.SIGTERM)
	p.logs(1, "waiting for running jobs")
	for path, want := range map[string]int{"/readyz": 503, "/healthz": 200, "/metrics": 200,
		"/v1/policies": 200} {
		if status, body := p.get(path); status != want ||
			want == 503 && !strings.Contains(body, "stopping") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	p.posts("/v1/jobs/stripe/acme", "pay", 202)
	release()
	if status := p.end(); status != 0 {
		t.Errorf("ended with status %d", status)
	}
	if !strings.Contains(p.Log.String(), "handover complete") {
		t.Errorf("the log does not say that all is done")
	}
}

func TestADrainerServesWhileJobsFinish(t *testing.T) {
	text, started, release := stuck(t, "grace: 1h\n")
	file := configure(t, text)
	p := launch(t, "--config", file).ready()
	address := proctest.FreeAddress(t)
	drainer := launchProgram(t, "drainer", "--config", file, "--nats-url", p.nats, "--http-listen",
		address).ready()
	drainer.http = address
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	<-started
	if status, body := drainer.get("/readyz"); status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	drainer.Signal(syscall.SIGTERM)
	drainer.logs(1, "waiting for running jobs")
	for path, want := range map[string]int{"/readyz": 503, "/healthz": 200, "/metrics": 200} {
		if status, body := drainer.get(path); status != want ||
			want == 503 && !strings.Contains(body, "stopping") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	release()
	if status := drainer.end(); status != 0 {
		t.Errorf("ended with status %d", status)
	}
}

func TestItServesForItsLameDuckTime(t *testing.T) {
	t.Parallel()
	const lameDuck = 5 * time.Second
	p := launch(t, "--config", configure(t, policies), "--lame-duck", lameDuck.String()).ready()
	began := time.Now()
	p.Signal(syscall.SIGTERM)
	p.logs(1, "msg=stopping")
	if status, body := p.get("/readyz"); status != 503 ||
		!strings.Contains(body, `"reason":"stopping"`) {
		t.Errorf("readyz: %d %s", status, body)
	}
	p.posts("/v1/check/door/acme", "", 200)
	if status := p.end(); status != 0 {
		t.Errorf("ended with status %d", status)
	}
	if took := time.Since(began); took < lameDuck {
		t.Errorf("ended after %s", took)
	}
}

func TestQuickstart(t *testing.T) {
	echo := proctest.FreeAddress(t)
	p := launch(t, "--drain", "--echo", echo, "--config", configure(t, fmt.Sprintf(
		"drain: {lease: 2s}\npolicies:\n"+
			"  - {name: demo, algorithm: leaking_bucket, outflow: 2/s, capacity: 5, target: "+
			"{http: {url: 'http://%s'}}}\n"+
			"  - {name: signup, algorithm: fixed_window, limit: 10, window: 1d}\n", echo))).ready()
	var lines []string
	next := func(holds func(line string) bool) {
		t.Helper()
		for deadline := time.After(waittest.Patience()); ; {
			select {
			case line := <-p.Lines:
				lines = append(lines, line)
				if holds(line) {
					return
				}
			case <-deadline:
				t.Fatalf("printed\n%s", strings.Join(lines, "\n"))
			}
		}
	}
	next(func(line string) bool { return strings.Contains(line, "Ctrl-C") })
	for _, want := range []string{"leaking bucket: 2/s per key, 5 wait",
		"fixed window: 10 in 1d per key", "Try",
		"curl -i -d hello http://" + p.http + "/v1/jobs/demo/customer-1",
		"curl -i -X POST http://" + p.http + "/v1/check/signup/customer-1"} {
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, want)
		}) {
			t.Errorf("the banner does not say %q", want)
		}
	}
	if status, body := p.post("/v1/jobs/demo/customer-1", "hello"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	next(func(line string) bool {
		return strings.Contains(line,
			`job demo:1 of "customer-1" started, attempt 1: POST / "hello"`)
	})
	p.stop()
}

// An interrupt in a shell also ends the reader of "admitter 2>&1 | tee log", and the next line of
// the log killed the process.
func TestALogWithoutItsReaderEndsNoProcess(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"admitter", "--drain", "--config", configure(t, policies)},
		{"drainer", "--nats-url", "nats://127.0.0.1:1"},
	} {
		log, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), proctest.Program(args[0]), args[1:]...)
		cmd.Stderr = to
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		to.Close()
		if _, err := log.Read(make([]byte, 1)); err != nil { // it runs
			t.Fatal(err)
		}
		log.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", args[0], err)
		}
	}
}
