// Package clients tests the clients in other languages. Their packages are built as for their
// registries, installed, and used by programs of each language against a real server.
package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
)

// language is a client. install packs and installs it once, in a separate directory, and returns
// the command to run a program with it.
type language struct {
	name    string
	ending  string
	fence   string
	install func() (func(program string) (*exec.Cmd, error), error)
}

var scratch string

func TestMain(m *testing.M) {
	code := func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "penstock-clients"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(scratch)
		return m.Run()
	}()
	os.Exit(code)
}

var languages = []language{
	{"python", ".py", "python", sync.OnceValues(installPython)},
	{"typescript", ".ts", "ts", sync.OnceValues(installTypeScript)},
}

func each(t *testing.T, test func(t *testing.T, l *language)) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			test(t, &l)
		})
	}
}

func run(dir, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, out)
	}
	return nil
}

func installPython() (func(program string) (*exec.Cmd, error), error) {
	dir := filepath.Join(scratch, "python")
	source := filepath.Join(dir, "source")
	if err := os.CopyFS(source, os.DirFS("python")); err != nil {
		return nil, err
	}
	pip := []string{"-m", "pip", "--no-input", "--disable-pip-version-check"}
	err := run(dir, "python3", append(pip, "wheel", "--no-index", "--no-deps", "-w", dir,
		source)...)
	if err != nil {
		return nil, err
	}
	wheels, _ := filepath.Glob(filepath.Join(dir, "penstock_client-*-py3-none-any.whl"))
	installed := filepath.Join(dir, "installed")
	err = run(dir, "python3", append(append(pip, "install", "--no-index", "--target", installed),
		wheels...)...)
	if err != nil {
		return nil, err
	}
	return func(program string) (*exec.Cmd, error) {
		c := exec.Command("python3", program)
		c.Env = append(os.Environ(), "PYTHONPATH="+installed)
		return c, nil
	}, nil
}

func installTypeScript() (func(program string) (*exec.Cmd, error), error) {
	dir := filepath.Join(scratch, "typescript")
	app := filepath.Join(dir, "app")
	installed := filepath.Join(dir, "node_modules/@penstock-mq/client")
	if err := os.CopyFS(dir, os.DirFS("typescript")); err != nil {
		return nil, err
	}
	err := run(dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	if err != nil {
		return nil, err
	}
	if err := run(dir, "npm", "pack"); err != nil {
		return nil, err
	}
	packed, _ := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err := errors.Join(os.MkdirAll(app, 0o700), os.MkdirAll(installed, 0o700), os.WriteFile(
		filepath.Join(app, "package.json"), []byte(`{"type": "module"}`), 0o600)); err != nil {
		return nil, err
	}
	err = run(dir, "tar", append([]string{"-x", "-C", installed, "--strip-components", "1", "-f"},
		packed...)...)
	if err != nil {
		return nil, err
	}
	var compiling sync.Mutex // tests share programs
	return func(program string) (*exec.Cmd, error) {
		compiling.Lock()
		defer compiling.Unlock()
		text, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		copied := filepath.Join(app, filepath.Base(program))
		compiled := exec.Command("node", strings.TrimSuffix(copied, ".ts")+".js")
		if was, err := os.ReadFile(copied); err == nil && bytes.Equal(was, text) {
			return compiled, nil
		}
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			return nil, err
		}
		return compiled, run(app, "npx", "tsc", "--strict", "--skipLibCheck", "--module",
			"nodenext", "--target", "es2022", copied)
	}, nil
}

func (l *language) program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	return l.command(t, filepath.Join("testdata", l.name, name+l.ending), args...)
}

func (l *language) command(t *testing.T, file string, args ...string) *exec.Cmd {
	t.Helper()
	install, err := l.install()
	if err != nil {
		t.Fatal(err)
	}
	c, err := install(file)
	if err != nil {
		t.Fatal(err)
	}
	c.Args = append(c.Args, args...)
	return c
}

const token = "may-everything"

func open(t *testing.T, policies ...policy.Policy) (p *penstock.Penstock, url string) {
	t.Helper()
	return openWith(t, func(*penstock.Penstock) {}, penstock.Options{}, policies...)
}

