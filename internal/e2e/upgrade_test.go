//go:build unix

package e2e

import (
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// The store of release 0.1 is frozen: later releases read it as it is.
const frozen = "testdata/store-0.1.tar.gz"

var freeze = flag.Bool("freeze", false, "write "+frozen+", once a release freezes its formats")

const frozenPolicies = `
policies:
  - name: waits
    algorithm: leaking_bucket
    outflow: 5/s
    capacity: 100
    limits: [{algorithm: sliding_log, limit: 90, window: 1m, count_from: answer}]
    target: {nats: {subject: waits}}
`

// release is an admitter that drains a store of its own.
type release struct {
	*process
	t       *testing.T
	address string
	nats    string
}

func startRelease(t *testing.T, data string) *release {
	t.Helper()
	config := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(config, []byte(frozenPolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	i := &release{t: t, address: proctest.FreeAddress(t), nats: proctest.FreeAddress(t)}
	i.process = spawn(t, "admitter", exec.Command(proctest.Program("admitter"), "--drain",
		"--config", config, "--http-listen", i.address, "--nats-listen", i.nats,
		"--nats-dir", data))
	return i
}

func (i *release) ask(method, path, body string, header ...string) string {
	i.t.Helper()
	r, err := http.NewRequestWithContext(i.t.Context(), method, "http://"+i.address+path,
		strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		i.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		i.t.Fatalf("%s %s: %s %s, %v", method, path, resp.Status, text, err)
	}
	return string(text)
}

func freezeStore(t *testing.T) {
	t.Helper()
	data := t.TempDir()
	i := startRelease(t, data)
	i.ask("POST", "/v1/pause/waits", "")
	i.ask("PATCH", "/v1/policies/waits/override?because=frozen", `{"outflow":"50/s"}`)
	i.ask("PUT", "/v1/policies/waits/keys/slow", `{"outflow":"20/s"}`)
	i.ask("POST", "/v1/schedules/waits/acme", "report", "Penstock-Schedule", "0 6 * * *")
	i.ask("PATCH", "/v1/schedules/waits/acme?paused=1", "")
	for _, job := range []string{"a 1", "slow 1", "a 2", "slow 2", "a 3"} {
		key, body, _ := strings.Cut(job, " ")
		i.ask("POST", "/v1/jobs/waits/"+key, body)
	}
	i.stop(t)
	if err := os.MkdirAll(filepath.Dir(frozen), 0o755); err != nil {
		t.Fatal(err)
	}
	pack := exec.Command("tar", "-C", data, "-czf", frozen, ".")
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestAStoreOfTheFirstReleaseIsUpgraded(t *testing.T) {
	if *freeze {
		freezeStore(t)
	}
	data := t.TempDir()
	if out, err := exec.Command("tar", "-C", data, "-xzf", frozen).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	i := startRelease(t, data)
	defer i.stop(t)
	nc, err := nats.Connect("nats://" + i.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var mu sync.Mutex
	ran := map[string][]string{}
	if _, err := nc.Subscribe("waits", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		key := m.Header.Get("Penstock-Key")
		ran[key] = append(ran[key], string(m.Data))
		_ = m.Respond(nil)
	}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the queue is read", func() bool {
		return strings.Contains(i.ask("GET", "/v1/jobs/waits:5", ""), `"state":"waiting"`)
	})
	for path, parts := range map[string][]string{
		"/v1/policies/waits":           {`file: 5/s, now 50/s`, "frozen"},
		"/v1/policies/waits/keys/slow": {`"outflow":"20/s"`},
		"/v1/schedules":                {`"key":"acme"`, `"paused":true`, `"total":1`},
		"/v1/jobs/waits:5":             {`"key":"a"`},
	} {
		answer := i.ask("GET", path, "")
		for _, part := range parts {
			if !strings.Contains(answer, part) {
				t.Errorf("%s does not say %q: %s", path, part, answer)
			}
		}
	}
	if answer := i.ask("POST", "/v1/jobs/waits/a", "4"); !strings.Contains(answer, `"waits:6"`) {
		t.Errorf("a new job: %s", answer)
	}
	i.ask("POST", "/v1/resume/waits", "")
	waittest.Until(t, "all jobs have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran["a"])+len(ran["slow"]) == 6
	})
	if !slices.Equal(ran["a"], []string{"1", "2", "3", "4"}) ||
		!slices.Equal(ran["slow"], []string{"1", "2"}) {
		t.Errorf("ran %v", ran)
	}
}
