package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/workers/audit"
)

// Audit registers an auditor's figures, which are requested at every scrape.
func (r *Registry) Audit(figures func() []audit.Figure) {
	r.prometheus.MustRegister(audited{figures})
}

type audited struct{ figures func() []audit.Figure }

var auditWorst, auditBroken, auditIncomplete = prometheus.NewDesc("penstock_audit_worst_ratio",
	"The fullest window of any bucket in the last hour or two, as a fraction of the limit; "+
		"above 1, the limit was broken.", []string{"policy", "limit"}, nil),
	prometheus.NewDesc("penstock_audit_broken_total",
		"Windows with more starts than the limit allows.", []string{"policy", "limit"}, nil),
	prometheus.NewDesc("penstock_audit_incomplete",
		"1 while the limit's audit lacks events, else 0.",
		[]string{"policy", "limit"}, nil)

func (audited) Describe(out chan<- *prometheus.Desc) {
	out <- auditWorst
	out <- auditBroken
	out <- auditIncomplete
}

func (a audited) Collect(out chan<- prometheus.Metric) {
	for _, f := range a.figures() {
		tell := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64) {
			out <- prometheus.MustNewConstMetric(desc, kind, value, f.Policy, f.Limit)
		}
		tell(auditWorst, prometheus.GaugeValue, f.Worst)
		tell(auditBroken, prometheus.CounterValue, float64(f.Broken))
		tell(auditIncomplete, prometheus.GaugeValue, zeroOrOne(f.Incomplete))
	}
}
