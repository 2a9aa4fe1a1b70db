package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

const oneQueue = "policies: [{name: stripe, algorithm: leaking_bucket, outflow: 100/s, " +
	"capacity: 1000}]"

// Clients that stall in the middle of a large body hold no budget, and after seconds no connection.
func TestSlowClientsDelayNoOthers(t *testing.T) {
	p := launch(t, "--config", configure(t, oneQueue)).ready()
	const slow = 300
	ended := make(chan error, slow)
	began := time.Now()
	for i := range slow {
		what, size := "POST /v1/jobs/stripe/slow", 1<<20
		if i%10 == 0 {
			what, size = "PUT /v1/policies/stripe", 60<<10
		}
		conn, err := net.Dial("tcp", p.http)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\nx", what,
			size)
		go func() {
			if err := conn.SetReadDeadline(time.Now().Add(waittest.Patience())); err != nil {
				ended <- err
				return
			}
			answer, err := io.ReadAll(conn)
			if err == nil && !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
				err = fmt.Errorf("a slow client got %.200q", answer)
			}
			ended <- err
		}()
	}
	submitted, longest := 0, time.Duration(0)
	for left := slow; left > 0; submitted++ {
		sent := time.Now()
		if status, body := p.post(
			"/v1/jobs/stripe/k"+fmt.Sprint(submitted%100), "work"); status != http.StatusAccepted {
			t.Fatalf("submission %d beside the slow clients: %d %s", submitted, status, body)
		}
		longest = max(longest, time.Since(sent))
		for pending := true; pending && left > 0; {
			select {
			case err := <-ended:
				if left--; err != nil {
					t.Fatal(err)
				}
			case <-time.After(20 * time.Millisecond):
				pending = false
			}
		}
	}
	t.Logf("%d submissions, the slowest took %s; the slow clients were gone after %s", submitted,
		longest, time.Since(began))
}

// A page of any site can make its own name resolve to a visitor's machine; then its requests are
// same-site.
func TestDNSRebindingIsRefused(t *testing.T) {
	p := launch(t, "--config", configure(t, "")).ready()
	for host, status := range map[string]int{"evil.example:8080": 421, "localhost:8080": 200,
		p.http: 200} {
		r := p.ask(http.MethodGet, "/v1/policies", "", "Host", host, "Origin", "http://"+host,
			"Sec-Fetch-Site", "same-origin")
		if r.status != status {
			t.Errorf("host %s: %d", host, r.status)
		}
	}
}

func TestPoliciesOfTheAPICannotReachInside(t *testing.T) {
	var inside atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside.Add(1)
	}))
	defer target.Close()
	file := fmt.Sprintf(
		"policies: [{name: own, algorithm: leaking_bucket, outflow: 100/s, capacity: 10, target: "+
			"{http: {url: %q}}}]",
		target.URL)
	p := launch(t, "--config", configure(t, file), "--drain").ready()
	put := func(name, target string) (int, string) {
		t.Helper()
		r := p.ask(http.MethodPut, "/v1/policies/"+name,
			`{"algorithm":"leaking_bucket","outflow":"100/s","capacity":10,"target":{"http":`+
				target+`}}`)
		return r.status, r.body
	}
	for _, target := range []string{target.URL, "http://localhost:1", "http://169.254.169.254/",
		"http://[fd00:ec2::254]/", "http://" + p.http} {
		if status, body := put("new", fmt.Sprintf(`{"url":%q}`, target)); status != 400 ||
			!strings.Contains(body, "targets.allow") ||
			!strings.Contains(body, `"field":"target.http.url"`) {
			t.Errorf("%s: %d %s", target, status, body)
		}
	}
	if status, body := put("new",
		`{"url":"http://target.example","headers":{"Authorization":{"file":"/etc/passwd"}}}`); status != 400 ||
		!strings.Contains(body, `"field":"target.http.headers"`) {
		t.Errorf("headers from files: %d %s", status, body)
	}
	if status, body := p.post("/v1/jobs/own/a", "x"); status != http.StatusAccepted {
		t.Fatal(status, body)
	}
	eventually(t, "the operator's target is called", func() bool { return inside.Load() == 1 })
}

// A job's credentials do not appear in the API or the log, and a replay still has them.
func TestForwardedCredentialsDoNotShow(t *testing.T) {
	const secret = "Bearer of-the-job"
	var served atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != secret {
			t.Errorf("the target got %q", r.Header.Get("Authorization"))
		}
		if served.Add(1) == 1 {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, "I do not like ", r.Header.Get("Authorization"))
		}
	}))
	defer target.Close()
	file := fmt.Sprintf(
		"log: {level: debug}\npolicies: [{name: own, algorithm: leaking_bucket, outflow: 100/s, "+
			"capacity: 10, target: {http: {url: %q}}}]",
		target.URL)
	p := launch(t, "--config", configure(t, file), "--drain").ready()
	r := p.ask(http.MethodPost, "/v1/jobs/own/a", "x", "Penstock-Forward-Authorization", secret)
	if r.status != http.StatusAccepted {
		t.Fatalf("%+v", r)
	}
	eventually(t, "there is a dead letter", func() bool {
		_, body := p.get("/v1/dead/own")
		return strings.Contains(body, `"reason"`)
	})
	_, list := p.get("/v1/dead/own")
	_, letter := p.get("/v1/dead/own/1")
	if strings.Contains(list+letter, "of-the-job") ||
		!strings.Contains(letter, `"Penstock-Forward-Authorization":["[redacted]"]`) {
		t.Errorf("%s\n%s", list, letter)
	}
	if status, body := p.post("/v1/dead/own/1/replay", ""); status != http.StatusAccepted {
		t.Fatal(status, body)
	}
	eventually(t, "the target got it again", func() bool { return served.Load() == 2 })
	p.terminate()
	if log := p.Log.String(); strings.Contains(log, "of-the-job") {
		t.Errorf("the log has it:\n%s", log)
	}
}
