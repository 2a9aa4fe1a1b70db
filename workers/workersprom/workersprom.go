// Package workersprom exports a drainer's metrics to Prometheus under the names of Penstock's own
// programs, so that the alerts of deploy/penstock-alerts.yaml also work for Go programs with
// handlers:
//
//	observer, err := workersprom.New(prometheus.DefaultRegisterer)
//	…
//	drainer, err := workers.New(nc, workers.Options{Observer: observer})
//
// A separate package spares programs without Prometheus the dependency.
package workersprom

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/workers"
)

// Values of the label outcome. Each has a series from the first start of a policy on.
var (
	attemptOutcomes = []string{"done", "failed", "throttled", "permanent", "returned", "uncounted"}
	jobOutcomes     = []string{"done", "dead", "cancelled"}
	returns         = []string{"rate", "lease", "order"}
)

// metrics holds the metrics of one drainer. Keys are not a label, because their number is
// unbounded.
type metrics struct {
	starts, attempts, jobs *prometheus.CounterVec
	returned, late         *prometheus.CounterVec
	shadowed, shadowedBy   *prometheus.CounterVec
	held                   *prometheus.CounterVec
	lateness               prometheus.Histogram
	wait                   *prometheus.HistogramVec
	owned, breakers        *prometheus.GaugeVec
	workerless, adapted    *prometheus.GaugeVec
	units                  *prometheus.GaugeVec
	lease                  prometheus.Gauge
	discarded, hints       *prometheus.CounterVec
	damaged                prometheus.Counter
	newer                  prometheus.Gauge
	historyLost, callbacks *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]bool                // by policy: whether it has all of its series
	told  map[string][]workers.LimitLeft // by policy
}

