package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

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
	hits := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_envoy_hits_total",
		Help: "Hits of gateways' limits, by the names of envoyproxy/ratelimit. A hit counts in " +
			"several statistics: total_hits, within_limit or over_limit, near_limit (above " +
			"80 %), and shadow_mode (over_limit without effect)."},
		[]string{"policy", "limit", "stat"})
	r.admission.Register(hits)
	r.admission.On(func(e queue.Event) {
		hits.WithLabelValues(e.Policy, e.Name, e.Reason).Add(float64(e.Value))
	}, queue.EventHits)
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
			for _, stat := range []string{"total_hits", "within_limit", "near_limit",
				"over_limit"} {
				hits.WithLabelValues(name, name, stat)
			}
		}
		before = names
	}, queue.EventGateways)
	return r.admission, func(code string) { failures.WithLabelValues(code).Inc() }
}
