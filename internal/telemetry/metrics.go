package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/workersprom"
)

// scrapeDeadline bounds look-ups during a scrape; Prometheus's default timeout is 10 s.
const scrapeDeadline = time.Second

// Registry holds the metrics of a process, including Go's. No label is a key: there are as many
// keys as users.
type Registry struct {
	prometheus *prometheus.Registry
	admission  *Admission // nil before it is registered
}

// NewRegistry makes a registry, without global state.
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

// Handler serves the metrics. Metrics that cannot be collected are omitted and logged as a warning.
func (r *Registry) Handler(logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r.prometheus, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		EnableOpenMetrics:   true, // for exemplars
	})
}

// Observer registers the metrics of a [penstock.Penstock], except those of [Registry.Drain], and
// returns their counters. Call it once.
func (r *Registry) Observer() penstock.Observer {
	admission, policies, storage := r.Admission(), r.Policies(), r.Storage()
	return penstock.Observer{
		Admitted:    admission.Admitted,
		Checked:     admission.Checked,
		Shadowed:    admission.Shadowed,
		Ticked:      admission.Ticked,
		Answered:    admission.Answered,
		Policies:    admission.Policies,
		Unowned:     admission.Unowned,
		ApplyFailed: admission.ApplyFailed,
		Inventory:   policies.Stored,
		Retired:     policies.Retired,
		Stored:      storage.Stored,
		Writable:    storage.Writable,
	}
}

// Admission counts the answers of an admitter. It is safe for concurrent use.
type Admission struct {
	admissions, checks     *prometheus.CounterVec
	shadowed, shadowedBy   *prometheus.CounterVec
	ticks                  *prometheus.CounterVec
	httpErrors, natsErrors *prometheus.CounterVec
	unowned, applyFailed   *prometheus.GaugeVec

	mu    sync.Mutex
	known policy.Entries
}

// errorStatuses are the values of the label status with a series from the start.
var errorStatuses = []int{400, 403, 404, 405, 409, 413, 422, 429, 500, 503, 507}

// Admission registers the admitter's metrics. Call it once.
func (r *Registry) Admission() *Admission {
	a := &Admission{
		admissions: r.counter("penstock_admissions_total",
			"Submitted jobs by verdict: allowed, queued or rejected.", "policy", "verdict"),
		checks: r.counter("penstock_checks_total", "Answered checks.", "policy", "allowed"),
		shadowed: r.counter("penstock_shadow_decisions_total",
			"Decisions of shadow limits at the door. over=true: the request would have been "+
				"rejected or delayed.", "policy", "limit", "over"),
		shadowedBy: r.counter("penstock_shadow_wait_seconds_total",
			"Time by which shadow limits at the door would have delayed requests, now or by "+
				"Retry-After.", "policy", "limit"),
		ticks: r.counter("penstock_schedule_ticks_total",
			"What became of ticks of schedules: submitted, refused (each time that the bucket was "+
				"full) or missed.", "policy", "outcome"),
		httpErrors: r.counter("penstock_http_errors_total",
			"Requests over HTTP that were answered with a status of 400 or more.", "status"),
		natsErrors: r.counter("penstock_nats_errors_total",
			"Requests over NATS that were answered with a status of 400 or more.", "status"),
		unowned: r.gauge("penstock_policy_unowned",
			"1 while jobs of the policy wait and no drainer owns it.", "policy"),
		applyFailed: r.gauge("penstock_apply_failed",
			"1 while the last change of the policy cannot be applied to its stream, which stays "+
				"as it was.", "policy"),
	}
	r.admission = a
	for _, status := range errorStatuses {
		a.httpErrors.WithLabelValues(strconv.Itoa(status))
		a.natsErrors.WithLabelValues(strconv.Itoa(status))
	}
	return a
}

