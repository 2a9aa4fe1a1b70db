package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

// Profiles are served only to this machine, only under local host names, and not at the API's
// address.
func TestProfilesAreForThisMachine(t *testing.T) {
	address := proctest.FreeAddress(t)
	p := launch(t, "--config", configure(t, ""), "--pprof", address).ready()
	ask := func(host string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+address+"/debug/pprof/cmdline", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	if status, text := ask(address); status != 200 || !strings.Contains(text, "--pprof") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := ask("evil.example"); status != 421 {
		t.Errorf("another site's name: %d %s", status, text)
	}
	if status, _ := p.get("/debug/pprof/cmdline"); status != 404 {
		t.Errorf("at the API: %d", status)
	}
	p.stop()
	open := launch(t, "--config", configure(t, ""), "--pprof", "0.0.0.0:0")
	if status := open.end(); status != 2 || !strings.Contains(open.Log.String(), "127.0.0.1:6060") {
		t.Errorf("%d %s", status, open.Log)
	}
}
