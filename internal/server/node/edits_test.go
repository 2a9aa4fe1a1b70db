package node_test

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestAWaitingJobIsChanged(t *testing.T) {
	slow := paced("slow", 1, 100)
	slow.Outflow = algorithms.Rate{Count: 1, Per: 24 * 3600e9}
	slow.Peak = algorithms.Rate{}
	var log bytes.Buffer
	options := penstock.Options{Policies: []policy.Policy{slow},
		Server: embedded.Options{Dir: t.TempDir()},
		Logger: slog.New(slog.NewTextHandler(&log, nil))}
	p := open(t, options)
	stop := run(t, p)
	ask := func(method, path string, header ...string) string {
		t.Helper()
		r := httptest.NewRequest(method, "/v1/jobs/"+path, nil)
		r.Host = "localhost"
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
		}
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		return w.Body.String()
	}
	until := func(method, path string, words ...string) {
		t.Helper()
		waittest.Until(t, path+" says "+strings.Join(words, " and "), func() bool {
			answer := ask(method, path)
			for _, word := range words {
				if !strings.Contains(answer, word) {
					return false
				}
			}
			return true
		})
	}
	for range 5 {
		ask("POST", "slow/a")
	}
	ask("POST", "slow/a", "Penstock-Not-Before", "1h")
	until("GET", "slow:6", `"state":"delayed"`)
	until("PATCH", "slow:6?run=yes", "run: must be 1, or left out")
	until("PATCH", "slow:6?run=1&front=1", `"state":"waiting","position":0`, `"changed":true`)
	until("PATCH", "slow:5?priority=9&deadline=2h", `"position":1`, `"priority":9`, `"deadline":"2`)
	until("PATCH", "slow:5?deadline=none", `"priority":9`)
	if got := ask("GET", "slow:5"); strings.Contains(got, "deadline") {
		t.Errorf("a job without a deadline: %s", got)
	}
	if got := ask("PATCH", "slow:4?deadline=1ms"); !strings.Contains(got, `"changed":true`) {
		t.Error(got)
	}
	until("GET", "slow:4", `"state":"dead"`, `"reason":"deadline"`)
	for path, want := range map[string]string{"slow:5": `"query"`, "slow:5?priority=10": "-9 to 9",
		"slow:5?deadline=soon": "or none", "slow:5?run=0": `"run"`,
		"slow:99?run=1": "never existed", "none:1?run=1": "unknown policy"} {
		if got := ask("PATCH", path); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q in it", path, got, want)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if text := log.String(); !strings.Contains(text, "job=slow:5 key=a run=false front=false "+
		"priority=9 deadline=2") || strings.Contains(text, "0xc0") {
		t.Errorf("the log does not tell the values that a job was changed to:\n%s", text)
	}
	p = open(t, options)
	stop = run(t, p)
	until("GET", "slow:6", `"state":"waiting","position":0`, `"changed":true`)
	until("GET", "slow:5", `"position":1`, `"priority":9`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
