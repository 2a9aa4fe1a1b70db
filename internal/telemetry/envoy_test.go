package telemetry_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/telemetry"
)

// The limits of gateways have their series from the start, and lose them with their files.
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
	decisions.Limits([]string{"envoy.a.b", "envoy.a.c"})
	exposes(`penstock_checks_total{allowed="false",policy="envoy.a.b"} 0`, true)
	decisions.Checked("envoy.a.b", false)
	decisions.Shadowed("envoy.a.b", "envoy.a.b", true, time.Second)
	exposes(`penstock_checks_total{allowed="false",policy="envoy.a.b"} 1`, true)
	exposes(`penstock_shadow_decisions_total{limit="envoy.a.b",over="true",policy="envoy.a.b"} 1`,
		true)
	decisions.Limits([]string{"envoy.a.c"})
	exposes(`"envoy.a.b"`, false)
	exposes(`penstock_checks_total{allowed="true",policy="envoy.a.c"} 0`, true)
	failed("Unavailable")
	exposes(`penstock_envoy_errors_total{code="Unavailable"} 1`, true)
}
