package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

type answered struct {
	status    int
	replayed  string
	Verdict   string `json:"verdict"`
	Job       string `json:"job"`
	Duplicate bool   `json:"duplicate"`
	Ended     string `json:"ended"`
	Letter    uint64 `json:"letter"`
	Detail    string `json:"detail"`
}

// send makes a request; the headers follow the body, as names and values in turn.
func (p *process) send(method, path, body string, header ...string) answered {
	p.t.Helper()
	r := p.ask(method, path, body, header...)
	t := answered{status: r.status, replayed: r.header.Get("Idempotent-Replayed")}
	if len(r.body) > 0 && json.Unmarshal([]byte(r.body), &t) != nil {
		p.t.Fatalf("%s %s: %s", method, path, r.body)
	}
	return t
}

type bank struct {
	mu       sync.Mutex
	declines bool
	keys     map[string][]string
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys[string(body)] = append(b.keys[string(body)], r.Header.Get("Idempotency-Key"))
	if b.declines {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
}

func (b *bank) decline(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.declines = yes
}

func (b *bank) asked(body string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.keys[body]...)
}

// Repeats of cancelled, purged and dead jobs must not be answered as accepted. The same holds for
// another payload under the same key, and replays keep their key.
func TestIdempotency(t *testing.T) {
	target := &bank{keys: map[string][]string{}}
	server := httptest.NewServer(target)
	defer server.Close()
	p := launch(t, "--drain", "--config", configure(t, fmt.Sprintf(`
drain: {lease: 1s}
policies:
  - {name: pay, algorithm: leaking_bucket, outflow: 100/s, capacity: 100, duplicate_window: 1h, target: {http: {url: %q}}}
  - {name: door, algorithm: token_bucket, capacity: 100, refill: 1/h, duplicate_window: 1h, queue: {capacity: 50}, target: {http: {url: %q}}}
`, server.URL, server.URL))).ready()

	for _, policy := range []string{"pay", "door"} {
		path := "/v1/jobs/" + policy + "/tenant"
		submit := func(key, body string, more ...string) answered {
			t.Helper()
			return p.send("POST", path, body, append([]string{"Idempotency-Key", key}, more...)...)
		}
		repeated := func(what string, got, first answered) {
			t.Helper()
			if got.status != 202 || !got.Duplicate || got.replayed != "true" ||
				got.Job != first.Job {
				t.Errorf("%s, %s: %+v after %+v", policy, what, got, first)
			}
		}

		// The same key in another bucket is another job.
		one := p.send("POST", path, "x", "Idempotency-Key", "b/order-1", "Penstock-Not-Before",
			"1h")
		two := p.send("POST", path+"/b", "x", "Idempotency-Key", "order-1", "Penstock-Not-Before",
			"1h")
		if one.status != 202 || two.status != 202 || one.Job == two.Job || two.Duplicate {
			t.Errorf("%s: two tenants' jobs are %+v and %+v", policy, one, two)
		}

		first := submit("waits", "a", "Penstock-Not-Before", "1h")
		if first.status != 202 || first.Duplicate || first.replayed != "" {
			t.Errorf("%s: %+v", policy, first)
		}
		repeated("one that waits", submit("waits", "a", "Penstock-Not-Before", "1h"), first)
		if got := submit("waits", "b", "Penstock-Not-Before", "1h"); got.status != 422 {
			t.Errorf("%s, another payload: %+v", policy, got)
		}

		first = submit("done", policy+" done")
		eventually(t, "the job is done", func() bool {
			return len(target.asked(policy+" done")) == 1 && depth(t, p, policy) == 2
		})
		repeated("one that is done", submit("done", policy+" done"), first)
		eventually(t, "another payload is refused", func() bool {
			return submit("done", "other").status == 422
		})

		// Of jobs that ended without a run.
		first = submit("cancelled", "c", "Penstock-Not-Before", "1h")
		eventually(t, "the job is cancelled", func() bool {
			return p.send("DELETE", "/v1/jobs/"+first.Job, "").status == 200
		})
		if got := submit("cancelled", "c", "Penstock-Not-Before", "1h"); got.status != 409 ||
			got.Ended != "cancelled" || got.Job != first.Job {
			t.Errorf("%s, a cancelled one: %+v", policy, got)
		}
		if got := submit("cancelled", "d", "Penstock-Not-Before", "1h"); got.status != 422 {
			t.Errorf("%s, another payload than that of a cancelled one: %+v", policy, got)
		}
		if got := p.send("POST", "/v1/purge/"+policy+"/tenant", ""); got.status != 200 {
			t.Fatalf("purge: %+v", got)
		}
		if got := submit("waits", "a", "Penstock-Not-Before", "1h"); got.status != 409 ||
			got.Ended != "purged" {
			t.Errorf("%s, a purged one: %+v", policy, got)
		}

		// Of a dead job that was replayed.
		target.decline(true)
		first = submit("dead", policy+" dead")
		var dead answered
		eventually(t, "the repeat of a dead one is refused", func() bool {
			dead = submit("dead", policy+" dead")
			return dead.status == 409
		})
		if dead.Ended != "dead" || dead.Letter == 0 || dead.Job != first.Job {
			t.Errorf("%s, a dead one: %+v", policy, dead)
		}
		target.decline(false)
		replay := p.send("POST", fmt.Sprintf("/v1/dead/%s/%d/replay", policy, dead.Letter), "")
		if replay.status != 202 {
			t.Fatalf("replay: %+v", replay)
		}
		eventually(t, "the replay ran", func() bool {
			return len(target.asked(policy+" dead")) == 2
		})
		repeated("one that was replayed", submit("dead", policy+" dead"), replay)

		// A replay without a client's key has the key of the job's earlier runs.
		target.decline(true)
		p.send("POST", path, policy+" keyless")
		var letters struct {
			Letters []struct{ ID uint64 } `json:"letters"`
		}
		eventually(t, "there is its letter", func() bool {
			_, body := p.get("/v1/dead/" + policy)
			return json.Unmarshal([]byte(body), &letters) == nil && len(letters.Letters) == 1
		})
		target.decline(false)
		if got := p.send("POST",
			fmt.Sprintf("/v1/dead/%s/%d/replay", policy, letters.Letters[0].ID), ""); got.status !=
			202 {
			t.Fatalf("replay: %+v", got)
		}
		eventually(t, "the replay ran", func() bool {
			return len(target.asked(policy+" keyless")) == 2
		})
		if keys := target.asked(policy + " keyless"); keys[0] != keys[1] {
			t.Errorf("%s: a replay went as %v", policy, keys)
		}
	}

	nc, err := nats.Connect(p.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for body, want := range map[string]string{"n": "202", "other": "422"} {
		m := &nats.Msg{Subject: "penstock.submit.pay.nats", Data: []byte("n"),
			Header: nats.Header{"Idempotency-Key": {"order " + body},
				"Penstock-Not-Before": {"1h"}}}
		if _, err := nc.RequestMsg(m, waittest.Patience()); err != nil {
			t.Fatal(err)
		}
		m.Data = []byte(body)
		answer, err := nc.RequestMsg(m, waittest.Patience())
		if err != nil || answer.Header.Get("Penstock-Status") != want ||
			want == "202" && answer.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("a repeat over NATS with %q: %v %s, %v", body, answer.Header, answer.Data, err)
		}
	}
}

func depth(t *testing.T, p *process, policy string) int {
	t.Helper()
	_, body := p.get("/v1/buckets/" + policy + "/tenant")
	var b struct{ Depth int }
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return b.Depth
}
