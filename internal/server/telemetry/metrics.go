// Package telemetry makes the process's logger and its Prometheus metrics.
package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/internal/server/promsink"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/workersprom"
)

// Prometheus's default timeout is 10 s.
const scrapeDeadline = time.Second

// Registry holds the metrics of a process. No label is a key: there are as many keys as users.
type Registry struct {
	prometheus *prometheus.Registry
	admission  *promsink.Sink
	checked    *promsink.Group // the series of checks
}

func NewRegistry() *Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Registry{prometheus: r}
}

func (r *Registry) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.prometheus.MustRegister(c)
	return c
}

func (r *Registry) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.prometheus.MustRegister(g)
	return g
}

func (r *Registry) sink(table ...promsink.Metric) *promsink.Sink {
	s := promsink.New(r.prometheus, table...)
	if err := s.Err(); err != nil {
		panic("telemetry: " + err.Error())
	}
	return s
}

// Handler serves the metrics. Those that cannot be collected are omitted and logged.
func (r *Registry) Handler(logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r.prometheus, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		EnableOpenMetrics:   true, // for exemplars
	})
}

// statuses with a series from the start
var errorStatuses = []int{400, 403, 404, 405, 409, 413, 422, 429, 500, 503, 507}

func (r *Registry) Admission() queue.Sink {
	admitted := &promsink.Group{Of: []string{jet.EventAdmitted}}
	checked := &promsink.Group{Of: []string{jet.EventChecked}}
	policyOutcome := []string{"policy", "outcome"}
	s := r.sink(
		promsink.Metric{Name: "penstock_admissions_total",
			Help:   "Submitted jobs by verdict: allowed, queued or rejected.",
			Labels: []string{"policy", "verdict"}, Of: []string{jet.EventAdmitted},
			Zeros: promsink.Zeros{admitted: {"allowed", "queued", "rejected"}}},
		promsink.Metric{Name: "penstock_checks_total", Help: "Answered checks.",
			Labels: []string{"policy", "allowed"}, Of: []string{jet.EventChecked},
			Zeros: promsink.Zeros{checked: {"true", "false"}}},
		promsink.Metric{Name: "penstock_shadow_decisions_total",
			Help: "Decisions of shadow limits on requests. over=true: the request would have " +
				"been rejected or delayed.",
			Labels: []string{"policy", "limit", "over"}, Of: []string{jet.EventShadowed}},
		promsink.Metric{Name: "penstock_shadow_wait_seconds_total",
			Help: "Time by which shadow limits on requests would have delayed them, now or " +
				"by Retry-After.",
			Labels: []string{"policy", "limit"}, Of: []string{jet.EventShadowed},
			Add: promsink.Seconds},
		promsink.Metric{Name: "penstock_schedule_ticks_total",
			Help: "Outcomes of scheduled ticks: submitted, refused (each time the " +
				"bucket was full) or missed.",
			Labels: policyOutcome, Of: []string{jet.EventTicked}},
		promsink.Metric{Name: "penstock_policy_without_drainer",
			Help:   "1 while the policy has waiting jobs but no drainer.",
			Labels: policyOutcome[:1], Of: []string{jet.EventWithoutDrainer}, Gauge: true,
			While: true},
		promsink.Metric{Name: "penstock_apply_failed",
			Help: "1 while the policy's last change cannot be applied to its stream, which " +
				"stays as it was.",
			Labels: policyOutcome[:1], Of: []string{jet.EventApplyFailed}, Gauge: true,
			While: true},
		promsink.Metric{Name: "penstock_storage_writable",
			Help: "Whether the embedded server's disk is writable: 1 or 0. Always 1 if the " +
				"server is external.",
			Of: []string{jet.EventWritable}, Gauge: true},
	)
	s.Take(queue.Event{Type: jet.EventWritable, Value: 1})
	r.admission, r.checked = s, checked
	s.On(func(e queue.Event) {
		for name, entry := range e.Data.(inforce.Entries) {
			if entry == nil {
				s.Forget(name)
			} else {
				s.Know(name)
			}
		}
	}, jet.EventFollowed)
	r.answers(s)
	r.policies(s)
	r.storage(s)
	return s
}

func (r *Registry) answers(s *promsink.Sink) {
	errors := map[string]*prometheus.CounterVec{
		"http": r.counter("penstock_http_errors_total",
			"HTTP requests answered with a status of 400 or more.", "status"),
		"nats": r.counter("penstock_nats_errors_total",
			"NATS requests answered with a status of 400 or more.", "status"),
	}
	for _, status := range errorStatuses {
		for _, counter := range errors {
			counter.WithLabelValues(strconv.Itoa(status))
		}
	}
	s.On(func(e queue.Event) {
		if e.Value >= http.StatusBadRequest {
			errors[e.Name].WithLabelValues(strconv.FormatInt(e.Value, 10)).Inc()
		}
	}, jet.EventAnswered)
}

func (r *Registry) policies(s *promsink.Sink) {
	stored := r.gauge("penstock_policies",
		"Policies by state: ok, draining, unreadable (a damaged or newer record) or "+
			"orphaned (a stream without a record). Jobs of the last two do not start.", "state")
	s.On(func(e queue.Event) {
		found := e.Data.(store.Inventory)
		for state, n := range map[string]int{"ok": found.OK, "draining": found.Draining,
			"unreadable": len(found.Unreadable), "orphaned": len(found.Orphaned)} {
			stored.WithLabelValues(state).Set(float64(n))
		}
	}, jet.EventInventory)
	s.Take(queue.Event{Type: jet.EventInventory, Data: store.Inventory{}})
}

