package telemetry

import (
	"slices"

	"github.com/penstock-mq/penstock/queue"
)

// Envoy registers the metrics of gateways: decisions count as checks by the name of the limit. Call
// it after [Registry.Admission].
func (r *Registry) Envoy() (decisions queue.Sink, failed func(code string)) {
	failures := r.counter("penstock_envoy_errors_total",
		"Gateway requests answered with an error, by gRPC code.", "code")
	for _, code := range []string{"InvalidArgument", "Unauthenticated", "PermissionDenied",
		"Unavailable"} {
		failures.WithLabelValues(code)
	}
	var before []string
	r.admission.On(func(e queue.Event) {
		names, _ := e.Data.([]string)
		for _, name := range before {
			if !slices.Contains(names, name) {
				r.admission.Forget(name)
			}
		}
		for _, name := range names {
			r.admission.Begin(r.checked, name)
		}
		before = names
	}, queue.EventGateways)
	return r.admission, func(code string) { failures.WithLabelValues(code).Inc() }
}
