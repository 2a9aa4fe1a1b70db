package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// OutboundFaults sets the faults in force, of policies and kinds.
func (r *Registry) OutboundFaults() func(faults map[[2]string]int) {
	gauge := r.gauge("penstock_outbound_route_faults",
		"Mistakes of the proxy's routes by policy and fault: policy (it does not exist, or "+
			"cannot pace calls, so requests get 502), tls (its files cannot be read: 502) or "+
			"cost (no limit has a cost of the route).",
		"policy", "fault")
	return func(faults map[[2]string]int) {
		gauge.Reset()
		for of, n := range faults {
			gauge.WithLabelValues(of[0], of[1]).Set(float64(n))
		}
	}
}

func (r *Registry) Outbound() func(policy, outcome string, waited time.Duration) {
	calls := r.counter("penstock_outbound_requests_total",
		"Requests to upstreams by outcome: answered, throttled (by the upstream), failed (no "+
			"answer), refused (by Penstock) or withdrawn (by the caller).",
		"policy", "outcome")
	waits := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "penstock_outbound_wait_seconds",
		Help: "Time for which requests to upstreams waited to start.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
			300},
	}, []string{"policy"})
	r.prometheus.MustRegister(waits)
	return func(policy, outcome string, waited time.Duration) {
		calls.WithLabelValues(policy, outcome).Inc()
		waits.WithLabelValues(policy).Observe(waited.Seconds())
	}
}
