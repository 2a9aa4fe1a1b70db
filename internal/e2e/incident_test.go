//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// An incident: an operator slows a file's policy down, the file breaks and is reloaded with other
// numbers, both programs restart, and the override expires. The bucket obeys the override until
// then, and the file as it is loaded after that.
func TestAnIncidentIsOverWhenItsOverrideExpires(t *testing.T) {
	address, server := proctest.FreeAddress(t), proctest.FreeAddress(t)
	file := filepath.Join(t.TempDir(), "penstock.yaml")
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const policies = "policies: [{name: billing, algorithm: leaking_bucket, outflow: %s, " +
		"capacity: 5000, target: {nats: {subject: billing}}}]\n"
	configure(fmt.Sprintf(policies, "96/s"))
	ask := func(method, path, body string) (status int, answer string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	says := func(when string, path string, parts ...string) {
		t.Helper()
		last := ""
		waittest.Until(t, when, func() bool {
			_, last = ask("GET", path, "")
			for _, part := range parts {
				if !strings.Contains(last, part) {
					return false
				}
			}
			return true
		})
		t.Logf("%s: %.400s", when, last)
	}
	paced := func(when, rate string) { // as the valve says
		t.Helper()
		per := strings.TrimSuffix(rate, "/s")
		waittest.Until(t, when+": the valve starts at "+rate, func() bool {
			_, body := ask("GET", "/v1/buckets/billing/a", "")
			var b struct{ Outflow float64 }
			return json.Unmarshal([]byte(body), &b) == nil && fmt.Sprint(b.Outflow) == per
		})
	}
	data := t.TempDir()
	nats1 := spawn(t, "nats", exec.Command(proctest.Program("admitter"), "--http-listen",
		proctest.FreeAddress(t), "--nats-listen", server, "--nats-dir", data))
	defer nats1.stop(t)
	admit := func() *process {
		t.Helper()
		return spawn(t, "admitter", exec.Command(proctest.Program("admitter"), "--config", file,
			"--http-listen", address, "--nats-url", "nats://"+server))
	}
	drain := func() *process {
		t.Helper()
		return spawn(t, "drainer", exec.Command(proctest.Program("drainer"), "--nats-url",
			"nats://"+server))
	}
	a, d := admit(), drain()
	nc, err := nats.Connect("nats://" + server)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Subscribe("billing", func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		if status, answer := ask("POST", "/v1/jobs/billing/a", "x"); status != 202 {
			t.Fatal(status, answer)
		}
	}
	paced("before", "96/s")

	const lasts = 25 * time.Second
	began := time.Now()
	status, answer := ask("PATCH", "/v1/policies/billing/override?for="+lasts.String()+
		"&because=their+incident", `{"outflow":"2/s"}`)
	if status != 200 || !strings.Contains(answer, "file: 96/s, now 2/s by 127.0.0.1, ") {
		t.Fatal(status, answer)
	}
	paced("overridden", "2/s")
	configure("policies: [{name: billing, algorithm: leaking_bu")
	says("a broken file", "/readyz?verbose", "penstock.yaml", "billing is overridden: file: 96/s, "+
		"now 2/s by 127.0.0.1")
	configure(fmt.Sprintf(policies, "50/s"))
	says("the file is loaded", "/v1/policies/billing", `"outflow":"50/s"`, "file: 50/s, now 2/s")
	a.stop(t)
	d.stop(t)
	a, d = admit(), drain()
	defer a.stop(t)
	defer d.stop(t)
	paced("after both restarted", "2/s")
	if passed := time.Since(began); passed > lasts {
		t.Fatalf("it took %v", passed)
	}
	paced("expired", "50/s")
	if passed := time.Since(began); passed < lasts-time.Second {
		t.Errorf("it expired after %v", passed)
	}
	says("the end is listed", "/v1/audit/billing", "policy overridden", "for 25s",
		"because their incident", "override expired", "outflow 2/s → 50/s")
	if _, body := ask("GET", "/v1/policies/billing", ""); strings.Contains(body, "overrid") {
		t.Errorf("left: %s", body)
	}
}