// New registers a drainer's metrics and returns the observer that updates them. Each drainer needs
// its own observer; metrics that are already registered are an error.
//
//	penstock_starts_total{policy}                  attempts that began
//	penstock_starts_returned_total{policy,reason}  starts that a worker returned: rate (the slot was
//	                                               gone at the last check), lease, order (an earlier
//	                                               job returned)
//	penstock_start_delay_seconds_total{policy,cause}
//	                                               how far starts fell behind the outflow, by
//	                                               cause: processor, no_worker, workers_busy,
//	                                               total_rate, limit, concurrency, paused,
//	                                               cooling, breaker, storage
//	penstock_shadow_delayed_total{policy,limit}    starts that limits with shadow: true would have
//	                                               delayed
//	penstock_shadow_delay_seconds_total{policy,limit}
//	                                               the sum of these delays
//	penstock_limit_held_seconds_total{policy,limit}
//	                                               for how long limits on starts held back buckets
//	                                               with waiting jobs, summed over buckets
//	penstock_limit_units{policy,limit,kind}        units of a limit on starts of all keys, or of a
//	                                               shared one, with its state in this process: left
//	                                               (may start now) and max
//	penstock_attempts_total{policy,outcome}        attempts that ended: done, failed, throttled,
//	                                               permanent, returned, uncounted
//	penstock_hints_total{policy}                   responses of targets with an exhausted limit that
//	                                               did not throttle
//	penstock_jobs_total{policy,outcome}            jobs that ended: done, dead, cancelled
//	penstock_start_lateness_seconds                how late a job started, by the valve
//	penstock_wait_seconds{policy}                  from the acceptance of a job to its start
//	penstock_partitions_owned{policy}              partitions whose valve is in this process
//	penstock_breaker_open{policy}                  open breakers: per bucket, and one for all
//	penstock_adapted_buckets{policy}               buckets slower than their outflow because of
//	                                               their target's observed limit
//	penstock_policy_workerless{policy}             1 while due jobs have no worker
//	penstock_lease_held                            1 or 0: without it nothing starts
//	penstock_records_damaged_total                 damaged records that were rebuilt
//	penstock_records_newer                         records that only a newer version can read
//	penstock_callbacks_lost_total{policy,reason}   outcomes that are not posted
//	penstock_dead_letters_discarded_total{policy}  old dead letters discarded for new ones
//	penstock_history_lost_total{policy}            jobs missing in a history (keep_done)
//
// Histograms have exemplars: the trace_id of a job with a sampled trace.
//
// A policy's counters begin at zero with its first start, and are deleted with it. Those whose
// increase alerts need exist as soon as the drainer learns of the policy.
func New(registerer prometheus.Registerer) (workers.Observer, error) {
	m := &metrics{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_starts_total",
			Help: "Attempts of jobs that began.",
		}, []string{"policy"}),
		returned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_starts_returned_total",
			Help: "Jobs that came back from their worker before they started, by reason: rate " +
				"(the slot was not there at the last check), lease or order (one before it came " +
				"back).",
		}, []string{"policy", "reason"}),
		late: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_start_delay_seconds_total",
			Help: "Delay of starts beyond what the outflow of their bucket allowed, by cause.",
		}, []string{"policy", "cause"}),
		shadowed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_shadow_delayed_total",
			Help: "Starts that shadow limits would have delayed.",
		}, []string{"policy", "limit"}),
		shadowedBy: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_shadow_delay_seconds_total",
			Help: "Time by which shadow limits would have delayed starts.",
		}, []string{"policy", "limit"}),
		held: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_limit_held_seconds_total",
			Help: "Time for which a limit on starts held back buckets with waiting jobs, summed.",
		}, []string{"policy", "limit"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_attempts_total",
			Help: "Attempts that ended, by outcome: done, failed, throttled, permanent, returned " +
				"(not started after all) or " +
				"uncounted (interrupted).",
		}, []string{"policy", "outcome"}),
		hints: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_hints_total",
			Help: "Answers that did not throttle and said that nothing is left of the target's " +
				"limit: the bucket pauses.",
		}, []string{"policy"}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_jobs_total",
			Help: "Jobs that ended, by outcome: done, dead (a dead letter of any reason) or " +
				"cancelled.",
		}, []string{"policy", "outcome"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "penstock_start_lateness_seconds",
			Help: "Time from the instant that the valve had set for a start to the start.",
			Buckets: []float64{.0005, .001, .002, .003, .004, .005, .0075, .01, .015, .025, .05, .1,
				.25, .5, 1, 2.5, 5,
				10},
		}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "penstock_wait_seconds",
			Help: "From the acceptance of a job to its start.",
			Buckets: []float64{.005, .01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 1800, // half an hour
				3600, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600},
		}, []string{"policy"}),
		owned: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "penstock_partitions_owned",
			Help: "Partitions whose valve is in this process.",
		}, []string{"policy"}),
		breakers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "penstock_breaker_open",
			Help: "Open breakers in this process: one for each bucket whose target is down, and " +
				"one for all of its buckets.",
		}, []string{"policy"}),
		adapted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "penstock_adapted_buckets",
			Help: "Buckets in this process that are slower than their outflow, because of what " +
				"they have learnt of their target's limit.",
		}, []string{"policy"}),
		workerless: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "penstock_policy_workerless",
			Help: "1 while jobs are due that no worker takes, neither in the process that owns " +
				"their partition nor elsewhere.",
		}, []string{"policy"}),
		lease: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "penstock_lease_held",
			Help: "Whether this drainer holds its lease: 1, or 0 while nothing starts.",
		}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "penstock_records_damaged_total",
			Help: "Records of partitions, attempts and leases that could not be read, and were " +
				"set aside and rebuilt.",
		}),
		newer: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "penstock_records_newer",
			Help: "Records of a newer format, each of which stops a partition, or the succession " +
				"of a drainer.",
		}),
		callbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_callbacks_lost_total",
			Help: "Outcomes not posted to their Penstock-Callback, by reason: full (the queue " +
				"of the callbacks) or refused.",
		}, []string{"policy", "reason"}),
		discarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_dead_letters_discarded_total",
			Help: "Dead letters that were discarded, oldest first, to make room for new ones.",
		}, []string{"policy"}),
		historyLost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_history_lost_total",
			Help: "Jobs of policies with keep_done whose end the history does not have, because " +
				"the server did not take it, or not in time.",
		}, []string{"policy"}),
		units: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "penstock_limit_units",
			Help: "Units of a limit on starts of all keys, or of a shared one, that may start " +
				"now (left) and at most (max): take the maximum over drainers.",
		}, []string{"policy", "limit", "kind"}),
		known: map[string]bool{}, told: map[string][]workers.LimitLeft{},
	}
	var problems []error
	for _, c := range []prometheus.Collector{m.starts, m.returned, m.late, m.attempts, m.jobs,
		m.lateness, m.wait, m.owned, m.breakers, m.workerless, m.lease, m.discarded, m.callbacks,
		m.held, m.hints, m.adapted, m.shadowed, m.shadowedBy, m.historyLost, m.units,
		m.damaged, m.newer} {
		problems = append(problems, registerer.Register(c))
	}
	return workers.Observer{
		Policy:  m.policy,
		Started: m.started,
		Returned: func(policy, why string) {
			m.returned.WithLabelValues(policy, why).Inc()
		},
		Late: func(policy, cause string, by time.Duration) {
			m.late.WithLabelValues(policy, cause).Add(by.Seconds())
		},
		Shadowed: func(policy, limit string, by time.Duration) {
			m.shadowed.WithLabelValues(policy, limit).Inc()
			m.shadowedBy.WithLabelValues(policy, limit).Add(by.Seconds())
		},
		LimitHeld: func(policy, limit string, held time.Duration) {
			m.held.WithLabelValues(policy, limit).Add(held.Seconds())
		},
		LimitsLeft: m.limitsLeft,
		Finished: func(policy, outcome string) {
			m.attempts.WithLabelValues(policy, outcome).Inc()
		},
		Hinted: func(policy string, _ time.Duration) { m.hints.WithLabelValues(policy).Inc() },
		Ended: func(policy, outcome string) {
			m.begin(policy)
			m.jobs.WithLabelValues(policy, outcome).Inc()
		},
		Owned:   func(policy string, partitions int) { m.set(m.owned, policy, partitions) },
		Breaker: func(policy string, open int) { m.set(m.breakers, policy, open) },
		Adapted: func(policy string, buckets int) { m.set(m.adapted, policy, buckets) },
		Workerless: func(policy string, workerless bool) {
			value := 0
			if workerless {
				value = 1
			}
			m.set(m.workerless, policy, value)
		},
		Lease: func(held bool) {
			m.lease.Set(0)
			if held {
				m.lease.Set(1)
			}
		},
		CallbackLost: func(policy, reason string) {
			m.callbacks.WithLabelValues(policy, reason).Inc()
		},
		Discarded: func(policy string, letters uint64) {
			m.discarded.WithLabelValues(policy).Add(float64(letters))
		},
		RecordDamaged: func(string) { m.damaged.Inc() },
		RecordsNewer:  func(records int) { m.newer.Set(float64(records)) },
		HistoryLost:   func(policy string) { m.historyLost.WithLabelValues(policy).Inc() },
	}, errors.Join(problems...)
}

