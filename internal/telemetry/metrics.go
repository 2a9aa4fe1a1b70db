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

	"github.com/penstock-mq/penstock/workers"
)

// scrapeDeadline bounds what is looked up while a scrape waits; Prometheus itself gives up after 10 s by default.
const scrapeDeadline = time.Second

// Registry holds the metrics of one process, with those of the Go runtime and the process. There is no label per key:
// keys are as many as users have users.
type Registry struct{ prometheus *prometheus.Registry }

// NewRegistry makes a registry of its own; nothing global is touched.
func NewRegistry() *Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Registry{r}
}

// Handler serves the metrics to Prometheus. What cannot be collected is left out and logged as a warning.
func (r *Registry) Handler(logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r.prometheus, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
}

// Admission counts what the admitter answers. Its methods may be called from anywhere at once.
type Admission struct{ admissions, checks *prometheus.CounterVec }

// Admission registers the admitter's metrics. It may be called once.
func (r *Registry) Admission() *Admission {
	a := &Admission{
		admissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_admissions_total",
			Help: "Submitted jobs by verdict: allowed, queued or rejected.",
		}, []string{"policy", "verdict"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_checks_total",
			Help: "Answered checks.",
		}, []string{"policy", "allowed"}),
	}
	r.prometheus.MustRegister(a.admissions, a.checks)
	return a
}

// Admitted counts one answer to a submitted job.
func (a *Admission) Admitted(policy, verdict string) {
	a.admissions.WithLabelValues(policy, verdict).Inc()
}

// Checked counts one answer to a check.
func (a *Admission) Checked(policy string, allowed bool) {
	a.checks.WithLabelValues(policy, strconv.FormatBool(allowed)).Inc()
}

// Store tells how the shared store of limits does. Its methods may be called from anywhere at once.
type Store struct {
	up        prometheus.Gauge
	fallbacks *prometheus.CounterVec
}

// Store registers the metrics of a shared store. It may be called once.
func (r *Registry) Store() *Store {
	s := &Store{
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "penstock_store_up",
			Help: "Whether the shared store of limits answers: 1, or 0 while policies go on by their on_store_error.",
		}),
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_store_fallbacks_total",
			Help: "Decisions made without the shared store, by the policy's on_store_error: open, local or closed.",
		}, []string{"policy", "mode"}),
	}
	r.prometheus.MustRegister(s.up, s.fallbacks)
	return s
}

// StoreUp tells whether the store answers.
func (s *Store) StoreUp(up bool) {
	s.up.Set(0)
	if up {
		s.up.Set(1)
	}
}

// FellBack counts a decision made without the store.
func (s *Store) FellBack(policy, mode string) { s.fallbacks.WithLabelValues(policy, mode).Inc() }

// Drain counts what a drainer does. Its methods may be called from anywhere at once.
type Drain struct {
	starts, outcomes *prometheus.CounterVec
	lateness         prometheus.Histogram
	wait             *prometheus.HistogramVec
	owned            *prometheus.GaugeVec
}

// Drain registers a drainer's metrics. It may be called once.
func (r *Registry) Drain() *Drain {
	d := &Drain{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_starts_total",
			Help: "Started attempts of jobs.",
		}, []string{"policy"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "penstock_start_lateness_seconds",
			Help: "How long after the instant that the valve had set a job started.",
			Buckets: []float64{.0005, .001, .002, .003, .004, .005, .0075, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5,
				10},
		}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "penstock_wait_seconds",
			Help: "From the acceptance of a job to its start.",
			Buckets: []float64{.005, .01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 1800, // half an hour
				3600, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600},
		}, []string{"policy"}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_outcomes_total",
			Help: "Attempts by outcome: done, failed, throttled, permanent, returned or uncounted; and jobs that ended otherwise: " +
				"dead (letters of any reason, so those after a permanent attempt too) or cancelled.",
		}, []string{"policy", "outcome"}),
		owned: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "penstock_partitions_owned",
			Help: "Partitions whose valve is in this process.",
		}, []string{"policy"}),
	}
	r.prometheus.MustRegister(d.starts, d.lateness, d.wait, d.outcomes, d.owned)
	return d
}

// Started counts one start: lateness is how long after the instant that the valve had set, wait the time since the job
// was accepted. Negative values, which come from two clocks, count as zero.
func (d *Drain) Started(policy string, lateness, wait time.Duration) {
	d.starts.WithLabelValues(policy).Inc()
	d.lateness.Observe(max(0, lateness).Seconds())
	d.wait.WithLabelValues(policy).Observe(max(0, wait).Seconds())
}

// Finished counts one outcome. There are few different ones: a word such as done or deadline, never the text of an
// error.
func (d *Drain) Finished(policy, outcome string) { d.outcomes.WithLabelValues(policy, outcome).Inc() }

// Observer is d for the options of a drainer.
func (d *Drain) Observer() workers.Observer {
	return workers.Observer{Started: d.Started, Finished: d.Finished, Owned: d.Owned}
}

// Owned sets how many partitions of a policy this process owns now.
func (d *Drain) Owned(policy string, partitions int) {
	d.owned.WithLabelValues(policy).Set(float64(partitions))
}

// QueueJobs registers penstock_queue_jobs: depths is asked at every scrape for the accepted jobs of each policy, and
// must return within its context's deadline of one second. What it leaves out is missing from that scrape. It may be
// called once.
func (r *Registry) QueueJobs(depths func(ctx context.Context) map[string]uint64) {
	r.prometheus.MustRegister(queueJobs{depths})
}

type queueJobs struct {
	depths func(ctx context.Context) map[string]uint64
}

var queueJobsDesc = prometheus.NewDesc("penstock_queue_jobs",
	"Accepted jobs without a final outcome: waiting, backing off and running.", []string{"policy"}, nil)

func (q queueJobs) Describe(out chan<- *prometheus.Desc) { out <- queueJobsDesc }

func (q queueJobs) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeDeadline)
	defer cancel()
	for policy, jobs := range q.depths(ctx) {
		out <- prometheus.MustNewConstMetric(queueJobsDesc, prometheus.GaugeValue, float64(jobs), policy)
	}
}