func openWith(t *testing.T, handle func(*penstock.Penstock), o penstock.Options,
	policies ...policy.Policy) (p *penstock.Penstock, url string) {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "clients.yaml")
	clients := fmt.Sprintf(`clients: [{name: all, tokens: [%q], rights: [submit, check, read,
  operate, admin], policies: ['*']}]`, access.Sum(token))
	if err := os.WriteFile(tokens, []byte(clients), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Policies, o.Lease, o.ServeNATS = policies, time.Second, true
	o.Server.Listen, o.Server.Dir = "127.0.0.1:0", t.TempDir()
	o.HTTP = penstock.HTTP{Listen: "127.0.0.1:0", Tokens: tokens}
	p, err := penstock.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	handle(p)
	t.Cleanup(p.Close)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-p.Ready():
	case <-time.After(waittest.Patience()):
		t.Fatal("the server is not ready")
	}
	return p, "http://" + p.HTTPAddr().String()
}

func bucket(name string, perSecond int64) policy.Policy {
	return policy.Policy{Name: name, Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Outflow: algorithms.Rate{Count: perSecond, Per: time.Second}, Capacity: 100}}
}

func TestClients(t *testing.T) {
	const want = `submit mail:1 mail:1 True
job acme/ü b.c {"to":"ann"} 2 a b
job mail:1 has not ended within 0.1: delayed
cancel cancelled cancelled
refused 429 queue-full True
batch 202 202 404
run done 200 /x u good
run dead 422 /x u refuse
missing 404 Not Found
unavailable 0
unavailable 0
permit True
too late too-late True
fetch 200 /good
fetch 429 /throttle
paused True
`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case string(body) == "refuse":
			w.WriteHeader(http.StatusUnprocessableEntity)
		case strings.HasPrefix(r.URL.Path, "/v1/"):
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"status":"ok"}`)
			return
		case r.URL.Path == "/throttle":
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		fmt.Fprint(w, strings.TrimSpace(fmt.Sprint(r.URL.Path, " ", r.Header.Get("X-User"), " ",
			string(body))))
	}))
	t.Cleanup(api.Close)
	mail, echo, calls := bucket("mail", 100), bucket("echo", 100), bucket("calls", 100)
	mail.Capacity = 2
	echo.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: api.URL}}
	calls.Outflow = algorithms.Rate{}
	calls.Limits = []policy.Limit{{Name: "tokens", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 100, Window: policy.Duration(time.Hour)}}}
	each(t, func(t *testing.T, l *language) {
		_, url := open(t, mail, echo, calls, bucket("paced", 100))
		c := l.program(t, "client", url, token, api.URL)
		out, err := c.CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%v: it says\n%s\nwant\n%s", err, out, want)
		}
	})
}

func TestTheSameJobFromEachLanguageIsOneJob(t *testing.T) {
	t.Parallel()
	_, url := open(t, bucket("mail", 100))
	first := "False"
	for _, l := range languages {
		out, err := l.program(t, "same", url, token).CombinedOutput()
		if want := "mail:1 " + first + "\nmail:1 True\n"; err != nil || string(out) != want {
			t.Errorf("%s: %v: it says\n%s\nwant\n%s", l.name, err, out, want)
		}
		first = "True"
	}
}

func TestASilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	python := languages[0] // the other one has a library for NATS
	out, err := python.program(t, "silent").CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "\nconnected again\n") {
		t.Errorf("%v: it says\n%s", err, out)
	}
}

func TestReadmesRun(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		var mu sync.Mutex
		var keys []string
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			body, _ := io.ReadAll(r.Body)
			if keys = append(keys, r.Header.Get("Idempotency-Key")+string(body)); len(keys) == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		t.Cleanup(api.Close)
		p, url := open(t)
		page, err := os.ReadFile(filepath.Join(l.name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		local := strings.NewReplacer("http://127.0.0.1:8080", url, "nats://127.0.0.1:4222",
			p.NATSURL(), `token="`, `token="`+token, `token: "`, `token: "`+token,
			"http://127.0.0.1:8081", api.URL, "curl ", "curl -sSfH 'Authorization: Bearer "+
				token+"' ")
		_, command, _ := strings.Cut(string(page), "```sh\n")
		command, _, _ = strings.Cut(command, "```")
		if err := run(".", "sh", "-c", local.Replace(command)); err != nil {
			t.Fatal(err)
		}
		programs := map[string]string{}
		for _, block := range strings.Split(string(page), "```"+l.fence+"\n")[1:] {
			code, _, _ := strings.Cut(block, "```")
			name := strings.Trim(strings.Fields(code)[1], "# /")
			if lines := strings.Count(code, "\n"); lines > 14 {
				t.Errorf("%s has %d lines", name, lines)
			}
			file := filepath.Join(t.TempDir(), "readme_"+name)
			if err := os.WriteFile(file, []byte(local.Replace(code)), 0o600); err != nil {
				t.Fatal(err)
			}
			programs[strings.TrimSuffix(name, l.ending)] = file
		}
		worker := proctest.Start(t, l.command(t, programs["worker"]))
		out, err := l.command(t, programs["submit"]).CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), " done\n") {
			t.Errorf("%v: submit says\n%s", err, out)
		}
		if err := worker.Stop(); err != nil {
			t.Errorf("worker: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		// keys of their own: those who try both get two jobs
		once := map[string]string{"python": "python-1", "typescript": "node-1"}[l.name] +
			`{"amount":7}`
		if got := strings.Join(keys, "\n"); got != once+"\n"+once {
			t.Errorf("the API got\n%s", got)
		}
	})
}

