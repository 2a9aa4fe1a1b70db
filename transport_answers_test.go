package penstock_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/policy"
)

// Whether the caller reads the body, or looks at the status alone.
func TestATransportReadsThrottlesInOtherWords(t *testing.T) {
	api := paced("api", 1000, 100)
	api.Concurrency, api.Retry.MaxCooldown = 1, policy.Duration(time.Second)
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	for name, c := range map[string]struct {
		like, body string
		status     int
		read       bool
	}{
		"a 403": {"github", `{"message": "You have exceeded a secondary rate limit."}`, 403, false},
		"a 200 in parts": {"shopify", `{"errors": [{"extensions": {"code": "THROTTLED"}}],
			"extensions": {"cost": {"requestedQueryCost": 9, "throttleStatus":
			{"currentlyAvailable": 0, "restoreRate": 1}}}}`, 200, true},
	} {
		var starts []time.Time
		target := httptest.NewServer(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if starts = append(starts, time.Now()); len(starts) > 1 {
					return
				}
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body[:9])
				w.(http.Flusher).Flush()
				fmt.Fprint(w, c.body[9:])
			}))
		client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api",
			Like: c.like}}
		for range 2 {
			response, err := client.Get(target.URL)
			if err != nil {
				t.Fatal(err)
			}
			if c.read {
				if body, err := io.ReadAll(response.Body); err != nil ||
					len(starts) == 1 && string(body) != c.body {
					t.Errorf("%s: %q, %v", name, body, err)
				}
			}
			if err := response.Body.Close(); err != nil {
				t.Error(err)
			}
		}
		if pause := starts[1].Sub(starts[0]); pause < time.Second {
			t.Errorf("%s: the next began after %v", name, pause)
		}
		target.Close()
	}
}

func TestATransportRefusesRulesThatMakeNoSense(t *testing.T) {
	client := &http.Client{Transport: &penstock.Transport{Like: "githob",
		Answers: []policy.AnswerRule{{Means: "done"}}}}
	_, err := client.Get("http://127.0.0.1:1/")
	if err == nil || !strings.Contains(err.Error(), "like: ") ||
		!strings.Contains(err.Error(), "answers[0]: requires a status") {
		t.Error(err)
	}
}
