package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func TestMain(m *testing.M) { proctest.Main(m, proctest.Raced(".", "../drainer")...) }

type process struct {
	*proctest.Process
	t          *testing.T
	http, nats string
}

func configure(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "penstock.yaml")
	const ports = "http: {listen: '127.0.0.1:0'}\nnats: {embedded: {dir: '%s/nats', listen: " +
		"'127.0.0.1:0'}}\n"
	text := fmt.Sprintf(ports, dir) + more
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return launchProgram(t, "admitter", args...)
}

func launchProgram(t *testing.T, program string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(proctest.Program(program), args...)
	return &process{Process: proctest.Start(t, cmd), t: t}
}

func (p *process) ready() *process {
	p.t.Helper()
	words, err := p.Ready(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.http, p.nats = words["http"], words["nats"]
	return p
}

func (p *process) end() int {
	p.t.Helper()
	if err := p.End(); err != nil && p.Cmd.ProcessState.ExitCode() < 0 {
		p.t.Fatal(err)
	}
	return p.Cmd.ProcessState.ExitCode()
}

func (p *process) terminate() int {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	return p.end()
}

func (p *process) stop() {
	p.t.Helper()
	if status := p.terminate(); status != 0 {
		p.t.Errorf("ended with status %d", status)
	}
}

type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends a request, with header fields (including Host) as names and values in turn.
func (p *process) ask(method, path, body string, header ...string) reply {
	p.t.Helper()
	request, err := http.NewRequest(method, "http://"+p.http+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	request.Host = request.Header.Get("Host")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, string(text)}
}

func (p *process) get(path string) (int, string) {
	p.t.Helper()
	r := p.ask(http.MethodGet, path, "")
	return r.status, r.body
}

func (p *process) post(path, body string) (int, string) {
	p.t.Helper()
	r := p.ask(http.MethodPost, path, body, "Content-Type", "text/plain")
	return r.status, r.body
}

func (p *process) posts(path, body string, want int) {
	p.t.Helper()
	if status, text := p.post(path, body); status != want {
		p.t.Errorf("%s: %d %s, want %d", path, status, text, want)
	}
}

var eventually = waittest.Until

func within(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *process) says(line string) {
	p.t.Helper()
	eventually(p.t, "no metric "+line, func() bool {
		_, metrics := p.get("/metrics")
		return strings.Contains(metrics, line+"\n")
	})
}
