package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-mq/penstock/internal/server/promsink"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
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
	admitted := &promsink.Group{Of: []string{queue.EventAdmitted}}
	checked := &promsink.Group{Of: []string{queue.EventChecked}}
	policyOutcome := []string{"policy", "outcome"}
	s := r.sink(
		promsink.Metric{Name: "penstock_admissions_total",
			Help:   "Submitted jobs by verdict: allowed, queued or rejected.",
			Labels: []string{"policy", "verdict"}, Of: []string{queue.EventAdmitted},
			Zeros: promsink.Zeros{admitted: {"allowed", "queued", "rejected"}}},
		promsink.Metric{Name: "penstock_checks_total", Help: "Answered checks.",
			Labels: []string{"policy", "allowed"}, Of: []string{queue.EventChecked},
			Zeros: promsink.Zeros{checked: {"true", "false"}}},
		promsink.Metric{Name: "penstock_shadow_decisions_total",
			Help: "Decisions of shadow limits on requests. over=true: the request would have " +
				"been rejected or delayed.",
			Labels: []string{"policy", "limit", "over"}, Of: []string{queue.EventShadowed}},
		promsink.Metric{Name: "penstock_shadow_wait_seconds_total",
			Help: "Time by which shadow limits on requests would have delayed them, now or " +
				"by Retry-After.",
			Labels: []string{"policy", "limit"}, Of: []string{queue.EventShadowed},
			Add: promsink.Seconds},
		promsink.Metric{Name: "penstock_schedule_ticks_total",
			Help: "Outcomes of scheduled ticks: submitted, refused (each time the " +
				"bucket was full) or missed.",
			Labels: policyOutcome, Of: []string{queue.EventTicked}},
		promsink.Metric{Name: "penstock_policy_without_drainer",
			Help:   "1 while the policy has waiting jobs but no drainer.",
			Labels: policyOutcome[:1], Of: []string{queue.EventWithoutDrainer}, Gauge: true,
			While: true},
		promsink.Metric{Name: "penstock_apply_failed",
			Help: "1 while the policy's last change cannot be applied to its stream, which " +
				"stays as it was.",
			Labels: policyOutcome[:1], Of: []string{queue.EventApplyFailed}, Gauge: true,
			While: true},
		promsink.Metric{Name: "penstock_storage_writable",
			Help: "Whether the embedded server's disk is writable: 1 or 0. Always 1 if the " +
				"server is external.",
			Of: []string{queue.EventWritable}, Gauge: true},
	)
	s.Take(queue.Event{Type: queue.EventWritable, Value: 1})
	r.admission, r.checked = s, checked
	s.On(func(e queue.Event) {
		for name, entry := range e.Data.(policy.Entries) {
			if entry == nil {
				s.Forget(name)
			} else {
				s.Know(name)
			}
		}
	}, queue.EventFollowed)
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
	}, queue.EventAnswered)
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
	}, queue.EventInventory)
	s.Take(queue.Event{Type: queue.EventInventory, Data: store.Inventory{}})
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
		found := e.Data.(queue.Storage)
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
	}, queue.EventStored)
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
			Of: []string{queue.EventStoreUp}, Gauge: true},
		promsink.Metric{Name: "penstock_store_fallbacks_total",
			Help: "Decisions made without the shared store, by the policy's on_store_error: " +
				"open, local or closed.",
			Labels: []string{"policy", "mode"}, Of: []string{queue.EventFellBack}})
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

// QueueJobs registers penstock_queue_jobs. depths is called at every scrape, with a deadline of one
// second; policies that it omits are missing.
func (r *Registry) QueueJobs(depths func(context.Context) (map[string]uint64, error)) {
	r.prometheus.MustRegister(queueJobs{depths})
}

type queueJobs struct {
	depths func(context.Context) (map[string]uint64, error)
}

var queueJobsDesc = prometheus.NewDesc("penstock_queue_jobs",
	"Accepted jobs without a final outcome: waiting, backing off and running.", []string{"policy"},
	nil)

func (q queueJobs) Describe(out chan<- *prometheus.Desc) { out <- queueJobsDesc }

func (q queueJobs) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeDeadline)
	defer cancel()
	depths, _ := q.depths(ctx) // without those of an error
	for policy, jobs := range depths {
		out <- prometheus.MustNewConstMetric(queueJobsDesc, prometheus.GaugeValue, float64(jobs),
			policy)
	}
}

func zeroOrOne(holds bool) float64 { return float64(queue.Whether(holds)) }
