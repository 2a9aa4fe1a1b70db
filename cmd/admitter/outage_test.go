package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func startNATS(t *testing.T, dir, address string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: dir, Listen: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server
}

// elsewhere writes a configuration for an external NATS server, with a fixed HTTP address.
func elsewhere(t *testing.T, natsAddress, more string) (file, httpAddress string) {
	t.Helper()
	httpAddress = proctest.FreeAddress(t)
	file = filepath.Join(t.TempDir(), "penstock.yaml")
	text := fmt.Sprintf("http: {listen: '%s'}\nnats: {url: 'nats://%s'}\n", httpAddress,
		natsAddress) + more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, httpAddress
}

func (p *process) serving(address string) *process {
	p.t.Helper()
	p.http = address
	eventually(p.t, "HTTP is not served", func() bool {
		response, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == 200
	})
	return p
}

func TestSubmitsFailFastAndChecksGoOnWithoutNATSAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), proctest.FreeAddress(t)
	server := startNATS(t, dir, address)
	cache := filepath.Join(t.TempDir(), "policies.json")
	file, httpAddress := elsewhere(t, address, "state: {cache: '"+cache+"'}\n"+policies)
	p := launch(t, "--config", file).ready()
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	// A policy of the API, and one that the file has, too.
	p.posts("/v1/release/signup", "", 200)
	for name, content := range map[string]string{
		"visits": `{"algorithm":"fixed_window","limit":7,"window":"1d"}`,
		"signup": `{"algorithm":"fixed_window","limit":3,"window":"1d"}`,
	} {
		r := p.ask(http.MethodPut, "/v1/policies/"+name, content)
		if r.status/100 != 2 {
			t.Fatalf("put %s: %+v", name, r)
		}
	}

	server.Shutdown()
	checks := func(when string) {
		t.Helper()
		for name, want := range map[string]string{"visits": `"limit":7`, "signup": `"limit":3`,
			"search": `"limit":100`} {
			if status, body := p.post("/v1/check/"+name+"/"+strings.ReplaceAll(when, " ", "-"),
				""); status != 200 ||
				!strings.Contains(body, want) {
				t.Errorf("%s, check %s: %d %s", when, name, status, body)
			}
		}
	}
	eventually(t, "no submit is refused", func() bool {
		status, _ := p.post("/v1/jobs/stripe/acme", "pay")
		return status == 503
	})
	refusals := func(when string) {
		t.Helper()
		began := time.Now()
		for range 20 {
			status, body := p.post("/v1/jobs/search/acme", "pay")
			if status != 503 || !strings.Contains(body, `"reason":"nats"`) {
				t.Fatalf("%s: %d %s", when, status, body)
			}
		}
		if took := time.Since(began); took > 50*time.Second {
			t.Errorf("%s: 20 submits took %v", when, took)
		}
		if status, body := p.get("/readyz"); status != 503 ||
			!strings.Contains(body, `"reason":"nats"`) ||
			!strings.Contains(body, "checks are answered") {
			t.Errorf("%s: %d %s", when, status, body)
		}
		if status, body := p.get("/v1/policies/stripe"); status != 503 ||
			!strings.Contains(body, `"reason":"nats"`) {
			t.Errorf("%s, management: %d %s", when, status, body)
		}
	}
	checks("NATS away")
	refusals("NATS away")
	// Unsent jobs took no units.
	if status, body := p.get("/v1/check/search/acme"); status != 200 ||
		!strings.Contains(body, `"remaining":100`) {
		t.Errorf("after refused submits: %d %s", status, body)
	}
	p.stop()

	p = launch(t, "--config", file).serving(httpAddress)
	eventually(t, "no check is answered", func() bool {
		status, _ := p.get("/v1/check/visits/a")
		return status == 200
	})
	checks("started without NATS")
	refusals("started without NATS")

	startNATS(t, dir, address)
	p.ready()
	if status, body := p.get("/readyz"); status != 200 {
		t.Errorf("NATS is back: %d %s", status, body)
	}
	p.posts("/v1/jobs/stripe/acme", "pay", 202)
	if status, body := p.post("/v1/check/signup/started-without-NATS", ""); status != 200 ||
		!strings.Contains(body, `"remaining":1`) {
		t.Errorf("the limit does not remember: %d %s", status, body)
	}
}

func TestChecksWithoutACacheGoByTheFile(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "policies.json")
	if err := os.WriteFile(cache, []byte(`{"v":1,"policies":[{"pol`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"", "state: {cache: '" + cache + "'}\n"} {
		file, httpAddress := elsewhere(t, proctest.FreeAddress(t), more+policies)
		p := launch(t, "--config", file).serving(httpAddress)
		eventually(t, "no check is answered", func() bool {
			status, body := p.get("/v1/check/signup/a")
			return status == 200 && strings.Contains(body, `"limit":10`)
		})
		p.stop()
	}
}
