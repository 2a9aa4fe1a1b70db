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
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

func TestBadInputIsAnErrorBeforeAnythingIsSent(t *testing.T) {
	i := at(t, "http://127.0.0.1:1")
	for args, want := range map[string]string{
		"polices":                              "did you mean policies?",
		"submit":                               "no argument: usage: penstock submit POLICY",
		"submit mail x y":                      "3 arguments: usage: penstock submit POLICY",
		"submit mail x --kye a":                "unknown flag: --kye",
		"submit mail x --prority 1":            "unknown flag: --prority; did you mean --priority?",
		"submit mail x -x":                     "unknown shorthand flag: 'x'",
		"submit mail x --key":                  "flag needs an argument: --key",
		"submit mail x --=":                    "bad flag syntax",
		"policies ls mail":                     "1 argument: usage: penstock policies ls",
		"schedules set mail":                   "1 argument: usage: penstock schedules set POLICY",
		"job mail:1 2":                         "2 arguments: usage: penstock job JOB",
		"submit mail x -H nonsense":            `want "Name: value"`,
		"submit mail @/nowhere":                "no such file",
		"submit mail x -H ä:x":                 `header: "ä:x": want "Name: value"`,
		"submit mail --file=":                  "--file: want a value",
		"submit mail x --id=":                  "--id: want a value",
		"submit mail x --tag=":                 "--tag: want a value",
		"schedules set mail @daily --cost=":    "--cost: want a value",
		"submit m --cost 1 -H Penstock-Cost:2": "given twice",
		"job 42":                               "not a job id such as mail:42",
		"why ::":                               "not a job id such as mail:42",
		"why mail:x":                           "not a job id such as mail:42",
		"help nope":                            `unknown command "nope" for "penstock"`,
		"help policies shwo":                   "did you mean show?",
		"schedules sett mail --key a":          `unknown command "sett" for "penstock schedules"; did you mean set?`,
		"tail --limit -1":                      `invalid argument "-1" for "-n, --limit"`,
		"why":                                  "no argument: usage: penstock why",
		"rate mail":                            "1 argument: usage: penstock rate POLICY",
		"policies ls --server ftp://x":         "want a URL such as",
		"policies ls --server http://x/sub":    "want a URL such as",
		"policies ls --server http://u:p@x":    "want a URL such as",
		"policies ls --server x:99999":         "want a URL such as",
		"policies ls --server http://x#y":      "want a URL such as",
		"policies ls --server=":                `server: "": want a URL such as`,
		"completion bsh":                       "did you mean bash?",
		"completion":                           "completion: want one of bash, fish",
		"policies ls --timeout 0s":             "want more than 0",
		"policies ls --token-file /no":         "no such file",
		"policies ls --cacert /no":             "no such file",
		"policies ls --cacert go.mod":          "holds no certificate",
		"policies ls --cert go.mod":            "go.mod: tls: ",
		"buckets mail --limit many":            `invalid argument "many" for "-n, --limit"`,
		"dead ls mail --after -1":              `invalid argument "-1" for "--after"`,
		"policies ls --timeout 3":              `missing unit in duration "3"`,
		"submit mail x --wait 99999999999h":    `invalid duration "99999999999h"`,
		"policies ls --json=maybe":             `invalid argument "maybe" for "--json"`,
	} {
		i.Says(2, words(args), want)
	}
	i.Says(2, []string{"policies", "ls", "--token", "a b"}, "invalid character")
	i.Says(2, []string{"submit", "mail", "x", "-H", "A: b\r\nC: d"}, `want "Name: value"`)
	i.Says(2, []string{"submit", "mail", "x", "--id", "a\nb"}, "control character")
	a, b := i.Run(0, "--version"), i.Run(0, "version")
	if a != b || !strings.HasPrefix(a, "penstock ") {
		t.Errorf("--version says %q, version %q", a, b)
	}
	i.Says(7, words("policies ls"), "no answer from http://127.0.0.1:1", "connection refused")
	i.Says(7, words("policies ls --server 127.0.0.1:1"), "no answer from http://127.0.0.1:1")
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	i.Says(7, words("policies ls --timeout 50ms --server "+hangs.URL),
		"no answer from "+hangs.URL+" within 50ms\n")
	i.Says(7, words("tail --timeout 50ms --server "+hangs.URL),
		"no answer from "+hangs.URL+" within 50ms\n")
	i.Says(7, words("submit mail x --wait 50ms --timeout 50ms --server "+hangs.URL),
		"no answer from "+hangs.URL+" within 100ms\n")
	began := time.Now()
	i.Says(0, words("__complete --server "+hangs.URL+" pause m"), "ShellCompDirectiveError")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a shell waited %v for the names of policies", took)
	}
}

