package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

// A changed file applies without a signal, because Kubernetes, for example, does not send one.
func TestAConfigurationIsFollowed(t *testing.T) {
	t.Parallel()
	file := configure(t, "policies: [{name: a, algorithm: token_bucket, capacity: 2, "+
		"refill: 1/s}]\n")
	p := launch(t, "--config", file).ready()
	p.posts("/v1/check/a/acme", "", 200)
	p.posts("/v1/check/b/acme", "", 404)

	rewrite(t, file, "policies: [{name: b, algorithm: nonsense}]\n")
	p.logs(1, "level=ERROR")
	p.posts("/v1/check/a/acme", "", 200)
	says := func(path, text string) {
		t.Helper()
		if status, body := p.get(path); status != 200 || !strings.Contains(body, text) {
			t.Errorf("%s: %d %s, want %s", path, status, body, text)
		}
	}
	says("/readyz?verbose", "[+] files: changed files are invalid: the previous ones stay in "+
		"force\n    files: configuration: "+file+":")
	says("/metrics", `penstock_config_last_reload_successful{file="configuration"} 0`)

	rewrite(t, file, "log: {level: debug}\nallow_shrink: true\n"+
		"policies: [{name: b, algorithm: token_bucket, capacity: 2, refill: 1/s}]\n")
	p.logs(1, `msg="configuration reloaded"`)
	eventually(t, "the new policy counts", func() bool {
		status, _ := p.post("/v1/check/b/acme", "")
		return status == 200
	})
	says("/readyz?verbose", "[+] files: as they were read last\n")
	says("/metrics", `penstock_config_last_reload_successful{file="configuration"} 1`)
	p.stop()
}

// A configuration that was refused because of another file applies when that file is mended.
func TestAConfigurationAppliesOnceAnotherFileIsMended(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	good := "clients:\n" + access.Line("all", []string{"read", "check"}, []string{"*"}, nil,
		"the token") + "\n"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(good)
	text := func(name string) string {
		return "allow_shrink: true\npolicies: [{name: " + name +
			", algorithm: token_bucket, capacity: 2, refill: 1/s}]\n"
	}
	file := configure(t, text("a"))
	p := launch(t, "--config", file, "--http-tokens", tokens).ready()
	asks := func(method, path, text string) bool {
		got := p.ask(method, path, "", "Authorization", "Bearer the token")
		return got.status == 200 && strings.Contains(got.body, text)
	}
	write("clients: [")
	rewrite(t, file, text("b"))
	p.logs(1, "invalid configuration not reloaded")
	if !asks("POST", "/v1/check/a/acme", "") ||
		!asks("GET", "/readyz?verbose", "files: configuration: "+tokens) {
		t.Error("the previous ones must stay in force")
	}
	write(good)
	p.logs(1, `msg="configuration reloaded"`)
	eventually(t, "the new policy counts", func() bool {
		return asks("POST", "/v1/check/b/acme", "")
	})
	eventually(t, "all files are good", func() bool {
		return asks("GET", "/readyz?verbose", "[+] files: as they were read last\n")
	})
	p.stop()
}

// New secrets apply when the connection is made again, which the server forces when it rejects the
// old ones.
func TestAPasswordAtNATSIsFollowed(t *testing.T) {
	t.Parallel()
	users := newNATSUsers(t)
	secret := filepath.Join(users.dir, "password")
	password := func(text, hash string) {
		t.Helper()
		if err := os.WriteFile(secret, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		users.lines = []string{fmt.Sprintf("  - {name: far, role: drainer, password: %q}", hash)}
		users.write()
	}
	password("tide", "$2a$04$wDElD6NzrfF1U3ZHZk.MV./05bk5Rp7pd7G7tA0f7t2r7pqnvlDXC")
	p := launch(t, "--config", configure(t, ""), "--nats-users", users.file).ready()
	address := proctest.FreeAddress(t)
	file := filepath.Join(users.dir, "drainer.yaml")
	text := fmt.Sprintf("http: {listen: %q}\nnats: {url: %q, user: far, password_file: %q}\n",
		address, p.nats, secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := launchProgram(t, "drainer", "--config", file).ready()
	d.http = address

	password("ebb", "$2a$04$rFfYQriA4IUr0Dgu.suQ5.KvTdgVi4r/3NEzYsDbefF6EgJd9Vmse")
	d.logs(1, "connected to NATS again")
	eventually(t, "the drainer is well", func() bool {
		status, body := d.get("/readyz?verbose")
		return status == 200 && strings.Contains(body, "[+] nats: connected")
	})
	d.stop()
	p.stop()
}
