//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// isolation records a run second by second: of an admitter and a drainer that are connected to the
// first of three servers, which is cut off, and of another drainer.
type isolation struct {
	t       *testing.T
	began   time.Time
	http    map[string]string // addresses
	process map[string]*process
	seen    map[string]int // lines of logs that were shown

	mu       sync.Mutex
	answers  map[string]int // of a second
	accepted map[string]bool
	runs     map[string]int
	ran      int // in this second
}

func newIsolation(t *testing.T, servers *natstest.Cluster) *isolation {
	i := &isolation{t: t, began: time.Now(), http: map[string]string{},
		process: map[string]*process{}, seen: map[string]int{}, answers: map[string]int{},
		accepted: map[string]bool{}, runs: map[string]int{}}
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.runs[string(body)]++
		i.ran++
	}))
	t.Cleanup(target.Close)
	config := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
nats: {replicas: 3}
grace: 5s
targets: {allow: [127.0.0.1/32]}
policies:
  - {name: api, algorithm: leaking_bucket, outflow: 100/s, capacity: 5000, partitions: 4, target: {http: {url: %q}}}
`, target.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	urls := servers.URLs()
	for _, p := range []struct{ name, program, url string }{{"admitter", "admitter", urls[0]},
		{"drainer", "drainer", urls[0]}, {"other", "drainer", urls[1]}} {
		i.http[p.name] = proctest.FreeAddress(t)
		i.process[p.name] = spawn(t, p.name, exec.Command(proctest.Program(p.program), "--config",
			config, "--nats-url", p.url, "--http-listen", i.http[p.name]))
	}
	return i
}

var quick = &http.Client{Timeout: 6 * time.Second}

// submit submits jobs, twenty a second, until done.
func (i *isolation) submit(done <-chan struct{}) {
	var all sync.WaitGroup
	defer all.Wait()
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		case <-time.After(50 * time.Millisecond):
		}
		all.Go(func() {
			name := fmt.Sprintf("job-%d", n)
			answer := "none"
			response, err := quick.Post("http://"+i.http["admitter"]+"/v1/jobs/api/"+name,
				"text/plain", strings.NewReader(name))
			if err == nil {
				_ = response.Body.Close()
				answer = fmt.Sprint(response.StatusCode)
			}
			i.mu.Lock()
			defer i.mu.Unlock()
			i.answers[answer]++
			i.accepted[name] = answer == "202"
		})
	}
}

func (i *isolation) ready(process string) (status int, text string) {
	response, err := quick.Get("http://" + i.http[process] + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

func detail(problem string) string {
	var p struct{ Reason, Detail string }
	if err := json.Unmarshal([]byte(problem), &p); err != nil {
		return problem
	}
	return fmt.Sprintf("(%s: %s)", p.Reason, p.Detail)
}

// record shows the run until done says so, which gets the answers of the last second.
func (i *isolation) record(what string, done func(answers map[string]int) bool) {
	i.t.Helper()
	i.t.Logf("--- %s", what)
	for end := time.After(waittest.Patience()); ; {
		select {
		case <-time.After(time.Second):
		case <-end:
			i.t.Fatalf("waited in vain: %s", what)
		}
		i.mu.Lock()
		answers, ran := i.answers, i.ran
		i.answers, i.ran = map[string]int{}, 0
		i.mu.Unlock()
		var counts []string
		for _, answer := range slices.Sorted(maps.Keys(answers)) {
			counts = append(counts, fmt.Sprintf("%s: %d", answer, answers[answer]))
		}
		ready := ""
		for _, name := range []string{"admitter", "drainer", "other"} {
			status, text := i.ready(name)
			if ready += fmt.Sprintf(" %d", status); status != http.StatusOK {
				ready += " " + detail(text)
			}
		}
		i.t.Logf("%5.1f s  /readyz%s  answers {%s}  jobs run %d", time.Since(i.began).Seconds(),
			ready, strings.Join(counts, ", "), ran)
		for name, p := range i.process {
			lines := slices.Collect(strings.Lines(p.Log.String()))
			for _, line := range lines[i.seen[name]:] {
				i.t.Logf("         %s: %s", name, strings.TrimSpace(line))
			}
			i.seen[name] = len(lines)
		}
		if done(answers) {
			return
		}
	}
}

// TestProcessesLeaveAServerThatIsCutOff shows with -v what clients see of it, second by second.
func TestProcessesLeaveAServerThatIsCutOff(t *testing.T) {
	servers := natstest.StartCluster(t, true)
	i := newIsolation(t, servers)
	submitted, enough := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(submitted)
		i.submit(enough)
	}()
	well := func(answers map[string]int) bool { return answers["202"] > 0 && len(answers) == 1 }
	seconds := 0
	wellFor := func(n int) func(map[string]int) bool {
		seconds = 0
		return func(answers map[string]int) bool {
			if seconds++; !well(answers) {
				seconds = 0
			}
			return seconds >= n
		}
	}
	i.record("all is well", wellFor(3))
	servers.Isolate(0, true)
	i.record("n0 is cut off", func(answers map[string]int) bool { return !well(answers) })
	i.record("n0 is still cut off", wellFor(15))
	for name, p := range i.process {
		if log := p.Log; log.Count("took over a partition")+log.Count("lease renewal fails") > 0 {
			t.Errorf("%s: a lease was not renewed", name)
		}
	}
	servers.Isolate(0, false)
	i.record("n0 is back", wellFor(3))
	close(enough)
	<-submitted
	i.record("the rest runs", func(map[string]int) bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		for name, accepted := range i.accepted {
			if accepted && i.runs[name] == 0 {
				return false
			}
		}
		return true
	})
	for _, name := range []string{"admitter", "drainer"} {
		if log := i.process[name].Log; log.Count("the connection moves to another server") == 0 ||
			log.Count("NATS answers again") == 0 {
			t.Errorf("%s does not say that its connection moved", name)
		}
		waittest.Until(t, name+" is ready", func() bool {
			status, _ := i.ready(name)
			return status == http.StatusOK
		})
	}
	repeats, accepted := 0, 0
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, was := range i.accepted {
		if was {
			accepted++
		}
		repeats += max(0, i.runs[name]-1)
	}
	t.Logf("%d jobs submitted, %d accepted, %d runs repeated", len(i.accepted), accepted, repeats)
}
