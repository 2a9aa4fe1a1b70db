package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

// clients writes a file of clients whose tokens are their names; each line is a name and the rest
// of its entry.
func clients(t *testing.T, lines ...string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tokens.yaml")
	relist(t, file, lines...)
	return file
}

func relist(t *testing.T, file string, lines ...string) {
	t.Helper()
	text := "clients:\n"
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		text += "  - {name: " + name + ", tokens: ['" + access.Sum(name) + "'], " + rest + "}\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const twoTeams = `
policies:
  - {name: red-mail, algorithm: leaking_bucket, outflow: 100/s, capacity: 10}
  - {name: blue-mail, algorithm: leaking_bucket, outflow: 100/s, capacity: 10}
`

func TestClientsSeeAndChangeTheirOwn(t *testing.T) {
	file := clients(t,
		"root rights: [submit, check, read, operate, admin], policies: ['*']",
		"red rights: [submit, read, operate, admin], policies: [red-*]")
	p := launch(t, "--config", configure(t, twoTeams), "--http-tokens", file, "--drain").ready()
	as := func(client, method, path, body string, status int, says ...string) {
		t.Helper()
		r := p.ask(method, path, body, "Authorization", "Bearer "+client)
		for _, word := range says {
			absent := strings.HasPrefix(word, "!")
			if strings.Contains(r.body, strings.TrimPrefix(word, "!")) == absent {
				t.Errorf("%s %s as %s: %q in %s", method, path, client, word, r.body)
			}
		}
		if r.status != status {
			t.Errorf("%s %s as %s: %d %s, want %d", method, path, client, r.status, r.body, status)
		}
	}
	as("root", "GET", "/v1/policies", "", 200, "red-mail", "blue-mail")
	as("red", "GET", "/v1/policies", "", 200, "red-mail", "!blue-mail")
	as("red", "GET", "/v1/drainers", "", 403, "for all policies")
	as("red", "GET", "/metrics", "", 403)
	as("root", "GET", "/metrics", "", 200, "penstock_")

	const queue = `{"algorithm":"leaking_bucket","outflow":"5/s","capacity":10`
	const chained = queue + `,"target":{"nats":{"subject":"penstock.jobs.blue-mail.k"}}}`
	as("red", "PUT", "/v1/policies/red-new", queue+"}", 201)
	as("red", "PUT", "/v1/policies/blue-new", queue+"}", 403)
	as("red", "PUT", "/v1/policies/red-new", chained, 400, "requires the right admin for all "+
		"policies")
	as("root", "PUT", "/v1/policies/red-new", chained, 200)
	as("red", "PATCH", "/v1/policies/red-new", `{"capacity":20}`, 400, "target.nats")

	if r := p.ask("GET", "/healthz", ""); r.status != http.StatusOK {
		t.Errorf("health: %+v", r)
	}
	if r := p.ask("GET", "/v1/policies", ""); r.status != http.StatusUnauthorized ||
		r.header.Get("WWW-Authenticate") != `Bearer realm="penstock"` {
		t.Errorf("nobody: %+v", r)
	}

	// SIGHUP reads the clients with the configuration, unless one is invalid.
	relist(t, file, "root rights: [raed], policies: ['*']")
	p.Signal(syscall.SIGHUP)
	eventually(t, "the bad file is told of", func() bool {
		return p.Log.Count("want submit, check, read") > 0
	})
	as("red", "GET", "/v1/policies/red-mail", "", 200)
	relist(t, file, "root rights: [read], policies: ['*']")
	p.Signal(syscall.SIGHUP)
	eventually(t, "red is gone", func() bool {
		return p.ask("GET", "/v1/policies", "", "Authorization", "Bearer red").status == 401
	})
	as("root", "GET", "/v1/policies/red-mail", "", 200)
	as("root", "DELETE", "/v1/policies/red-mail", "", 403)
	p.stop()
	if log := p.Log.String(); strings.Contains(log, "sha256:") {
		t.Errorf("the log has sums of tokens:\n%s", log)
	}
}

func TestADrainerKnowsTheSameClients(t *testing.T) {
	file := clients(t, "root rights: [read], policies: ['*']",
		"other rights: [admin], policies: ['*']")
	p := launch(t, "--config", configure(t, "")).ready()
	address := proctest.FreeAddress(t)
	d := launchProgram(t, "drainer", "--nats-url", p.nats, "--http-listen", address,
		"--http-tokens", file)
	if _, err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.http = address
	for client, status := range map[string]int{"root": 200, "other": 403, "nobody": 401} {
		r := d.ask("GET", "/metrics", "", "Authorization", "Bearer "+client)
		if r.status != status {
			t.Errorf("%s: %+v", client, r)
		}
	}
	for path, status := range map[string]int{"/metrics": 401, "/healthz": 200, "/readyz": 200} {
		if got, body := d.get(path); got != status {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
}

func TestATokenCommandMakesAClient(t *testing.T) {
	made := launch(t, "token", "billing", "--rights", "submit,read", "--policies", "red-*")
	if status := made.end(); status != 0 {
		t.Fatal(status, made.Log)
	}
	token := <-made.Lines
	var text string
	for line := range made.Lines {
		text += line + "\n"
	}
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "--config", configure(t, twoTeams), "--http-tokens", file).ready()
	for policy, status := range map[string]int{"red-mail": 202, "blue-mail": 403} {
		r := p.ask("POST", "/v1/jobs/"+policy+"/k", "x", "Authorization", "Bearer "+token)
		if r.status != status {
			t.Errorf("%s: %+v", policy, r)
		}
	}
}

func TestFilesOfClientsMayNameAProvider(t *testing.T) {
	if access.NewVerifier == nil {
		t.Error("the program does not link the verifier of OpenID Connect tokens")
	}
}