func TestAnAnswerOfAnotherServerIsNoSuccess(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(other.Close)
	i := at(t, other.URL)
	i.Says(1, words("submit mail x"), "the answer is not an admitter's")
	lines := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(lines, []byte(`{"text":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	i.Says(7, words("submit mail --file "+lines), "the answer is not an admitter's")
	i.Says(1, words("tail"), "the answer is not an admitter's")

	empty := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(empty.Close)
	i = at(t, empty.URL)
	for _, args := range []string{"pause mail", "check signup", "buckets mail", "job mail:1"} {
		i.Says(1, words(args), "the answer is not an admitter's")
	}

	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(down.Close)
	at(t, down.URL).Says(7, words("submit mail --wait 10ms --file "+lines), "1 not taken")
}

func TestAnInterruptEndsAReadOfStandardInput(t *testing.T) {
	i := at(t, "http://127.0.0.1:1")
	for _, args := range []string{"submit mail -", "submit mail --file -", "policies apply -"} {
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := i.Command(words(args)...)
		cmd.Stdin = in
		p := proctest.Start(t, cmd)
		if _, err := out.Write(make([]byte, 1<<20)); err != nil { // more than a pipe holds
			t.Fatal(err)
		}
		p.Signal(os.Interrupt)
		if err := p.End(); cmd.ProcessState.ExitCode() != cli.Interrupted {
			t.Errorf("%s: %v, %s", args, err, p.Log)
		}
		in.Close()
		out.Close()
	}
}

func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	unwritable, err := os.Open(os.DevNull) // only to read
	if err != nil {
		t.Fatal(err)
	}
	defer unwritable.Close()
	for _, args := range []string{"version", "version --json"} {
		cmd := at(t, "").Command(words(args)...)
		cmd.Stdout = unwritable
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != cli.Failed {
			t.Errorf("penstock %s: %v", args, err)
		}
	}
}

func TestBadInputIsAnErrorOfTheServer(t *testing.T) {
	i := install(t, "  - {name: mail, algorithm: leaking_bucket, outflow: 5/s, capacity: 10}\n")
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 10<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	i.Says(2, words("submit mail @"+big), "[413]")
	i.Says(2, []string{"submit", "mail", "x", "--key", strings.Repeat("k", 257)}, "256 bytes")
	i.Says(2, []string{"submit", "mail", "x", "--key", "\xff"}, "UTF-8")
	i.Says(0, []string{"submit", "mail", "x", "--key", "../é/?#%2F *>"}, "queued mail:1")
	i.Says(0, words("job mail:1"), "../é/?#%2F *>")
	i.Says(2, words("submit mail x --cost 0"), "Penstock-Cost")
	i.Says(2, words("submit mail x --deadline soon"), "Penstock-Deadline")
	i.Says(2, words("buckets mail --limit 0"), "limit")
	i.Says(4, words("submit mai x"), "did you mean mail?")
	var p map[string]any
	i.Document(4, &p, "submit", "mai", "x")
	if p["status"] != 404.0 {
		t.Errorf("the problem is %v", p)
	}
}

func TestATokenIsSent(t *testing.T) {
	token := func(args ...string) (token, line string) {
		t.Helper()
		out, err := exec.Command(proctest.Program("admitter"),
			append([]string{"token"}, args...)...).Output()
		lines := strings.Split(string(out), "\n")
		if err != nil || len(lines) < 2 {
			t.Fatalf("admitter token: %s%v", out, err)
		}
		for _, l := range lines[1:] {
			if strings.Contains(l, "name:") {
				line = l + "\n"
			}
		}
		return lines[0], line
	}
	shop, shopLine := token("shop", "--rights", "submit", "--policies", "mail")
	eye, eyeLine := token("eye", "--rights", "read", "--policies", "mail")
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	err := os.WriteFile(file, []byte("clients:\n"+shopLine+eyeLine), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	i := installWith(t, ", tokens: '"+file+"'", `
  - {name: mail, algorithm: leaking_bucket, outflow: 5/s, capacity: 10}
  - {name: other, algorithm: leaking_bucket, outflow: 5/s, capacity: 10}
`)
	i.Says(5, words("policies ls"), "want a token",
		": set PENSTOCK_TOKEN, --token-file or --cert [401]")
	i.Says(5, words("submit mail x --token wrong"), "[401]")
	i.Env = append(i.Env[:1:1], "PENSTOCK_TOKEN="+shop)
	i.Says(0, words("submit mail x"), "queued mail:1")
	i.Says(5, words("submit other x"), "[403]")
	i.Says(5, words("why mail:1"), "[403]")
	i.Says(5, []string{"submit", "--file", write(t, `{"policy":"other"}`)}, "line 1: ", "[403]")
	i.Env = append(i.Env[:1:1], "PENSTOCK_TOKEN="+eye)
	i.Says(0, words("why mail:1"), "no drainer answers")
	i.Says(5, words("pause mail"), "[403]")
	for _, command := range []string{"policies ls", "buckets", "top"} {
		if out := i.Run(0, words(command)...); strings.Contains(out, "other") ||
			!strings.Contains(out, "mail") {
			t.Errorf("%s shows\n%s", command, out)
		}
	}
}

func TestAGetIsSentAgainWhileItCannotBeAnswered(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 && r.URL.Path == "/soon" {
			fmt.Fprint(w, "{}")
			return
		}
		if after := (map[string]string{"/soon": "1", "/late": "9999"})[r.URL.Path]; after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"detail":"no responders"}`)
	}))
	defer server.Close()
	c := at(t, server.URL).client()
	for _, one := range []struct {
		method, path string
		times        int64
		works        bool
	}{
		{"", "/soon", 2, true},
		{"", "/late", 1, false},
		{"", "/never", 1, false},
		{"POST", "/soon", 1, false},
	} {
		asked.Store(0)
		_, err := c.ask(t.Context(), request{method: one.method, path: one.path})
		if asked.Load() != one.times || (err == nil) != one.works {
			t.Errorf("%s %s: asked %d times, %v", one.method, one.path, asked.Load(), err)
		}
	}
}