func (r *Registry) storage(s *promsink.Sink) {
	bytes := r.gauge("penstock_storage_bytes",
		"Bytes stored by JetStream (used) and its limit, if any (max).", "kind")
	queues := r.gauge("penstock_queue_bytes",
		"Bytes of a policy's jobs (used) and their limit, if any (max).",
		"policy", "kind")
	dead := r.gauge("penstock_dead_letters",
		"Dead letters kept for a policy. Omits policies that never had any.",
		"policy")
	lacking := r.gauge("penstock_streams_underreplicated",
		"JetStream streams with fewer up-to-date copies than configured, by "+
			"content: jobs, dead_letters, history or records.", "group")
	s.On(func(e queue.Event) {
		found := e.Data.(jet.Storage)
		bytes.WithLabelValues("used").Set(float64(found.Used))
		setMost(bytes, found.Max, "max")
		queues.Reset()
		for policy, fill := range found.Jobs {
			queues.WithLabelValues(policy, "used").Set(float64(fill.Used))
			setMost(queues, fill.Max, policy, "max")
		}
		dead.Reset()
		for policy, letters := range found.Dead {
			dead.WithLabelValues(policy).Set(float64(letters))
		}
		lacking.Reset()
		for group, copies := range found.Copies {
			lacking.WithLabelValues(group).Set(float64(copies.Lacking))
		}
	}, jet.EventStored)
}

func setMost(gauge *prometheus.GaugeVec, most int64, labels ...string) {
	if most > 0 {
		gauge.WithLabelValues(labels...).Set(float64(most))
	} else {
		gauge.DeleteLabelValues(labels...)
	}
}

func (r *Registry) Store() queue.Sink {
	return r.sink(
		promsink.Metric{Name: "penstock_store_up",
			Help: "Whether the shared limit store answers: 1, or 0 while policies follow " +
				"their on_store_error.",
			Of: []string{jet.EventStoreUp}, Gauge: true},
		promsink.Metric{Name: "penstock_store_fallbacks_total",
			Help: "Decisions made without the shared store, by the policy's on_store_error: " +
				"open, local or closed.",
			Labels: []string{"policy", "mode"}, Of: []string{jet.EventFellBack}})
}

func (r *Registry) FileRead() func(files string, err error) {
	gauge := r.gauge("penstock_config_last_reload_successful",
		"1, or 0 while the current file is invalid and the previous one stays in force: "+
			"configuration, clients, certificates, nats users, nats certificates or gateway "+
			"limits.", "file")
	return func(files string, err error) { gauge.WithLabelValues(files).Set(zeroOrOne(err == nil)) }
}

func (r *Registry) Drain() queue.Sink {
	sink, err := workersprom.New(r.prometheus)
	if err != nil {
		panic("telemetry: " + err.Error())
	}
	return sink
}

// NATS registers penstock_nats_up; connected is called at every scrape.
func (r *Registry) NATS(connected func() bool) {
	r.prometheus.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "penstock_nats_up",
		Help: "Whether this process is connected to NATS: 1 or 0.",
	}, func() float64 { return zeroOrOne(connected()) }))
}

// scraped sends metrics whose values are asked for at every scrape.
type scraped func(out chan<- prometheus.Metric)

// Describe tells nothing in advance, so the registry does not compare what is sent with it.
func (scraped) Describe(chan<- *prometheus.Desc) {}

func (s scraped) Collect(out chan<- prometheus.Metric) { s(out) }

// QueueJobs registers penstock_queue_jobs. depths is called at every scrape, with a deadline of one
// second; policies that it omits are missing.
func (r *Registry) QueueJobs(depths func(context.Context) (map[string]uint64, error)) {
	desc := prometheus.NewDesc("penstock_queue_jobs",
		"Accepted jobs without a final outcome: waiting, backing off and running.",
		[]string{"policy"}, nil)
	r.prometheus.MustRegister(scraped(func(out chan<- prometheus.Metric) {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeDeadline)
		defer cancel()
		jobs, _ := depths(ctx) // without those of an error
		for policy, n := range jobs {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), policy)
		}
	}))
}

func zeroOrOne(holds bool) float64 { return float64(jet.Whether(holds)) }

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
	}, jet.EventHits)
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
	}, jet.EventGateways)
	return r.admission, func(code string) { failures.WithLabelValues(code).Inc() }
}

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

// Audit registers an auditor's figures, which are requested at every scrape.
func (r *Registry) Audit(figures func() []audit.Figure) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"policy", "limit"}, nil)
	}
	worst := desc("penstock_audit_worst_ratio",
		"The fullest window of any bucket in the last hour or two, as a fraction of the limit; "+
			"above 1, the limit was broken.")
	broken := desc("penstock_audit_broken_total",
		"Windows with more starts than the limit allows.")
	incomplete := desc("penstock_audit_incomplete",
		"1 while the limit's audit lacks events, else 0.")
	r.prometheus.MustRegister(scraped(func(out chan<- prometheus.Metric) {
		for _, f := range figures() {
			tell := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64) {
				out <- prometheus.MustNewConstMetric(desc, kind, value, f.Policy, f.Limit)
			}
			tell(worst, prometheus.GaugeValue, f.Worst)
			tell(broken, prometheus.CounterValue, float64(f.Broken))
			tell(incomplete, prometheus.GaugeValue, zeroOrOne(f.Incomplete))
		}
	}))
}

func NewLogger(w io.Writer, level slog.Leveler, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}