// Policies deletes the series of removed policies. Gauges have one only for known policies.
func (a *Admission) Policies(set policy.Entries) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.known {
		if _, found := set[name]; !found {
			for _, c := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
				a.admissions, a.checks, a.unowned, a.applyFailed, a.shadowed, a.shadowedBy,
				a.ticks} {
				c.DeletePartialMatch(prometheus.Labels{"policy": name})
			}
		}
	}
	a.known = set
}

// Admitted counts an answer to a submission. The first one creates the series of all verdicts,
// because rates need zeros.
func (a *Admission) Admitted(policy string, verdict admission.Verdict) {
	for _, v := range []admission.Verdict{admission.Allowed, admission.Queued,
		admission.Rejected} {
		a.admissions.WithLabelValues(policy, string(v)).Add(zeroOrOne(v == verdict))
	}
}

// Checked counts an answer to a check, like Admitted.
func (a *Admission) Checked(policy string, allowed bool) {
	for _, v := range []bool{true, false} {
		a.checks.WithLabelValues(policy, strconv.FormatBool(v)).Add(zeroOrOne(v == allowed))
	}
}

// Shadowed counts a decision of a shadow limit.
func (a *Admission) Shadowed(policy, limit string, over bool, by time.Duration) {
	a.shadowed.WithLabelValues(policy, limit, strconv.FormatBool(over)).Inc()
	a.shadowedBy.WithLabelValues(policy, limit).Add(by.Seconds())
}

// Ticked counts an outcome of a schedule's tick.
func (a *Admission) Ticked(policy, outcome string) {
	a.ticks.WithLabelValues(policy, outcome).Inc()
}

// Unowned sets whether a policy's jobs wait without a drainer.
func (a *Admission) Unowned(policy string, unowned bool) { a.hold(a.unowned, policy, unowned) }

// ApplyFailed sets whether a policy's last change could not be applied to its stream.
func (a *Admission) ApplyFailed(policy string, failed bool) {
	a.hold(a.applyFailed, policy, failed)
}

// hold sets a condition of a policy, unless the policy is gone. It has a series while it holds.
func (a *Admission) hold(gauge *prometheus.GaugeVec, policy string, holds bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.known[policy]; known && holds {
		gauge.WithLabelValues(policy).Set(1)
	} else {
		gauge.DeleteLabelValues(policy)
	}
}

func zeroOrOne(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// Answered counts error statuses of an API.
func (a *Admission) Answered(api string, status int) {
	if status < http.StatusBadRequest {
		return
	}
	counter := a.httpErrors
	if api == penstock.APINATS {
		counter = a.natsErrors
	}
	counter.WithLabelValues(strconv.Itoa(status)).Inc()
}

// Store counts for the shared store of limits. It is safe for concurrent use.
type Store struct {
	up        prometheus.Gauge
	fallbacks *prometheus.CounterVec
}

// Store registers the metrics of a shared store. Call it once.
func (r *Registry) Store() *Store {
	return &Store{
		up: r.gauge("penstock_store_up",
			"Whether the shared store of limits answers: 1, or 0 while policies go on by their "+
				"on_store_error.").WithLabelValues(),
		fallbacks: r.counter("penstock_store_fallbacks_total",
			"Decisions made without the shared store, by the policy's on_store_error: open, "+
				"local or closed.", "policy", "mode"),
	}
}

// StoreUp sets whether the store is available.
func (s *Store) StoreUp(up bool) { s.up.Set(zeroOrOne(up)) }

// FellBack counts a decision without the store.
func (s *Store) FellBack(policy, mode string) { s.fallbacks.WithLabelValues(policy, mode).Inc() }

// FileRead registers penstock_config_last_reload_successful and returns its setter. Call it once.
func (r *Registry) FileRead() func(files string, err error) {
	gauge := r.gauge("penstock_config_last_reload_successful",
		"1, or 0 while the file as it is now is bad, so that the former one stands: "+
			"configuration, clients, certificates, nats users, nats certificates or gateway "+
			"limits.", "file")
	return func(files string, err error) { gauge.WithLabelValues(files).Set(zeroOrOne(err == nil)) }
}

// Drain registers a drainer's metrics and returns their observer. Call it once.
func (r *Registry) Drain() workers.Observer {
	observer, err := workersprom.New(r.prometheus)
	if err != nil {
		panic("telemetry: " + err.Error()) // like MustRegister
	}
	return observer
}

// NATS registers penstock_nats_up; connected is called at every scrape. Call it once.
func (r *Registry) NATS(connected func() bool) {
	r.prometheus.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "penstock_nats_up",
		Help: "Whether this process is connected to NATS: 1, or 0.",
	}, func() float64 { return zeroOrOne(connected()) }))
}

