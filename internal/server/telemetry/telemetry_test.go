package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/internal/server/telemetry"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

func scrape(t *testing.T, r *telemetry.Registry) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	r.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(recorder,
		httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(recorder.Result().Body)
	if err != nil || recorder.Code != 200 {
		t.Fatalf("status %d, %v", recorder.Code, err)
	}
	var lines []string
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "penstock_") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestMetrics(t *testing.T) {
	r := telemetry.NewRegistry()
	a, d, s := r.Admission(), r.Drain(), r.Store()
	a.Take(queue.Event{Type: jet.EventStored, Data: jet.Storage{Fill: jet.Fill{Used: 1},
		Jobs:   map[string]jet.Fill{"stripe": {Used: 3, Max: 5}},
		Dead:   map[string]uint64{"stripe": 2},
		Copies: map[string]jet.Copies{"jobs": {Lacking: 2, Current: 2, Wanted: 3}}}})
	a.Take(queue.Event{Type: jet.EventInventory, Data: store.Inventory{OK: 3, Draining: 2,
		Unreadable: map[string]error{"odd": nil}}})
	r.QueueJobs(func(ctx context.Context) (map[string]uint64, error) {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Second {
			t.Error("no deadline of a second")
		}
		return map[string]uint64{"stripe": 4711}, nil
	})
	r.NATS(func() bool { return true })
	r.FileRead()("clients", errors.New("bad"))
	r.Audit(func() []audit.Figure {
		return []audit.Figure{{Policy: "stripe", Limit: "outflow", Worst: 0.95, Broken: 2,
			Incomplete: true}}
	})
	a.Take(queue.Event{Type: jet.EventAdmitted, Policy: "stripe", Name: "queued"})
	a.Take(queue.Event{Type: jet.EventAdmitted, Policy: "stripe", Name: "queued"})
	a.Take(queue.Event{Type: jet.EventAdmitted, Policy: "stripe", Name: "rejected"})
	a.Take(queue.Event{Type: jet.EventChecked, Policy: "signup", Value: jet.Whether(true)})
	a.Take(queue.Event{Type: jet.EventChecked, Policy: "signup", Value: jet.Whether(false)})
	a.Take(queue.Event{Type: jet.EventTicked, Policy: "stripe", Name: "missed"})
	a.Take(queue.Event{Type: jet.EventShadowed, Policy: "signup", Name: "next", Value: 1,
		For: 1500 * time.Millisecond})
	at := time.Now()
	for _, e := range []queue.Event{
		{Type: queue.EventStarted, For: 700 * time.Microsecond, Accepted: at.Add(-90 * time.Second),
			At: at, Shadow: map[string]int64{"next": 250}},
		{Type: queue.EventStarted, For: -time.Second, Accepted: at.Add(time.Second), At: at},
		{Type: jet.EventReturned, Name: "rate"},
		{Type: jet.EventLate, Name: "processor", For: 1500 * time.Millisecond},
		{Type: jet.EventLimitBlocked, Name: "daily", For: 3 * time.Second},
		{Type: queue.EventDone, Name: "done"},
		{Type: jet.EventOwned, Value: 8},
		{Type: jet.EventOwned, Value: 5},
	} {
		e.Policy = "stripe"
		d.Take(e)
	}
	for _, e := range []queue.Event{{Name: "nats", Value: 404}, {Name: "nats", Value: 202},
		{Name: "http", Value: 404}} {
		e.Type = jet.EventAnswered
		a.Take(e)
	}
	s.Take(queue.Event{Type: jet.EventStoreUp})
	s.Take(queue.Event{Type: jet.EventStoreUp, Value: 1})
	s.Take(queue.Event{Type: jet.EventFellBack, Policy: "signup", Name: "local"})

	got := scrape(t, r)
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAdmittersSeriesComeWithTheFirstAnswerAndGoWithTheirPolicy(t *testing.T) {
	r := telemetry.NewRegistry()
	a := r.Admission()
	a.Take(queue.Event{Type: jet.EventFollowed, Data: inforce.Entries{
		"stripe": {Policy: policy.Policy{Name: "stripe",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket}}.WithDefaults()},
		"signup": {Policy: policy.Policy{Name: "signup",
			Rule: policy.Rule{Algorithm: policy.FixedWindow}}.WithDefaults()},
	}})
	a.Take(queue.Event{Type: jet.EventApplyFailed, Policy: "stripe", Value: jet.Whether(false)})
	if got := scrape(t, r); strings.Contains(got, "policy=") {
		t.Errorf("series of policies without work:\n%s", got)
	}
	a.Take(queue.Event{Type: jet.EventAdmitted, Policy: "stripe", Name: "queued"})
	a.Take(queue.Event{Type: jet.EventChecked, Policy: "signup", Value: jet.Whether(true)})
	a.Take(queue.Event{Type: jet.EventWithoutDrainer, Policy: "stripe",
		Value: jet.Whether(true)})
	a.Take(queue.Event{Type: jet.EventApplyFailed, Policy: "stripe", Value: jet.Whether(true)})
	got := scrape(t, r)
	for _, want := range []string{
		`penstock_admissions_total{policy="stripe",verdict="queued"} 1`,
		`penstock_admissions_total{policy="stripe",verdict="rejected"} 0`,
		`penstock_checks_total{allowed="false",policy="signup"} 0`,
		`penstock_policy_without_drainer{policy="stripe"} 1`,
		`penstock_apply_failed{policy="stripe"} 1`,
		`penstock_http_errors_total{status="503"} 0`,
		`penstock_nats_errors_total{status="429"} 0`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	a.Take(queue.Event{Type: jet.EventWithoutDrainer, Policy: "stripe",
		Value: jet.Whether(false)})
	a.Take(queue.Event{Type: jet.EventApplyFailed, Policy: "gone", Value: jet.Whether(true)})
	if got := scrape(t, r); strings.Contains(got, "without_drainer{") || strings.Contains(got, `"gone"`) {
		t.Errorf("got\n%s", got)
	}
	a.Take(queue.Event{Type: jet.EventFollowed, Data: inforce.Entries{
		"stripe": nil, "signup": nil}})
	if got := scrape(t, r); strings.Contains(got, "policy=") {
		t.Errorf("left of policies that are gone:\n%s", got)
	}
}

func TestRuntimeMetricsAreThere(t *testing.T) {
	recorder := httptest.NewRecorder()
	handler := telemetry.NewRegistry().Handler(slog.New(slog.DiscardHandler))
	handler.ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	for _, name := range []string{"go_goroutines ", "process_cpu_seconds_total "} {
		if !strings.Contains(recorder.Body.String(), "\n"+name) {
			t.Errorf("no %s", name)
		}
	}
}

func TestLogger(t *testing.T) {
	for _, test := range []struct {
		level  slog.Level
		format string
		want   string
	}{
		{slog.LevelDebug, "text",
			"level=DEBUG msg=a\nlevel=INFO msg=a\nlevel=WARN msg=a\nlevel=ERROR msg=a\n"},
		{slog.LevelInfo, "text", "level=INFO msg=a\nlevel=WARN msg=a\nlevel=ERROR msg=a\n"},
		{slog.LevelWarn, "json",
			`{"level":"WARN","msg":"a"}` + "\n" + `{"level":"ERROR","msg":"a"}` + "\n"},
		{slog.LevelError, "text", "level=ERROR msg=a\n"},
	} {
		var out bytes.Buffer
		logger, err := telemetry.NewLogger(&out, test.level, test.format)
		if err != nil {
			t.Fatal(err)
		}
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn,
			slog.LevelError} {
			// A record without a time is written without one.
			record := slog.NewRecord(time.Time{}, level, "a", 0)
			if logger.Handler().Enabled(t.Context(), level) {
				if err := logger.Handler().Handle(t.Context(), record); err != nil {
					t.Fatal(err)
				}
			}
		}
		if out.String() != test.want {
			t.Errorf("%s, %s: wrote\n%s", test.level, test.format, &out)
		}
	}
	if _, err := telemetry.NewLogger(io.Discard, slog.LevelInfo, "xml"); err == nil {
		t.Error("format xml is accepted")
	}
}

// Exemplars need OpenMetrics 1.0, which Prometheus requests.
func TestOpenMetrics(t *testing.T) {
	r := telemetry.NewRegistry()
	r.Admission().Take(queue.Event{Type: jet.EventAdmitted, Policy: "stripe", Name: "queued"})
	request := httptest.NewRequest("GET", "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.1")
	recorder := httptest.NewRecorder()
	r.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(recorder, request)
	kind, text := recorder.Header().Get("Content-Type"), recorder.Body.String()
	if !strings.HasPrefix(kind, "application/openmetrics-text; version=1.0.0") ||
		!strings.HasSuffix(text, "# EOF\n") ||
		!strings.Contains(text, "# TYPE penstock_admissions counter") {
		t.Errorf("%s:\n%s", kind, text)
	}
}
