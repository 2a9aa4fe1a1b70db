// Package workersprom exports to Prometheus what a drainer does, under the names that Penstock's
// own programs use, so that the alerts of deploy/penstock-alerts.yaml work for Go programs with
// handlers of their own as well:
//
//	observer, err := workersprom.New(prometheus.DefaultRegisterer)
//	…
//	drainer, err := workers.New(nc, workers.Options{Observer: observer})
//
// It is a package of its own so that who does not use Prometheus does not link it.
package workersprom

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/workers"
)

// How attempts and jobs end: the values of the label outcome. Each has its series as soon as the
// policy is known.
var (
	attemptOutcomes = []string{"done", "failed", "throttled", "permanent", "returned", "uncounted"}
	jobOutcomes     = []string{"done", "dead", "cancelled"}
	// why starts come back: likewise
	returns = []string{"rate", "lease", "order"}
)

// metrics are those of one drainer. There is no label per key: keys are as many as users have
// users.
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
	known map[string]bool
	told  map[string][]workers.LimitLeft // by policy
}

// New registers a drainer's metrics and returns what counts them. A drainer needs an observer of
// its own; what is registered already, by another one, is an error.
//
//	penstock_starts_total{policy}                  attempts that began
//	penstock_starts_returned_total{policy,reason}  starts that came back from their worker: rate (the
//	                                               slot was not there at the last check), lease,
//	                                               order (one before it came back)
//	penstock_start_delay_seconds_total{policy,cause}
//	                                               by how much starts became later than the outflow
//	                                               allowed, by cause: processor, no_worker,
//	                                               workers_busy, total_rate, limit, concurrency,
//	                                               paused, cooling, breaker, storage
//	penstock_shadow_delayed_total{policy,limit}    starts that limits with shadow: true would have
//	                                               delayed
//	penstock_shadow_delay_seconds_total{policy,limit}
//	                                               … by how much
//	penstock_limit_held_seconds_total{policy,limit}
//	                                               for how long limits on starts held buckets with
//	                                               jobs that wait: the times of all of them
//	penstock_limit_units{policy,limit,kind}        of a limit on starts of all keys whose state is
//	                                               here: left, of which so many may start now, and
//	                                               max
//	penstock_attempts_total{policy,outcome}        attempts that ended: done, failed, throttled,
//	                                               permanent, returned, uncounted
//	penstock_hints_total{policy}                   answers of targets that have nothing left, but did
//	                                               not throttle
//	penstock_jobs_total{policy,outcome}            jobs that ended: done, dead, cancelled
//	penstock_start_lateness_seconds                how late a job started, by the valve
//	penstock_wait_seconds{policy}                  from the acceptance of a job to its start
//	penstock_partitions_owned{policy}              partitions whose valve is in this process
//	penstock_breaker_open{policy}                  buckets whose target is down, and one for all
//	penstock_adapted_buckets{policy}               buckets that are slower than their outflow, below
//	                                               the limit that they have learnt
//	penstock_policy_workerless{policy}             1 while jobs are due that no worker takes
//	penstock_lease_held                            1 or 0: without it nothing starts
//	penstock_records_damaged_total                 damaged records that were rebuilt
//	penstock_records_newer                         records that only a newer version can read
//	penstock_callbacks_lost_total{policy,reason}   outcomes that are not posted
//	penstock_dead_letters_discarded_total{policy}  old dead letters that made room for new ones
//	penstock_history_lost_total{policy}            jobs that are missing in a history (keep_done)
//
// The histograms have exemplars: the trace_id of a job whose trace is sampled.
//
// A policy's series begin, at zero, when the drainer hears of it, and go when it is gone.
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
		Hinted:  func(policy string, _ time.Duration) { m.hints.WithLabelValues(policy).Inc() },
		Ended:   func(policy, outcome string) { m.jobs.WithLabelValues(policy, outcome).Inc() },
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

// policy begins or ends a policy's series.
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
	m.known[name] = true
	m.starts.WithLabelValues(name)
	m.wait.WithLabelValues(name)
	m.owned.WithLabelValues(name)
	m.breakers.WithLabelValues(name)
	m.workerless.WithLabelValues(name)
	m.discarded.WithLabelValues(name)
	m.historyLost.WithLabelValues(name)
	m.hints.WithLabelValues(name)
	m.adapted.WithLabelValues(name)
	for _, why := range returns {
		m.returned.WithLabelValues(name, why)
	}
	m.late.WithLabelValues(name, "processor") // the others when they begin
	for _, outcome := range attemptOutcomes {
		m.attempts.WithLabelValues(name, outcome)
	}
	for _, outcome := range jobOutcomes {
		m.jobs.WithLabelValues(name, outcome)
	}
}

func (m *metrics) started(policy string, lateness, wait time.Duration, trace string) {
	m.starts.WithLabelValues(policy).Inc()
	observe(m.lateness, lateness, trace)
	observe(m.wait.WithLabelValues(policy), wait, trace)
}

// observe counts a duration, and keeps its trace as an example of its bucket.
func observe(in prometheus.Observer, d time.Duration, trace string) {
	seconds := max(0, d).Seconds()
	if with, ok := in.(prometheus.ExemplarObserver); ok && trace != "" {
		with.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": trace})
		return
	}
	in.Observe(seconds)
}

// limitsLeft tells what is left of limits, and no more of those that are not here.
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

// set tells how many there are. The last one of a policy that is gone is given up after its series
// went.
func (m *metrics) set(gauge *prometheus.GaugeVec, policy string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[policy] || n > 0 {
		gauge.WithLabelValues(policy).Set(float64(n))
	} else {
		gauge.DeleteLabelValues(policy)
	}
}
