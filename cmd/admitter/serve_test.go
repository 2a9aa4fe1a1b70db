package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

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
	const parts = "[+] process: running\n[+] nats: connected\n[+] policies: 6 are followed, with " +
		"their streams\n[+] storage: can be written\n[+] files: as they were read last\nready\n"
	if status, body := p.get("/readyz?verbose"); status != 200 || body != parts {
		t.Errorf("/readyz?verbose: %d %s", status, body)
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
	answer, err := nc.Request("penstock.submit.stripe.other", []byte("pay"), waittest.Patience())
	if err != nil || answer.Header.Get("Penstock-Status") != "202" {
		t.Errorf("%v, %v", answer, err)
	}
	// A plain NATS request gets JetStream's own answer.
	answer, err = nc.Request("penstock.jobs.stripe.third", []byte("pay"), waittest.Patience())
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
	p.stop()

	p = launch(t, "--config", file).ready()
	p.posts("/v1/jobs/stripe/acme", "pay", 429)
	p.stop()
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
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
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
	if _, err := in.ReadString('\n'); err != nil {
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
		arrived <- r.Header.Get("Penstock-Job") + " " + r.Header.Get("Penstock-Key") + " " +
			string(body)
	}))
	defer target.Close()
	p := launch(t, "--drain", "--config", configure(t, fmt.Sprintf(`
drain: {lease: 1s}
policies:
  - {name: stripe, algorithm: leaking_bucket, outflow: 1000/s, capacity: 30, target: {http: {url: %q}}}
`, target.URL))).ready()
	if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	select {
	case got := <-arrived:
		if got != "stripe:1 acme pay" {
			t.Errorf("the target got %q", got)
		}
	case <-time.After(waittest.Patience()):
		t.Fatal("the job did not start")
	}
	// Once the partition has an owner, its valve reports starts. The rate is higher than that of
	// these questions.
	eventually(t, "no job is allowed at once", func() bool {
		_, body := p.post("/v1/jobs/stripe/acme", "pay")
		<-arrived
		return strings.Contains(body, `"verdict":"allowed"`) &&
			strings.Contains(body, `"delay_ms":0`)
	})
	p.stop()
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
	p.posts("/v1/jobs/stripe/acme", "", 503)
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: broker})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	p.ready()
	if strings.Contains(p.nats, "secret") {
		t.Errorf("the ready line tells a password: %s", p.nats)
	}
	p.posts("/v1/jobs/stripe/acme", "", 202)
	p.stop()
	if !strings.Contains(p.Log.String(), "retrying") ||
		strings.Contains(p.Log.String(), "secret") {
		t.Errorf("the log says nothing of the absence, or too much")
	}
}

func TestStopsWhileNATSIsAway(t *testing.T) {
	http := proctest.FreeAddress(t)
	p := launch(t, "--config", configure(t, policies), "--nats-url",
		"nats://"+proctest.FreeAddress(t), "--http-listen", http)
	eventually(t, "no HTTP while NATS is away", func() bool {
		conn, err := net.Dial("tcp", http)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	p.stop()
}