// policy creates or deletes a policy's series.
func (m *metrics) policy(name string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !known {
		delete(m.known, name)
		delete(m.told, name)
		for _, c := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
			m.starts, m.returned, m.late, m.attempts, m.jobs, m.wait, m.owned, m.breakers,
			m.workerless, m.discarded, m.callbacks, m.held, m.hints, m.adapted, m.shadowed,
			m.shadowedBy, m.historyLost, m.units} {
			c.DeletePartialMatch(prometheus.Labels{"policy": name})
		}
		return
	}
	if _, found := m.known[name]; !found {
		m.known[name] = false
	}
	m.starts.WithLabelValues(name)
	m.jobs.WithLabelValues(name, "dead")
}

// begin creates a policy's counters at its first start or end of a job, because most of many
// policies have no jobs, and a series takes half a kilobyte.
func (m *metrics) begin(policy string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if begun, known := m.known[policy]; begun || !known {
		return
	}
	m.known[policy] = true
	for _, c := range []*prometheus.CounterVec{m.discarded, m.historyLost, m.hints} {
		c.WithLabelValues(policy)
	}
	for _, why := range returns {
		m.returned.WithLabelValues(policy, why)
	}
	m.late.WithLabelValues(policy, "processor") // other causes when they occur
	for _, outcome := range attemptOutcomes {
		m.attempts.WithLabelValues(policy, outcome)
	}
	for _, outcome := range jobOutcomes {
		m.jobs.WithLabelValues(policy, outcome)
	}
}

func (m *metrics) started(policy string, lateness, wait time.Duration, trace string) {
	m.begin(policy)
	m.starts.WithLabelValues(policy).Inc()
	observe(m.lateness, lateness, trace)
	observe(m.wait.WithLabelValues(policy), wait, trace)
}

// observe records a duration, with its trace as an exemplar.
func observe(in prometheus.Observer, d time.Duration, trace string) {
	seconds := max(0, d).Seconds()
	if with, ok := in.(prometheus.ExemplarObserver); ok && trace != "" {
		with.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": trace})
		return
	}
	in.Observe(seconds)
}

// limitsLeft sets the units of limits, and deletes those of limits no longer here.
func (m *metrics) limitsLeft(policy string, left []workers.LimitLeft) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.told[policy] {
		here := func(is workers.LimitLeft) bool { return is.Name == l.Name }
		if !slices.ContainsFunc(left, here) {
			m.units.DeletePartialMatch(prometheus.Labels{"policy": policy, "limit": l.Name})
		}
	}
	m.told[policy] = left
	for _, l := range left {
		m.units.WithLabelValues(policy, l.Name, "left").Set(float64(l.Left))
		m.units.WithLabelValues(policy, l.Name, "max").Set(float64(l.Most))
	}
}

// set sets a gauge. After a policy is gone, zero deletes its series, because the last partition is
// released later.
func (m *metrics) set(gauge *prometheus.GaugeVec, policy string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.known[policy]; known || n > 0 {
		gauge.WithLabelValues(policy).Set(float64(n))
	} else {
		gauge.DeleteLabelValues(policy)
	}
}
