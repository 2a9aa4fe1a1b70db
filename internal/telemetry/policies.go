package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/policy/store"
)

// Policies reports the stored policies. It is safe for concurrent use.
type Policies struct {
	stored      *prometheus.GaugeVec
	retirements prometheus.Counter
}

// Policies registers the metrics of stored policies. Call it once.
func (r *Registry) Policies() *Policies {
	p := &Policies{
		stored: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "penstock_policies",
			Help: "Policies by state: ok, retired, unreadable (a damaged or newer record) " +
				"or orphaned (a stream " +
				"without a record). No job of the last two starts.",
		}, []string{"state"}),
		retirements: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "penstock_policy_retirements_total",
			Help: "Policies that this process retired because they left the file.",
		}),
	}
	r.prometheus.MustRegister(p.stored, p.retirements)
	p.Stored(store.Inventory{})
	return p
}

// Stored sets the number of policies in each state.
func (p *Policies) Stored(found store.Inventory) {
	for state, n := range map[string]int{"ok": found.OK, "retired": found.Retired,
		"unreadable": len(found.Unreadable), "orphaned": len(found.Orphaned)} {
		p.stored.WithLabelValues(state).Set(float64(n))
	}
}

// Retired counts a retired policy.
func (p *Policies) Retired(string) { p.retirements.Inc() }
