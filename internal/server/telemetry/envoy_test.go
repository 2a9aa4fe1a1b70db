package telemetry_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/telemetry"
	"github.com/penstock-mq/penstock/queue"
)

func TestLimitsOfGatewaysComeAndGo(t *testing.T) {
	r := telemetry.NewRegistry()
	r.Admission()
	decisions, failed := r.Envoy()
	exposes := func(line string, want bool) {
		t.Helper()
		recorder := httptest.NewRecorder()
		r.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(recorder,
			httptest.NewRequest("GET", "/metrics", nil))
		if got := strings.Contains(recorder.Body.String(), line); got != want {
			t.Errorf("%s is exposed: %v, want %v", line, got, want)
		}
	}
	decisions.Take(queue.Event{Type: jet.EventGateways, Data: []string{"envoy.a.b", "envoy.a.c"}})
	exposes(`penstock_checks_total{allowed="false",policy="envoy.a.b"} 0`, true)
	decisions.Take(queue.Event{Type: jet.EventChecked, Policy: "envoy.a.b"})
	decisions.Take(queue.Event{Type: jet.EventShadowed, Policy: "envoy.a.b", Name: "envoy.a.b",
		Value: 1, For: time.Second})
	exposes(`penstock_checks_total{allowed="false",policy="envoy.a.b"} 1`, true)
	exposes(`penstock_shadow_decisions_total{limit="envoy.a.b",over="true",policy="envoy.a.b"} 1`,
		true)
	exposes(`penstock_envoy_hits_total{limit="envoy.a.b",policy="envoy.a.b",stat="over_limit"} 0`,
		true)
	decisions.Take(queue.Event{Type: jet.EventHits, Policy: "envoy.a.b", Name: "envoy.a.b_x",
		Reason: "over_limit", Value: 7})
	exposes(`penstock_envoy_hits_total{limit="envoy.a.b_x",policy="envoy.a.b",stat="over_limit"} 7`,
		true)
	decisions.Take(queue.Event{Type: jet.EventGateways, Data: []string{"envoy.a.c"}})
	exposes(`"envoy.a.b"`, false)
	exposes(`penstock_checks_total{allowed="true",policy="envoy.a.c"} 0`, true)
	failed("Unavailable")
	exposes(`penstock_envoy_errors_total{code="Unavailable"} 1`, true)
}
