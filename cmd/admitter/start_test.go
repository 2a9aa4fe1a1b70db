package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestBadStarts(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	notDir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notDir, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	bad := configure(t, `
colour: red
policies:
  - {name: A, algorithm: abacus}
  - {name: b, algorithm: leaking_bucket, outflow: 10/x, capacity: 1}
`)
	problems := []string{"policies[0].name", "policies[0].algorithm", "policies[1].outflow",
		"colour"}
	good := configure(t, policies)
	ofNATS := configure(t, "")
	if err := os.WriteFile(ofNATS, fmt.Appendf(nil, "nats: {embedded: {dir: %s, tls: {cert: %s, "+
		"key: %[2]s}}}", t.TempDir(), notDir), 0o600); err != nil {
		t.Fatal(err)
	}
	const inUse = "address already in use"
	for _, c := range []struct {
		name   string
		args   []string
		status int
		lines  int
		says   []string
	}{
		{"every problem", []string{"--config", bad}, 2, 0, problems},
		{"validate", []string{"validate", "--config", bad}, 2, 0, problems},
		{"validate with the file alone", []string{"validate", bad}, 2, 0,
			append(problems, bad+":4: colour", bad+":6: policies[0]")},
		{"validate two files", []string{"validate", bad, good}, 2, 1, []string{"want one file"}},
		{"no such file", []string{"--config", notDir + ".yaml"}, 1, 1, []string{"no such file"}},
		{"unknown flag", []string{"--colour"}, 2, 0, []string{"--colour"}},
		{"unknown command", []string{"valdate"}, 2, 1, []string{"did you mean validate?"}},
		{"another unknown command", []string{"bakcup"}, 2, 1, []string{"did you mean backup?"}},
		{"a health check of nobody", []string{"healthcheck", "--http-listen", "127.0.0.1:1"}, 1, 1,
			[]string{"connection refused"}},
		{"a health check of any port", []string{"healthcheck", "--http-listen", "127.0.0.1:0"}, 1,
			1, []string{"http.listen"}},
		{"open to others", []string{"--config", good, "--http-listen", "0.0.0.0:0"}, 2, 1,
			[]string{"http.listen (--http-listen)", "http.tokens", "http.insecure: true"}},
		{"clients that are no file", []string{"--config", good, "--http-tokens", notDir + ".yaml"},
			1, 1, []string{"http.tokens: ", "no such file"}},
		{"clients that are none", []string{"--config", good, "--http-tokens", bad}, 2, 0,
			[]string{bad + ":", "clients: is missing"}},
		{"a key without a certificate", []string{"--config", good, "--http-tls-key", notDir}, 2, 1,
			[]string{"http.tls: requires both"}},
		{"a certificate that is none", []string{"--config", good, "--http-tls-key", notDir,
			"--http-tls-cert", notDir}, 2, 1, []string{"read the certificate"}},
		{"a certificate of NATS that is none", []string{"validate", ofNATS}, 2, 1,
			[]string{"read the certificate"}},
		{"a token for nobody", []string{"token", "--rights", "read"}, 2, 1,
			[]string{"want one argument: token NAME"}},
		{"a token without rights", []string{"token", "me"}, 2, 1,
			[]string{"admitter: --rights: want any of submit, check"}},
		{"a token with a wrong right", []string{"token", "me", "--rights", "raed"}, 2, 1,
			[]string{"want submit, check, read"}},
		{"a NATS user without a role", []string{"nats-user", "me"}, 2, 0,
			[]string{"admitter: role: \"\": want one of [producer checker caller reader"}},
		{"a NATS user of no policy", []string{"nats-user", "me", "--role", "worker"}, 2, 1,
			[]string{"policies: want names"}},
		{"a NATS open to others", []string{"--config", good, "--nats-listen", "0.0.0.0:0"}, 2, 1,
			[]string{"nats.embedded.listen (--nats-listen)", "nats.embedded.insecure: true"}},
		{"users that are no file", []string{"--config", good, "--nats-users", notDir + ".yaml"},
			1, 1, []string{"nats.embedded.users: ", "no such file"}},
		{"a certificate that is no file", []string{"--config", good, "--http-tls-key", notDir,
			"--http-tls-cert", notDir + ".pem"}, 1, 1, []string{"http.tls: ", "no such file"}},
		{"gateways' limits that are no file", []string{"validate", good, "--envoy-listen",
			"127.0.0.1:0", "--envoy-files", notDir + ".yaml"}, 1, 1,
			[]string{"envoy.files: ", "no such file"}},
		{"users that are none", []string{"--config", good, "--nats-users", bad}, 2, 0,
			[]string{bad + ":", "users: want a list with at least one"}},
		{"HTTP port in use", []string{"--config", good, "--http-listen", busy.Addr().String()}, 1,
			1, []string{inUse}},
		{"NATS port in use", []string{"--config", good, "--nats-listen", busy.Addr().String()}, 1,
			1, []string{"nats.embedded.listen: ", inUse}},
		{"port of profiles in use", []string{"--config", good, "--pprof", busy.Addr().String()}, 1,
			1, []string{inUse}},
		{"no directory", []string{"--config", good, "--nats-dir", notDir}, 1, 1, []string{notDir}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := launch(t, c.args...)
			if status := p.end(); status != c.status {
				t.Errorf("ended with status %d, want %d", status, c.status)
			}
			text := p.Log.String()
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("does not say %q", want)
				}
			}
			var plain int
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "admitter: ") {
					plain++
				}
			}
			if plain == 0 || c.lines > 0 && plain != c.lines {
				t.Errorf("says %d lines", plain)
			}
			if line, more := <-p.Lines; more {
				t.Errorf("printed %q", line)
			}
		})
	}
}