func TestTargets(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		target := proctest.Start(t, l.program(t, "worker", "-", "-", "target"))
		words, err := target.Ready(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		secret := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
			t.Fatal(err)
		}
		hooks := bucket("hooks", 50)
		hooks.Retry = policy.Retry{MaxAttempts: 2, Backoff: policy.Duration(10 * time.Millisecond)}
		hooks.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://" + words["http"],
			Sign: &policy.Signing{HMACFile: secret}}}
		_, url := open(t, hooks)
		for body, want := range map[string]string{"fine": "done 0", "throttled": "done 0",
			"again": "done 0", "permanent": "dead 1 permanent", "fail": "dead 2 attempts",
			"down": "dead 2 attempts"} {
			var o struct {
				End, Reason string
				Attempts    int
			}
			text := send(t, url+"/v1/jobs/hooks/%C3%BC%20"+body+"?wait=1m", body, http.Header{
				"Authorization": {"Bearer " + token}}, http.StatusOK)
			if err := json.Unmarshal(text, &o); err != nil {
				t.Fatal(err)
			}
			got := strings.TrimSpace(fmt.Sprint(o.End, " ", o.Attempts, " ", o.Reason))
			if got != want {
				t.Errorf("%s: %s, want %s", body, got, want)
			}
		}
		send(t, "http://"+words["http"], "forged", http.Header{"Penstock-Signature": {fmt.Sprintf(
			"t=%d,v1=%s", time.Now().Unix(), strings.Repeat("0", 64))}}, http.StatusUnauthorized)
	})
}

func send(t *testing.T, url, body string, header http.Header, want int) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != want {
		t.Errorf("%s: %d %s, %v, want %d", url, answer.StatusCode, text, err, want)
	}
	return text
}

type relay struct {
	net.Listener
	to    string
	mu    sync.Mutex
	conns []net.Conn
	away  int // number of connections that end at once
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: strings.TrimPrefix(to, "nats://")}
	t.Cleanup(func() { l.Close(); r.cut() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.away--
			away := r.away >= 0
			r.mu.Unlock()
			to, err := net.Dial("tcp", r.to)
			if away && err == nil {
				to.Close()
			}
			if away || err != nil {
				from.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, from, to)
			r.mu.Unlock()
			go func() { _, _ = io.Copy(to, from); to.Close() }()
			go func() { _, _ = io.Copy(from, to); from.Close() }()
		}
	}()
	return r
}

func (r *relay) cut() { r.refuse(0) }

// refuse also ends the next connections.
func (r *relay) refuse(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = n
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}
