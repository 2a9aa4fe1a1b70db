package penstock_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
)

func TestKeepDone(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) == "bad" {
			w.WriteHeader(http.StatusNotFound)
		} else {
			w.WriteHeader(http.StatusCreated)
		}
		answer := "by " + r.Header.Get("Authorization") + strings.Repeat("ü", 1000)
		if _, err := io.WriteString(w, answer); err != nil {
			t.Error(err)
		}
	}))
	defer target.Close()
	pay := paced("pay", 1000, 10)
	pay.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: target.URL}}
	pay.ResultRetention = policy.Duration(time.Hour)
	p := open(t, penstock.Options{Policies: []policy.Policy{pay, paced("other", 1000, 10)},
		AllowTargets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	stop := run(t, p)
	ask := func(method, path, body string, header ...string) string {
		t.Helper()
		r := httptest.NewRequest(method, "/v1"+path, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Penstock-Forward-Authorization", "Bearer abcdefgh")
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
		}
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		return w.Body.String()
	}
	until := func(path string, words ...string) {
		t.Helper()
		waittest.Until(t, path+" says "+strings.Join(words, " and "), func() bool {
			answer := ask("GET", path, "")
			for _, word := range words {
				if !strings.Contains(answer, word) {
					return false
				}
			}
			return !strings.Contains(answer, "abcdefgh")
		})
	}
	ask("POST", "/jobs/pay/a", "good")
	until("/jobs/pay:1", `"state":"done"`, `"key":"a"`, `"status":201`, `"duration_ms":`,
		`"attempts":0`, `"answer":"by [redacted]ü`, `ü"`)
	ask("POST", "/jobs/pay/b", "bad")
	until("/jobs/pay:2", `"state":"dead"`, `"letter":1`, `"reason":"permanent"`, `"ended_at":`)
	ask("POST", "/jobs/pay/a", "", "Penstock-Not-Before", "1h")
	until("/jobs/pay:3", `"state":"delayed"`)
	ask("DELETE", "/jobs/pay:3", "")
	until("/jobs/pay:3", `"state":"cancelled"`, `"accepted_at":"2`)
	until("/history/pay/a", `{"jobs":[{"job":"pay:3",`, `,{"job":"pay:1",`, `"key":"a"`)
	until("/history/pay", `{"jobs":[{"job":"pay:3",`, `,{"job":"pay:2",`, `,{"job":"pay:1",`)
	until("/history/pay?limit=1", `{"jobs":[{"job":"pay:3",`, `"next":3}`)
	until("/history/pay?before=2", `{"jobs":[{"job":"pay:1",`, `}]}`)
	until("/history/other", `{"jobs":[]}`)
	if err := stop(); err != nil {
		t.Error(err)
	}
}