func TestHelpNamesEverySubcommand(t *testing.T) {
	p := launch(t, "--help")
	var text string
	for line := range p.Lines {
		text += line + "\n"
	}
	if status := p.end(); status != 0 || p.Log.String() != "" {
		t.Errorf("ended with status %d, %s", status, p.Log)
	}
	for _, word := range []string{"validate", "healthcheck", "token", "nats-user", "backup",
		"restore"} {
		if !strings.Contains(text, "\n       admitter "+word+" ") {
			t.Errorf("does not name %s", word)
		}
	}
}

func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	unwritable, err := os.Open(os.DevNull) // only to read
	if err != nil {
		t.Fatal(err)
	}
	defer unwritable.Close()
	for _, args := range [][]string{{"--help"}, {"--version"}, {"validate"}, {"token", "--help"}} {
		cmd := exec.CommandContext(t.Context(), proctest.Program("admitter"), args...)
		cmd.Stdout = unwritable
		if err := cmd.Run(); cmd.ProcessState.ExitCode() == 0 {
			t.Errorf("admitter %s: %v", args, err)
		}
	}
}

func TestValidate(t *testing.T) {
	file := configure(t, policies)
	for _, args := range [][]string{{"validate", "--config", file}, {"validate", file}} {
		p := launch(t, args...)
		if status := p.end(); status != 0 || p.Log.String() != "" {
			t.Errorf("%s: ended with status %d, %s", args, status, p.Log)
		}
		if line := <-p.Lines; line != "the configuration is valid (policies: 6, schedules: 0)" {
			t.Errorf("%s: printed %q", args, line)
		}
	}
}

func TestHealthcheck(t *testing.T) {
	cert, key := certtest.New(t).Issue("localhost")
	tls := []string{"--http-tls-cert", cert, "--http-tls-key", key}
	for _, flags := range [][]string{nil, tls} {
		served := launch(t, append([]string{"--config", configure(t, "")}, flags...)...).ready()
		check := launch(t, append([]string{"healthcheck", "--http-listen", served.http},
			flags...)...)
		if status := check.end(); status != 0 || check.Log.String() != "" {
			t.Errorf("%s: ended with status %d, %s", flags, status, check.Log)
		}
		if line := <-check.Lines; line != "[+] process: running" {
			t.Errorf("%s: printed %q", flags, line)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, name := range []string{"admitter", "drainer"} {
		p := launchProgram(t, name, "--version")
		if status := p.end(); status != 0 || p.Log.String() != "" {
			t.Errorf("%s: ended with status %d, %s", name, status, p.Log)
		}
		if line := <-p.Lines; !regexp.MustCompile("^" + name + ` \d+\.\d+\.\d+`).MatchString(line) {
			t.Errorf("%s: printed %q", name, line)
		}
	}
}

func TestAPolicyThatCannotChangeIsABadConfiguration(t *testing.T) {
	file := configure(t, `
policies:
  - {name: a, algorithm: leaking_bucket, outflow: 1/s, capacity: 3}
  - {name: b, algorithm: token_bucket, capacity: 3, refill: 1/s}
`)
	if status := launch(t, "--config", file).ready().terminate(); status != 0 {
		t.Fatalf("ended with status %d", status)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer("capacity: 3}", "capacity: 3, partitions: 2}",
		"token_bucket, capacity: 3, refill: 1/s",
		"fixed_window, limit: 3, window: 1m").Replace(string(text))
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "--config", file)
	if status := p.end(); status != 2 {
		t.Errorf("ended with status %d", status)
	}
	for _, want := range []string{"partitions", "algorithm"} {
		if !strings.Contains(p.Log.String(), want) {
			t.Errorf("does not mention %s", want)
		}
	}
}

func TestAnOldNATSServerIsNamed(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	old := older(t, strings.TrimPrefix(server.URL(), "nats://"), "2.10.7")
	for _, name := range []string{"admitter", "drainer"} {
		p := launchProgram(t, name, "--config", configure(t, policies), "--nats-url",
			"nats://me:secret@"+old)
		if status := p.end(); status != 1 {
			t.Errorf("%s: ended with status %d", name, status)
		}
		for _, want := range []string{name + ": ",
			old + " is nats-server 2.10.7, and Penstock needs 2.14.0 or newer"} {
			if !strings.Contains(p.Log.String(), want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
		if strings.Contains(p.Log.String(), "secret") {
			t.Errorf("%s tells a password", name)
		}
	}
}

func older(t *testing.T, server, version string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	own := regexp.MustCompile(`"version":"[^"]*"`)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				defer behind.Close()
				_, _ = io.Copy(behind, client)
			}()
			go func() {
				defer client.Close()
				for in := bufio.NewReader(behind); ; {
					line, err := in.ReadBytes('\n')
					if bytes.HasPrefix(line, []byte("INFO ")) {
						line = own.ReplaceAll(line, fmt.Appendf(nil, `"version":%q`, version))
					}
					if _, writeErr := client.Write(line); err != nil || writeErr != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// A signal can come at any moment of the start; the first line of the log is an early one.
func TestASignalDuringTheStartIsNoFailure(t *testing.T) {
	t.Parallel()
	file := configure(t, policies)
	for range 10 {
		p := launch(t, "--drain", "--config", file)
		eventually(t, "it logs", func() bool { return p.Log.String() != "" })
		if status := p.terminate(); status != 0 {
			t.Fatalf("ended with status %d\n%s", status, p.Log)
		}
	}
}
