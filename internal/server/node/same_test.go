package node_test

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
)

// TestNATSAnswersAsHTTPDoes sends each request over both, for two equal policies, and compares
// status, headers and each field of the answer.
func TestNATSAnswersAsHTTPDoes(t *testing.T) {
	var policies []policy.Policy
	for _, way := range []string{"http", "nats"} {
		slow := paced("slow-"+way, 1, 3)
		slow.MaxAge = policy.Duration(1e15)
		mail := paced("mail-"+way, 1000, 10)
		mail.Retry.MaxAttempts = 1
		policies = append(policies, slow, mail, door("door-"+way))
	}
	p := open(t, penstock.Options{Policies: policies, ServeNATS: true, AdmitOnly: true})
	run(t, p)
	nc, err := p.Connect("client")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	const later = "Penstock-Not-Before: 1h"
	for _, c := range []struct {
		method, path, subject, body string
		status                      int
		headers                     []string
	}{
		{"POST", "/v1/jobs/slow/a", "submit.slow.a", "x", 202,
			[]string{"Idempotency-Key: one", later, "Penstock-Tag: eu", "Penstock-Priority: 3"}},
		{"POST", "/v1/jobs/slow/a", "submit.slow.a", "x", 202, []string{"Idempotency-Key: one"}},
		{"POST", "/v1/jobs/slow/a", "submit.slow.a", "y", 422, []string{"Idempotency-Key: one"}},
		{"POST", "/v1/jobs/slow/a", "submit.slow.a", "x", 202, []string{later}},
		{"POST", "/v1/jobs/slow/a", "submit.slow.a", "x", 202, []string{later}},
		{"POST", "/v1/jobs/slow/a", "submit.slow.a", "x", 429, []string{later}},
		{"POST", "/v1/jobs/slow/a", "submit.slow.a", "x", 400, []string{"Penstock-Cots: 3"}},
		{"POST", "/v1/jobs/door/a", "submit.door.a", "x", 409, nil},
		{"POST", "/v1/jobs/none/a", "submit.none.a", "x", 404, nil},
		{"POST", "/v1/check/door/a", "check.door.a", "", 200, nil},
		{"GET", "/v1/check/door/a", "check.door.a", "", 200, []string{"Penstock-Peek: true"}},
		{"POST", "/v1/check/door/a", "check.door.a", "", 200, nil},
		{"POST", "/v1/check/door/a", "check.door.a", "", 429, nil},
		{"POST", "/v1/check/slow/a", "check.slow.a", "", 409, nil},
		{"DELETE", "/v1/check/door/a", "check.door.a", "", 204, []string{"Penstock-Refund: true"}},
		{"GET", "/v1/jobs/slow:1", "job.slow.1", "", 200, nil},
		{"GET", "/v1/jobs/slow:99", "job.slow.99", "", 404, nil},
		{"GET", "/v1/jobs/none:1", "job.none.1", "", 404, nil},
		{"GET", "/v1/buckets/slow/a", "bucket.slow.a", "", 200, nil},
		{"GET", "/v1/buckets/slow/new/b%20c", "bucket.slow.new/b%20c", "", 200, nil},
		{"GET", "/v1/buckets/door/a", "bucket.door.a", "", 409, nil},
		{"GET", "/v1/buckets/none/a", "bucket.none.a", "", 404, nil},
		{"GET", "/v1/buckets/slow/a", "bucket.slow.a", "x", 400, nil},
	} {
		named := func(text, way string) string {
			for _, name := range []string{"slow", "mail", "door"} {
				text = strings.Replace(text, name, name+"-"+way, 1)
			}
			return text
		}
		r := httptest.NewRequest(c.method, "http://localhost"+named(c.path, "http"),
			strings.NewReader(c.body))
		m := nats.NewMsg("penstock." + named(c.subject, "nats"))
		m.Data = []byte(c.body)
		for _, header := range c.headers {
			name, value, _ := strings.Cut(header, ": ")
			m.Header.Set(name, value)
			if name != "Penstock-Peek" && name != "Penstock-Refund" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		answer, err := nc.RequestMsg(m, waittest.Patience())
		if err != nil {
			t.Fatal(c.subject, err)
		}
		if got := answer.Header.Get("Penstock-Status"); got != strconv.Itoa(w.Code) ||
			w.Code != c.status {
			t.Errorf("%s: %d over HTTP, %s over NATS, want %d: %s", c.subject, w.Code, got,
				c.status, answer.Data)
		}
		compared := 0
		for name, values := range w.Header() {
			if !strings.Contains(strings.ToLower(name), "ratelimit") && name != "Content-Type" &&
				name != "Retry-After" && name != "Idempotent-Replayed" {
				continue
			}
			compared++
			there := ""
			for other, theirs := range answer.Header {
				if strings.EqualFold(other, name) {
					there = theirs[0]
				}
			}
			if alike(values[0]) != alike(there) {
				t.Errorf("%s: %s is %q over HTTP, %q over NATS", c.subject, name, values[0], there)
			}
		}
		if compared+1 != len(answer.Header) {
			t.Errorf("%s: %v over HTTP, %v over NATS", c.subject, w.Header(), answer.Header)
		}
		over, there := fields(t, w.Body.Bytes()), fields(t, answer.Data)
		if !reflect.DeepEqual(over, there) {
			t.Errorf("%s: over HTTP\n%s, over NATS\n%s", c.subject, w.Body, answer.Data)
		}
	}
}

func alike(text string) string {
	text = strings.ReplaceAll(text, "-nats", "-http")
	if text, _, cut := strings.Cut(text, ";t="); cut {
		return text
	}
	if n, err := strconv.Atoi(text); err == nil && n > 1000 {
		return "a while"
	}
	return text
}

func fields(t *testing.T, body []byte) map[string]any {
	t.Helper()
	all := map[string]any{}
	if len(body) == 0 {
		return all
	}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(body), "-nats", "-http")),
		&all); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for name, value := range all {
		if _, number := value.(float64); number && strings.HasSuffix(name, "_ms") ||
			strings.HasSuffix(name, "_at") || name == "not_before" {
			all[name] = "a time"
		}
	}
	return all
}