func TestATokenIsSentToItsServerOnly(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/drainers":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case r.Header.Get("Authorization") != "Bearer secret":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"title":"Unauthorized","status":401,"detail":"no such token"}`)
		case r.URL.Path == "/v1/jobs/mail:1":
			fmt.Fprint(w, "<html>")
		default:
			fmt.Fprint(w, `{"policies":[]}`)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := at(t, server.URL)
	i.Says(5, words("policies ls"), "no such token: set PENSTOCK_TOKEN")
	i.Says(5, words("policies ls --token wrong"), "no such token: set PENSTOCK_TOKEN")
	i.Run(0, words("policies ls --token secret")...)
	i.Run(0, words("policies ls --token-file "+file)...)
	i.Says(1, words("job mail:1 --token secret"), "not an admitter's")
	i.Run(1, words("drainers --token secret")...)
	i.Env = append(i.Env[:1:1], "PENSTOCK_TOKEN=secret")
	i.Run(0, words("policies ls")...)
	i.Run(5, words("policies ls --token wrong")...)
	i.Env = append(i.Env[:1:1], "PENSTOCK_TOKEN_FILE="+file)
	i.Run(0, words("policies ls")...)
	i.Env = append(i.Env[:1:1], "PENSTOCK_TOKEN=wrong")
	i.Run(0, words("policies ls --token-file "+file)...)
}