// QueueJobs registers penstock_queue_jobs. depths is called at every scrape for the accepted jobs
// of each policy, with a deadline of one second; policies that it omits are missing from the
// scrape. Call it once.
func (r *Registry) QueueJobs(depths func(ctx context.Context) map[string]uint64) {
	r.prometheus.MustRegister(queueJobs{depths})
}

type queueJobs struct {
	depths func(ctx context.Context) map[string]uint64
}

var queueJobsDesc = prometheus.NewDesc("penstock_queue_jobs",
	"Accepted jobs without a final outcome: waiting, backing off and running.", []string{"policy"},
	nil)

func (q queueJobs) Describe(out chan<- *prometheus.Desc) { out <- queueJobsDesc }

func (q queueJobs) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeDeadline)
	defer cancel()
	for policy, jobs := range q.depths(ctx) {
		out <- prometheus.MustNewConstMetric(queueJobsDesc, prometheus.GaugeValue, float64(jobs),
			policy)
	}
}

// Storage reports JetStream's usage. It is safe for concurrent use.
type Storage struct {
	bytes, queues, dead, lacking *prometheus.GaugeVec
	writable                     prometheus.Gauge
}

// Storage registers the metrics of the store. Call it once.
func (r *Registry) Storage() *Storage {
	s := &Storage{
		bytes: r.gauge("penstock_storage_bytes",
			"Bytes that JetStream stores (used) and may store (max, if there is a limit).", "kind"),
		queues: r.gauge("penstock_queue_bytes",
			"Bytes of the jobs of a policy (used), and their bound (max, if there is one).",
			"policy", "kind"),
		dead: r.gauge("penstock_dead_letters",
			"Dead letters of a policy that are kept. Policies that never had any are left out.",
			"policy"),
		lacking: r.gauge("penstock_streams_underreplicated",
			"JetStream streams with fewer copies that are up to date than they should have, by "+
				"what they hold: jobs, dead_letters, history or records.", "group"),
		writable: r.gauge("penstock_storage_writable",
			"Whether the embedded server's disk can be written: 1 or 0. 1 as well when the "+
				"server is elsewhere.").WithLabelValues(),
	}
	s.writable.Set(1)
	return s
}

// Stored sets the current usage.
func (s *Storage) Stored(found queue.Storage) {
	s.bytes.WithLabelValues("used").Set(float64(found.Used))
	setMost(s.bytes, found.Max, "max")
	s.queues.Reset()
	for policy, fill := range found.Jobs {
		s.queues.WithLabelValues(policy, "used").Set(float64(fill.Used))
		setMost(s.queues, fill.Max, policy, "max")
	}
	s.dead.Reset()
	for policy, letters := range found.Dead {
		s.dead.WithLabelValues(policy).Set(float64(letters))
	}
	s.lacking.Reset()
	for group, copies := range found.Copies {
		s.lacking.WithLabelValues(group).Set(float64(copies.Lacking))
	}
}

func setMost(gauge *prometheus.GaugeVec, most int64, labels ...string) {
	if most > 0 {
		gauge.WithLabelValues(labels...).Set(float64(most))
	} else {
		gauge.DeleteLabelValues(labels...)
	}
}

// Writable sets whether the embedded server can write.
func (s *Storage) Writable(writable bool) { s.writable.Set(zeroOrOne(writable)) }
