package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/proctest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestMain(m *testing.M) {
	programs := []string{".", "../drainer"}
	if raceEnabled {
		programs = append([]string{"-race"}, programs...)
	}
	proctest.Main(m, programs...)
}

const patience = 30 * time.Second

// process is a running admitter or drainer.
type process struct {
	*proctest.Process
	t          *testing.T
	http, nats string
}

// configure writes a configuration file with ports of the system's choice.
func configure(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "penstock.yaml")
	const ports = "http: {listen: '127.0.0.1:0'}\nnats: {embedded: {dir: '%s/nats', listen: '127.0.0.1:0'}}\n"
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

// ready waits for the ready line.
func (p *process) ready() *process {
	p.t.Helper()
	words, err := p.Ready(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.http, p.nats = words["http"], words["nats"]
	return p
}

// end waits for the end of the process and returns its status.
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

func (p *process) get(path string) (int, string) {
	p.t.Helper()
	response, err := http.Get("http://" + p.http + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func (p *process) post(path, body string) (int, string) {
	p.t.Helper()
	response, err := http.Post("http://"+p.http+path, "text/plain", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// eventually repeats a look until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	within(t, patience, what, holds)
}

func within(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

const policies = `
policies:
  - {name: stripe, algorithm: leaking_bucket, outflow: 1/m, capacity: 3}
  - {name: door, algorithm: token_bucket, capacity: 2, refill: 1/h}
  - {name: signup, algorithm: fixed_window, limit: 10, window: 1d}
  - {name: rewards, algorithm: sliding_log, limit: 5, window: 1w}
  - {name: search, algorithm: sliding_counter, limit: 100, window: 1m, queue: {capacity: 10}}
  - {name: polite, algorithm: leaking_bucket, outflow: 5/s, capacity: 20, queue: false}
`

func TestServeAndStop(t *testing.T) {
	file := configure(t, policies)
	p := launch(t, "--config", file).ready()
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ready"} {
		if status, body := p.get(path); status != 200 || strings.TrimSpace(body) != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for i, want := range []int{202, 202, 202, 429} {
		if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != want {
			t.Errorf("job %d: %d %s", i+1, status, body)
		}
	}
	for policy, want := range map[string]int{
		"door": 200, "signup": 200, "rewards": 200, "search": 200, "polite": 200, "stripe": 409,
	} {
		if status, body := p.post("/v1/check/"+policy+"/acme", ""); status != want {
			t.Errorf("check %s: %d %s", policy, status, body)
		}
	}

	nc, err := nats.Connect(p.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	answer, err := nc.Request("penstock.submit.stripe.other", []byte("pay"), patience)
	if err != nil || answer.Header.Get("Penstock-Status") != "202" {
		t.Errorf("%v, %v", answer, err)
	}
	// A client that knows nothing of Penstock gets JetStream's own answer.
	answer, err = nc.Request("penstock.jobs.stripe.third", []byte("pay"), patience)
	if err != nil || !bytes.Contains(answer.Data, []byte(`"stream":"PENSTOCK_stripe"`)) {
		t.Errorf("%v, %v", answer, err)
	}

	_, metrics := p.get("/metrics")
	for _, line := range []string{
		`penstock_admissions_total{policy="stripe",verdict="queued"} 4`,
		`penstock_admissions_total{policy="stripe",verdict="rejected"} 1`,
		`penstock_checks_total{allowed="true",policy="door"} 1`,
		`penstock_queue_jobs{policy="stripe"} 5`,
		`penstock_queue_jobs{policy="search"} 0`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no metric %s", line)
		}
	}
	if status := p.terminate(); status != 0 {
		t.Errorf("ended with status %d", status)
	}

	// Started again, it knows the jobs.
	p = launch(t, "--config", file).ready()
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 429 {
		t.Errorf("after a restart: %d %s", status, body)
	}
	if status := p.terminate(); status != 0 {
		t.Errorf("ended with status %d", status)
	}
}

// rewrite replaces the policies and what else follows the ports in a file that configure wrote.
func rewrite(t *testing.T, file, more string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfterN(text, []byte("\n"), 3)
	if err := os.WriteFile(file, append(append(lines[0], lines[1]...), more...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAPolicyThatLeavesItsFileStaysUntilItMayGo: it said nothing, took no new jobs, and its stream went when it was empty.
func TestAPolicyThatLeavesItsFileStaysUntilItMayGo(t *testing.T) {
	t.Parallel() // it mostly waits
	file := configure(t, policies)
	p := launch(t, "--config", file).ready()
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	if status := p.terminate(); status != 0 {
		t.Errorf("ended with status %d", status)
	}

	const rest = "policies: [{name: polite, algorithm: leaking_bucket, outflow: 5/s, capacity: 20, queue: false}]\n"
	rewrite(t, file, rest)
	p = launch(t, "--config", file).ready()
	for _, path := range []string{"/v1/check/door/acme", "/v1/check/signup/acme"} {
		if status, body := p.post(path, ""); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status := p.terminate(); status != 0 || strings.Count(p.Log.String(), "not in the file any more") != 5 {
		t.Errorf("ended with status %d and says nothing of some of the five policies:\n%s", status, p.Log)
	}

	rewrite(t, file, "prune: true\n"+rest)
	p = launch(t, "--config", file).ready()
	p.says("penstock_policy_retirements_total 4")
	p.says(`penstock_policies{state="retired"} 4`)
	p.says(`penstock_policies{state="ok"} 2`)
	if status, body := p.post("/v1/check/door/acme", ""); status != 404 {
		t.Errorf("a retired policy: %d %s", status, body)
	}
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
		t.Errorf("a policy with a waiting job: %d %s", status, body)
	}
	nc, err := nats.Connect(p.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Request("$JS.API.STREAM.PURGE.PENSTOCK_stripe", nil, patience); err != nil {
		t.Fatal(err)
	}
	p.says("penstock_policy_retirements_total 5")
	if status := p.terminate(); status != 0 {
		t.Errorf("ended with status %d", status)
	}
	for _, want := range []string{"level=WARN", "not retired while jobs wait", "jobs=1", "policy=stripe", "policy retired"} {
		if !strings.Contains(p.Log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

// says waits for a line of the metrics.
func (p *process) says(line string) {
	p.t.Helper()
	eventually(p.t, "no metric "+line, func() bool {
		_, metrics := p.get("/metrics")
		return strings.Contains(metrics, line+"\n")
	})
}

// TestAnAdmitterWithAnotherFileRetiresNothing: one retired 10 of 11 policies of the first within 3 s. And one record that
// it could not read kept it from starting.
func TestAnAdmitterWithAnotherFileRetiresNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	first := launch(t, "--config", configure(t, policies)).ready()
	nc, err := nats.Connect(first.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for name, record := range map[string]string{"nonsense": "{", "newer": `{"v":2,"policy":{}}`} {
		if _, err := nc.Request("$KV.PENSTOCK_POLICIES."+name, []byte(record), patience); err != nil {
			t.Fatal(err)
		}
	}
	const other = "policies: [{name: mail, algorithm: leaking_bucket, outflow: 5/s, capacity: 20}]\n"
	for _, set := range []string{"", "set: mail\nprune: true\n"} {
		second := launch(t, "--config", configure(t, set+other), "--nats-url", first.nats)
		if set != "" {
			if status := second.end(); status != 2 || !strings.Contains(second.Log.String(), "take it out of one of them") {
				t.Errorf("a policy of two sets: ended with status %d", status)
			}
			continue
		}
		second.ready()
		second.says(`penstock_policies{state="ok"} 7`)
		second.says(`penstock_policies{state="unreadable"} 2`)
		for _, path := range []string{"/v1/check/door/acme", "/v1/check/signup/acme"} {
			if status, body := second.post(path, ""); status != 200 {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		if status := second.terminate(); status != 0 || strings.Count(second.Log.String(), "record that cannot be read") != 2 {
			t.Errorf("ended with status %d:\n%s", status, second.Log)
		}
	}
	// A record that is lost leaves a stream that nobody knows, until the policy is written again.
	if _, err := nc.Request("$JS.API.STREAM.PURGE.KV_PENSTOCK_POLICIES", []byte(`{"filter":"$KV.PENSTOCK_POLICIES.stripe"}`),
		patience); err != nil {
		t.Fatal(err)
	}
	third := launch(t, "--config", configure(t, other), "--nats-url", first.nats).ready()
	third.says(`penstock_policies{state="orphaned"} 1`)
	const again = `{"algorithm":"leaking_bucket","outflow":"1/m","capacity":3}`
	request, err := http.NewRequest(http.MethodPut, "http://"+third.http+"/v1/policies/stripe", strings.NewReader(again))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Errorf("written again: %s", response.Status)
	}
	third.says(`penstock_policies{state="orphaned"} 0`)
	if status := third.terminate(); status != 0 || !strings.Contains(third.Log.String(), "stream=PENSTOCK_stripe") ||
		!strings.Contains(third.Log.String(), "in order again") {
		t.Errorf("ended with status %d:\n%s", status, third.Log)
	}
	if status := first.terminate(); status != 0 || !strings.Contains(first.Log.String(), "level=ERROR") {
		t.Errorf("ended with status %d:\n%s", status, first.Log)
	}
}

func TestRequestsUnderWayAreAnsweredAtTheEnd(t *testing.T) {
	p := launch(t, "--config", configure(t, policies)).ready()
	conn, err := net.Dial("tcp", p.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	fmt.Fprint(conn, "POST /v1/jobs/stripe/acme HTTP/1.1\r\n"+
		"Host: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100") { // the handler reads the body
		t.Fatalf("%q, %v", line, err)
	}
	p.Signal(syscall.SIGTERM)
	eventually(t, "it still listens", func() bool {
		other, err := net.Dial("tcp", p.http)
		if err == nil {
			other.Close()
		}
		return err != nil
	})
	fmt.Fprint(conn, "pay")
	if _, err := in.ReadString('\n'); err != nil { // the empty line after 100
		t.Fatal(err)
	}
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "202") {
		t.Errorf("%q, %v", line, err)
	}
	if status := p.end(); status != 0 {
		t.Errorf("ended with status %d", status)
	}
}

func TestDrain(t *testing.T) {
	arrived := make(chan string, 10)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		arrived <- r.Header.Get("Penstock-Job") + " " + r.Header.Get("Penstock-Key") + " " + string(body)
	}))
	defer target.Close()
	p := launch(t, "--drain", "--config", configure(t, fmt.Sprintf(`
drain: {lease: 1s}
policies:
  - {name: stripe, algorithm: leaking_bucket, outflow: 100/s, capacity: 30, target: {http: {url: %q}}}
`, target.URL))).ready()
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	select {
	case got := <-arrived:
		if got != "stripe:1 acme pay" {
			t.Errorf("the target got %q", got)
		}
	case <-time.After(patience):
		t.Fatal("the job did not start")
	}
	// Once the partition has an owner, its valve says when jobs start.
	eventually(t, "no job is allowed at once", func() bool {
		_, body := p.post("/v1/jobs/stripe/acme", "pay")
		<-arrived
		return strings.Contains(body, `"verdict":"allowed"`) && strings.Contains(body, `"delay_ms":0`)
	})
	if status := p.terminate(); status != 0 {
		t.Errorf("ended with status %d", status)
	}
}

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
	problems := []string{"policies[0].name", "policies[0].algorithm", "policies[1].outflow", "colour"}
	good := configure(t, policies)
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
		{"validate with the file alone", []string{"validate", bad}, 2, 0, append(problems, bad+":4: colour", bad+":6: policies[0]")},
		{"validate two files", []string{"validate", bad, good}, 2, 1, []string{"want one file"}},
		{"no such file", []string{"--config", notDir + ".yaml"}, 1, 1, []string{"no such file"}},
		{"unknown flag", []string{"--colour"}, 2, 0, []string{"--colour"}},
		{"unknown command", []string{"valdate"}, 2, 1, []string{"did you mean validate?"}},
		{"HTTP port in use", []string{"--config", good, "--http-listen", busy.Addr().String()}, 1, 1, []string{inUse}},
		{"NATS port in use", []string{"--config", good, "--nats-listen", busy.Addr().String()}, 1, 1, []string{inUse}},
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
			var plain int // lines that are not the log's
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

func TestValidate(t *testing.T) {
	file := configure(t, policies)
	for _, args := range [][]string{{"validate", "--config", file}, {"validate", file}} {
		p := launch(t, args...)
		if status := p.end(); status != 0 || p.Log.String() != "" {
			t.Errorf("%s: ended with status %d, %s", args, status, p.Log)
		}
		if line := <-p.Lines; line != "the configuration is valid: 6 policies" {
			t.Errorf("%s: printed %q", args, line)
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
		"token_bucket, capacity: 3, refill: 1/s", "fixed_window, limit: 3, window: 1m").Replace(string(text))
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

func TestNATSMayComeLater(t *testing.T) {
	http, broker := proctest.FreeAddress(t), proctest.FreeAddress(t)
	p := launch(t, "--config", configure(t, policies), "--http-listen", http,
		"--nats-url", "nats://user:secret@"+broker)
	p.http = http
	eventually(t, "no HTTP while NATS is away", func() bool {
		conn, err := net.Dial("tcp", http)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if status, body := p.get("/healthz"); status != 200 {
		t.Errorf("healthz: %d %s", status, body)
	}
	if status, body := p.get("/readyz"); status != 503 {
		t.Errorf("readyz: %d %s", status, body)
	}
	if status, body := p.post("/v1/jobs/stripe/acme", ""); status != 503 {
		t.Errorf("a job: %d %s", status, body)
	}
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: broker})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	p.ready()
	if strings.Contains(p.nats, "secret") {
		t.Errorf("the ready line tells a password: %s", p.nats)
	}
	if status, body := p.post("/v1/jobs/stripe/acme", ""); status != 202 {
		t.Errorf("a job: %d %s", status, body)
	}
	if status := p.terminate(); status != 0 {
		t.Errorf("ended with status %d", status)
	}
	if !strings.Contains(p.Log.String(), "trying again") || strings.Contains(p.Log.String(), "secret") {
		t.Errorf("the log says nothing of the absence, or too much")
	}
}

func TestStopsWhileNATSIsAway(t *testing.T) {
	http := proctest.FreeAddress(t)
	p := launch(t, "--config", configure(t, policies), "--nats-url", "nats://"+proctest.FreeAddress(t), "--http-listen", http)
	eventually(t, "no HTTP while NATS is away", func() bool {
		conn, err := net.Dial("tcp", http)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if status := p.terminate(); status != 0 {
		t.Errorf("ended with status %d", status)
	}
}

// TestAnOldNATSServerIsNamed: what is found and what is needed, by both programs.
func TestAnOldNATSServerIsNamed(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	old := older(t, strings.TrimPrefix(server.URL(), "nats://"), "2.10.7")
	for _, name := range []string{"admitter", "drainer"} {
		p := launchProgram(t, name, "--config", configure(t, policies), "--nats-url", "nats://me:secret@"+old)
		if status := p.end(); status != 1 {
			t.Errorf("%s: ended with status %d", name, status)
		}
		for _, want := range []string{name + ": ", old + " is nats-server 2.10.7, and Penstock needs 2.14.0 or newer"} {
			if !strings.Contains(p.Log.String(), want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
		if strings.Contains(p.Log.String(), "secret") {
			t.Errorf("%s tells a password", name)
		}
	}
}

// older is the address of a server that says it has another version.
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
				_, _ = io.Copy(behind, client) // until one of them leaves
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
