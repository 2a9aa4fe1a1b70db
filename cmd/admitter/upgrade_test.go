package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// releaseBefore builds the programs of the previous release, and returns their directory: of the
// newest tag before this commit, or of the commit in scripts/previous-release. Without the sources,
// as in an archive or a shallow clone, it returns the current programs, and the test is a rolling
// restart.
func releaseBefore(t *testing.T) string {
	t.Helper()
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("describe", "--tags", "--abbrev=0", "HEAD^")
	if err != nil {
		text, err := os.ReadFile("../../scripts/previous-release")
		if err != nil {
			t.Fatal(err)
		}
		commit = regexp.MustCompile(`(?m)^[0-9a-f]{40}$`).FindString(string(text))
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree.tar")
	root, err := git("rev-parse", "--show-toplevel")
	if err == nil {
		_, err = git("-C", root, "archive", "--output", tree, commit)
	}
	if err != nil {
		t.Logf("the release before, %s, is not in these sources (%v): this one stands for it",
			commit, err)
		return filepath.Dir(proctest.Program("admitter"))
	}
	bin := filepath.Join(dir, "bin")
	for _, args := range [][]string{{"tar", "-xf", tree}, {"go", "build", "-o", bin + "/",
		"./cmd/admitter", "./cmd/drainer"}} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", args, err, out)
		}
	}
	return bin
}

type rolled struct {
	t        *testing.T
	file     string
	url      string
	old, now string
	drainers []*process

	mu       sync.Mutex
	admitter *process
	accepted []string
	arrived  map[string]int
}

func (r *rolled) start(dir, program string, more ...string) *process {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(dir, program),
		append([]string{"--config", r.file, "--nats-url", r.url}, more...)...)
	return (&process{Process: proctest.Start(r.t, cmd), t: r.t}).ready()
}

func (r *rolled) drainer(dir string) *process {
	r.t.Helper()
	p := r.start(dir, "drainer", "--http-listen", "")
	r.drainers = append(r.drainers, p)
	return p
}

func (r *rolled) serve(dir string) {
	r.t.Helper()
	p := r.start(dir, "admitter")
	r.mu.Lock()
	before := r.admitter
	r.admitter = p
	r.mu.Unlock()
	if before != nil {
		before.stop()
	}
}

func (r *rolled) ServeHTTP(_ http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived[q.Header.Get("Idempotency-Key")]++
}

func (r *rolled) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.arrived)
}

func (r *rolled) moves() {
	r.t.Helper()
	before := r.count()
	eventually(r.t, "jobs start", func() bool { return r.count() >= before+rollKeys*rollRate })
}

func (r *rolled) submit(n int) {
	name := fmt.Sprint("job-", n)
	for {
		r.mu.Lock()
		p := r.admitter
		r.mu.Unlock()
		request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost,
			fmt.Sprintf("http://%s/v1/jobs/pay/k%d", p.http, n%rollKeys), strings.NewReader(name))
		if err != nil {
			r.t.Error(err)
			return
		}
		request.Header.Set("Idempotency-Key", name)
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		switch {
		case r.t.Context().Err() != nil:
			return
		case err == nil && response.StatusCode == http.StatusAccepted:
			r.mu.Lock()
			r.accepted = append(r.accepted, name)
			r.mu.Unlock()
			return
		}
	}
}

const (
	rollKeys = 4
	rollRate = 20
)

var startLine = regexp.MustCompile(
	`msg=start policy=pay job=(\S+) key=(\S+) .*started=(\S+)`)

// An upgrade and a rollback, one process after the other, under load and with a crash in between:
// no job is lost, only those that ran at the crash may run again, and each bucket keeps to its rate
// over drainers of both releases.
func TestReleasesSideBySide(t *testing.T) {
	t.Parallel()
	r := &rolled{t: t, old: releaseBefore(t), now: filepath.Dir(proctest.Program("admitter")),
		url:     natstest.Start(t, embedded.Options{Listen: "127.0.0.1:0"}).URL(),
		arrived: map[string]int{}}
	target := httptest.NewServer(r)
	defer target.Close()
	r.file = configure(t, fmt.Sprintf(`
log: {level: debug}
drain: {lease: 2s}
policies:
  - {name: pay, algorithm: leaking_bucket, outflow: %d/s, capacity: 1000, partitions: 2, target: {http: {url: %q}}}
`, rollRate, target.URL))

	r.serve(r.old)
	first, second := r.drainer(r.old), r.drainer(r.old)
	ended, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		ticks := time.NewTicker(time.Second / (rollKeys * rollRate))
		defer ticks.Stop()
		for n := range 1 << 20 {
			if n >= 2*rollKeys*rollRate {
				<-ticks.C
			}
			select {
			case <-ended:
				return
			default:
				r.submit(n)
			}
		}
	}()
	r.moves()

	third := r.drainer(r.now)
	first.stop()
	r.moves()
	second.Kill()
	fourth := r.drainer(r.now)
	r.moves()
	r.serve(r.now)
	r.moves()

	fifth := r.drainer(r.old)
	third.stop()
	r.moves()
	r.serve(r.old)
	sixth := r.drainer(r.old)
	fourth.stop()
	r.moves()

	close(ended)
	<-over
	eventually(t, "all jobs have arrived", func() bool { return r.count() == len(r.accepted) })
	r.mu.Lock()
	defer r.mu.Unlock()
	byTheKilled, starts := map[string]bool{}, map[string][]time.Time{}
	attempts := map[string]int{}
	for _, d := range r.drainers {
		for _, found := range startLine.FindAllStringSubmatch(d.Log.String(), -1) {
			at, err := time.Parse(time.RFC3339, found[3])
			if err != nil {
				t.Fatal(err)
			}
			starts[found[2]] = append(starts[found[2]], at)
			attempts[found[1]]++
			if d == second {
				byTheKilled[found[1]] = true
			}
		}
	}
	for _, name := range r.accepted {
		if r.arrived[name] == 0 {
			t.Errorf("%s was accepted and never arrived", name)
		}
	}
	again := 0
	for job, n := range attempts {
		if n > 1 && !byTheKilled[job] {
			t.Errorf("%s started %d times, and its drainers were never killed", job, n)
		} else if n > 1 {
			again++
		}
	}
	if len(attempts) != len(r.accepted) {
		t.Errorf("%d jobs started, and %d were accepted", len(attempts), len(r.accepted))
	}
	for _, key := range slices.Sorted(maps.Keys(starts)) {
		most := inAnyWindow(starts[key], 2*time.Second)
		// The peak, by default 1.25 % above the outflow, the burst, and a tenth of a second,
		// because each drainer has its own estimate of JetStream's clock.
		if allowed := 2*rollRate*102/100 + 1 + rollRate/10; most > allowed {
			t.Errorf("key %s: %d starts in two seconds, want at most %d", key, most, allowed)
		}
	}
	t.Logf("%d jobs, %d of them started again after the crash", len(r.accepted), again)
	for _, p := range []*process{fifth, sixth, r.admitter} {
		p.stop()
	}
}

func inAnyWindow(at []time.Time, length time.Duration) (most int) {
	slices.SortFunc(at, time.Time.Compare)
	from := 0
	for to := range at {
		for at[to].Sub(at[from]) > length {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}
