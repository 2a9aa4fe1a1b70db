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
		stored: r.gauge("penstock_policies",
			"Policies by state: ok, retired, unreadable (a damaged or newer record) or "+
				"orphaned (a stream without a record). No job of the last two starts.", "state"),
		retirements: r.counter("penstock_policy_retirements_total",
			"Policies that this process retired because they left the file.").WithLabelValues(),
	}
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
