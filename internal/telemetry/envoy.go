package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/admission/envoy"
)

// Envoy registers the metrics of Envoy's rate limit service: decisions, counted as checks by the
// name of the limit, and failed requests by code. Call it once, after [Registry.Admission].
func (r *Registry) Envoy() (decisions envoy.Observer, failed func(code string)) {
	failures := r.counter("penstock_envoy_errors_total",
		"Requests of gateways that were answered with an error, by its code in gRPC.", "code")
	for _, code := range []string{"InvalidArgument", "Unauthenticated", "PermissionDenied",
		"Unavailable"} {
		failures.WithLabelValues(code)
	}
	a := r.admission
	var before []string
	return envoy.Observer{
		Limits: func(names []string) {
			for _, name := range before {
				if !slices.Contains(names, name) {
					of := prometheus.Labels{"policy": name}
					a.checks.DeletePartialMatch(of)
					a.shadowed.DeletePartialMatch(of)
					a.shadowedBy.DeletePartialMatch(of)
				}
			}
			for _, name := range names {
				a.checks.WithLabelValues(name, "true")
				a.checks.WithLabelValues(name, "false")
			}
			before = names
		},
		Checked:  a.Checked,
		Shadowed: a.Shadowed,
	}, func(code string) { failures.WithLabelValues(code).Inc() }
}
