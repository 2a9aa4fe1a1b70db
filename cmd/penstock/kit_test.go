package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-mq/penstock/cmd/penstock/internal/clitest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m, ".", "../admitter") }

type installation struct {
	clitest.Program
	server, nats string
}

func install(t *testing.T, policies string, args ...string) *installation {
	t.Helper()
	return installWith(t, "", policies, args...)
}

func installWith(t *testing.T, httpMore, policies string, args ...string) *installation {
	t.Helper()
	file := filepath.Join(t.TempDir(), "penstock.yaml")
	text := "http: {listen: '127.0.0.1:0'" + httpMore + "}\n" +
		"nats: {embedded: {dir: '" + t.TempDir() + "', listen: '127.0.0.1:0'}}\n" +
		"policies:\n" + policies
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	admitter := exec.Command(proctest.Program("admitter"),
		append([]string{"--config", file}, args...)...)
	words, err := proctest.Start(t, admitter).Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := at(t, "http://"+words["http"])
	i.nats = words["nats"]
	return i
}

func at(t *testing.T, server string) *installation {
	return &installation{Program: clitest.Program{T: t, Name: "penstock",
		Env: []string{"PENSTOCK_SERVER=" + server}}, server: server}
}

type target struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	status int
}

func newTarget(t *testing.T, status int) *target {
	to := &target{status: status}
	to.Server = httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			var body bytes.Buffer
			_, _ = body.ReadFrom(r.Body)
			to.mu.Lock()
			defer to.mu.Unlock()
			to.bodies = append(to.bodies, body.String())
			w.WriteHeader(to.status)
			fmt.Fprint(w, "so it is")
		}))
	t.Cleanup(to.Close)
	return to
}

func (to *target) got() []string {
	to.mu.Lock()
	defer to.mu.Unlock()
	return slices.Clone(to.bodies)
}

func words(s string) []string { return strings.Fields(s) }

func (i *installation) client() *client {
	return &client{server: i.server, timeout: proctest.Patience, http: http.DefaultClient}
}

func flaky(t *testing.T,
	tell func(n int, last string, say func(format string, args ...any))) (url string) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Content-Type", "text/event-stream")
		tell(asked, r.Header.Get("Last-Event-ID"), func(format string, args ...any) {
			fmt.Fprintf(w, format, args...)
		})
	}))
	t.Cleanup(s.Close)
	return s.URL
}
