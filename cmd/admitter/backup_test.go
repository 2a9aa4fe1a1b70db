package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// A backup restores jobs with their attempts, dead letters, policies and overrides; new jobs do not
// get an old one's identity.
func TestALostDirectoryComesBack(t *testing.T) {
	t.Parallel()
	target := &bank{keys: map[string][]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		switch string(body) {
		case "bad":
			w.WriteHeader(http.StatusBadRequest)
		case "again":
			w.WriteHeader(http.StatusInternalServerError)
		}
		target.ServeHTTP(w, r)
	}))
	defer server.Close()
	file := configure(t, fmt.Sprintf(`
drain: {lease: 1s}
policies:
  - {name: pay, algorithm: leaking_bucket, outflow: 100/s, capacity: 100, retry: {backoff: 1h}, target: {http: {url: %q}}}
`, server.URL))
	dir := t.TempDir()
	saved := filepath.Join(dir, "backup.tar")
	run := func(want int, says string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), proctest.Program("admitter"), args...)
		out, _ := cmd.CombinedOutput()
		if status := cmd.ProcessState.ExitCode(); status != want ||
			!strings.Contains(string(out), says) {
			t.Errorf("%s: %d %s", args, status, out)
		}
		if parts, err := filepath.Glob(filepath.Join(dir, "*.partial")); err != nil ||
			len(parts) > 0 {
			t.Errorf("it leaves %s, %v", parts, err)
		}
	}
	whole := func(p *process) {
		t.Helper()
		for path, want := range map[string]string{
			"/v1/buckets/extra/k":       `"depth":5`,
			"/v1/dead/pay":              `"reason":"permanent"`,
			"/v1/policies/pay/keys/vip": `"outflow":"1/s"`,
			"/v1/policies/extra":        `"capacity":9`,
			"/v1/jobs/pay:2":            `"attempts":1`,
		} {
			eventually(t, path+" has "+want, func() bool {
				status, body := p.get(path)
				return status == 200 && strings.Contains(body, want)
			})
		}
	}

	p := launch(t, "--drain", "--config", file).ready()
	p.sends("PUT", "/v1/policies/extra",
		`{"algorithm":"leaking_bucket","outflow":"1/h","capacity":9}`, 201)
	p.sends("PUT", "/v1/policies/pay/keys/vip", `{"outflow":"1/s"}`, 200)
	for i := range 5 {
		p.sends("POST", "/v1/jobs/extra/k", "later", 202, "Idempotency-Key", fmt.Sprint(i))
	}
	p.posts("/v1/jobs/pay/a", "bad", 202)
	p.posts("/v1/jobs/pay/b", "again", 202)
	whole(p)
	run(0, "PENSTOCK_extra: 5 messages", "backup", saved, "--config", file, "--nats-url", p.nats)
	p.posts("/v1/jobs/pay/a", "too late", 202)
	eventually(t, "it runs", func() bool { return len(target.asked("too late")) == 1 })
	run(1, "stop the running admitter first", "restore", saved, "--config", file)
	p.Kill()
	if err := os.RemoveAll(filepath.Join(filepath.Dir(file), "nats")); err != nil {
		t.Fatal(err)
	}

	run(0, "PENSTOCK_extra: 5 messages", "restore", saved, "--config", file)
	run(1, "an installation is there already", "restore", saved, "--config", file)
	p = launch(t, "--drain", "--config", file).ready()
	whole(p)
	repeat := p.send("POST", "/v1/jobs/extra/k", "later", "Idempotency-Key", "3")
	if repeat.status != 202 || !repeat.Duplicate {
		t.Errorf("a repeat of a job that waits is %+v", repeat)
	}
	// The lost job's number is reused, but not the id that its target saw.
	p.posts("/v1/jobs/pay/a", "new", 202)
	eventually(t, "it runs", func() bool { return len(target.asked("new")) == 1 })
	if gone, now := target.asked("too late")[0], target.asked("new")[0]; gone == now {
		t.Errorf("both are %s to the target", now)
	}
	p.stop()

	none := filepath.Join(dir, "none.tar")
	run(1, "no installation with the prefix penstock", "backup", none, "--nats-url",
		natstest.Start(t, embedded.Options{Listen: "127.0.0.1:0"}).URL())
	if _, err := os.Stat(none); !os.IsNotExist(err) {
		t.Errorf("%s: %v", none, err)
	}
	run(0, "PENSTOCK_extra: 5 messages", "backup", saved, "--config", file)
	run(1, "want the name of a regular file", "backup", dir, "--config", file)
	run(1, "want the name of a regular file", "backup", "", "--config", file)
}

func (p *process) sends(method, path, body string, status int, header ...string) {
	p.t.Helper()
	if r := p.ask(method, path, body, header...); r.status != status {
		p.t.Fatalf("%s %s: %d %s", method, path, r.status, r.body)
	}
}
