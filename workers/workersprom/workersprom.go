// Package workersprom exports a drainer's metrics to Prometheus under the same names as Penstock's
// programs. The alerts of deploy/penstock-alerts.yaml therefore also work for Go programs with
// handlers:
//
//	sink, err := workersprom.New(prometheus.DefaultRegisterer)
//	…
//	drainer, err := workers.New(nc, workers.Options{Sink: sink})
//
// It is a separate package to keep Prometheus out of other programs.
package workersprom

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/promsink"
	"github.com/penstock-mq/penstock/queue"
)

// New registers a drainer's metrics and returns the sink that updates them. Each drainer needs a
// separate sink and registerer; registering metrics twice is an error.
//
// Histograms have exemplars: the trace_id of a job with a sampled trace.
//
// A policy's counters begin at zero with its first start, and are deleted with it. Series that
// alerts need exist as soon as the drainer has the policy.
func New(registerer prometheus.Registerer) (queue.Sink, error) {
	ownable := &promsink.Group{Of: []string{jet.EventOwnable}}
	first := &promsink.Group{Of: []string{queue.EventStarted, queue.EventDone, queue.EventDead,
		queue.EventCancelled}}
	policy, outcome := []string{"policy"}, []string{"policy", "outcome"}
	zero := promsink.Zeros{first: {""}}
	reason, limit := []string{"policy", "reason"}, []string{"policy", "limit"}
	s := promsink.New(registerer,
		promsink.Metric{Name: "penstock_starts_total", Help: "Started attempts of jobs.",
			Labels: policy, Of: []string{queue.EventStarted}, Zeros: promsink.Zeros{ownable: {""}}},
		promsink.Metric{Name: "penstock_starts_returned_total",
			Help: "Jobs that their worker returned before starting them, by reason: rate " +
				"(no slot at the last check), lease or order (an earlier job came " +
				"back).",
			Labels: reason, Of: []string{jet.EventReturned}, Zeros: promsink.Zeros{
				first: {"rate", "lease", "order"}}},
		promsink.Metric{Name: "penstock_start_delay_seconds_total",
			Help:   "Delay of starts beyond what the outflow of their bucket allowed, by cause.",
			Labels: []string{"policy", "cause"}, Of: []string{jet.EventLate},
			Add: promsink.Seconds, Zeros: promsink.Zeros{
				first: {"processor"}}},
		promsink.Metric{Name: "penstock_limit_blocked_seconds_total",
			Help:   "Total time for which a limit on starts held back buckets with waiting jobs.",
			Labels: limit, Of: []string{jet.EventLimitBlocked}, Add: promsink.Seconds},
		promsink.Metric{Name: "penstock_attempts_total",
			Help: "Attempts that ended, by outcome: done, failed, throttled, permanent, returned " +
				"(not started after all) or uncounted (interrupted).",
			Labels: outcome, Of: []string{queue.EventDone, queue.EventFailed,
				queue.EventThrottled, jet.EventUncounted}, Zeros: promsink.Zeros{
				first: {"done", "failed", "throttled", "permanent", "returned", "uncounted"}}},
		promsink.Metric{Name: "penstock_jobs_total",
			Help: "Jobs that ended, by outcome: done, dead (a dead letter of any reason) or " +
				"cancelled.",
			Labels: outcome, Of: []string{queue.EventDone, queue.EventDead,
				queue.EventCancelled}, Zeros: promsink.Zeros{ownable: {"dead"},
				first: {"done", "cancelled"}}},
		promsink.Metric{Name: "penstock_rate_limit_headers_total",
			Help: "Answers that reported the target's limit as exhausted without throttling; " +
				"the bucket pauses.",
			Labels: policy, Of: []string{queue.EventDone, queue.EventFailed,
				jet.EventUncounted}, Zeros: zero,
			Add: func(e queue.Event) float64 { return float64(jet.Whether(e.PauseMS > 0)) }},
		promsink.Metric{Name: "penstock_breaker_open",
			Help: "Open breakers in this process: one for each bucket whose target is down, and " +
				"one for all of its buckets.",
			Labels: policy, Of: []string{jet.EventBreakers}, Gauge: true},
		promsink.Metric{Name: "penstock_partitions_owned",
			Help:   "Partitions owned by this process.",
			Labels: policy, Of: []string{jet.EventOwned}, Gauge: true},
		promsink.Metric{Name: "penstock_adapted_buckets",
			Help: "Buckets in this process that run below their outflow, because their " +
				"target throttled them.",
			Labels: policy, Of: []string{jet.EventLowered}, Gauge: true},
		promsink.Metric{Name: "penstock_policy_without_workers",
			Help: "1 while due jobs have no worker, neither in the process that owns " +
				"their partition nor elsewhere.",
			Labels: policy, Of: []string{jet.EventWithoutWorkers}, Gauge: true},
		promsink.Metric{Name: "penstock_lease_held",
			Help: "Whether this drainer holds its lease: 1, or 0 while nothing starts.",
			Of:   []string{jet.EventLease}, Gauge: true},
		promsink.Metric{Name: "penstock_records_damaged_total",
			Help: "Unreadable records of partitions, attempts and leases that were " +
				"set aside and rebuilt.",
			Of: []string{jet.EventRecordDamaged}},
		promsink.Metric{Name: "penstock_records_newer",
			Help: "Records of a newer format. Each blocks a partition, or the succession " +
				"of a drainer.",
			Of: []string{jet.EventRecordsNewer}, Gauge: true},
		promsink.Metric{Name: "penstock_callbacks_lost_total",
			Help: "Outcomes not posted to their Penstock-Callback, by reason: full (the queue " +
				"of the callbacks) or refused.",
			Labels: reason, Of: []string{queue.EventCallbackLost}},
		promsink.Metric{Name: "penstock_dead_letters_discarded_total",
			Help:   "Dead letters discarded, oldest first, to make room for new ones.",
			Labels: policy, Of: []string{jet.EventDiscarded}, Add: promsink.Value,
			Zeros: zero},
		promsink.Metric{Name: "penstock_history_lost_total",
			Help: "Ended jobs missing from the history of policies with result_retention, " +
				"because the server did not store them, or not in time.",
			Labels: policy, Of: []string{jet.EventHistoryLost}, Zeros: zero},
	)
	starts(s)
	limitsLeft(s)
	s.On(func(e queue.Event) {
		if e.Value > 0 {
			s.Know(e.Policy)
		} else {
			s.Forget(e.Policy)
		}
	}, jet.EventOwnable)
	return s, s.Err()
}

// starts adds the metrics that take more than one figure of a start.
func starts(s *promsink.Sink) {
	lateness := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "penstock_start_lag_seconds",
		Help: "Time from a scheduled start to the actual start.",
		Buckets: []float64{.0005, .001, .002, .003, .004, .005, .0075, .01, .015, .025, .05, .1,
			.25, .5, 1, 2.5, 5,
			10},
	})
	wait := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "penstock_wait_seconds",
		Help: "Time from the acceptance of a job to its start.",
		Buckets: []float64{.005, .01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 1800,
			3600, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600},
	}, []string{"policy"})
	shadowed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_shadow_delayed_total",
		Help: "Starts that shadow limits would have delayed.",
	}, []string{"policy", "limit"})
	shadowedBy := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_shadow_delay_seconds_total",
		Help: "Time by which shadow limits would have delayed starts.",
	}, []string{"policy", "limit"})
	s.Register(lateness, wait, shadowed, shadowedBy)
	s.On(func(e queue.Event) {
		observe(lateness, e.For, e.Trace)
		observe(wait.WithLabelValues(e.Policy), e.At.Sub(e.Accepted), e.Trace)
		for limit, ms := range e.Shadow {
			shadowed.WithLabelValues(e.Policy, limit).Inc()
			shadowedBy.WithLabelValues(e.Policy, limit).Add(float64(ms) / 1000)
		}
	}, queue.EventStarted)
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

// limitsLeft adds the units of limits, except limits no longer here.
func limitsLeft(s *promsink.Sink) {
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "penstock_limit_open",
		Help: "Units that requests without an answer hold of a limit that counts from the " +
			"answer, over all keys; take the maximum over drainers for a limit of all keys, " +
			"else the sum.",
	}, []string{"policy", "limit"})
	units := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "penstock_limit_units",
		Help: "Units of a limit on starts of all keys, or of a shared limit, that are " +
			"available (left) and allowed at most (max); take the maximum over drainers.",
	}, []string{"policy", "limit", "kind"})
	s.Register(units, open)
	var mu sync.Mutex
	told := map[string][]api.LimitLeft{}
	s.On(func(e queue.Event) {
		mu.Lock()
		defer mu.Unlock()
		left, _ := e.Data.([]api.LimitLeft)
		for _, l := range told[e.Policy] {
			here := func(is api.LimitLeft) bool { return is.Name == l.Name }
			if !slices.ContainsFunc(left, here) {
				units.DeletePartialMatch(
					prometheus.Labels{"policy": e.Policy, "limit": l.Name})
				open.WithLabelValues(e.Policy, l.Name).Set(0)
			}
		}
		if told[e.Policy] = left; len(left) == 0 {
			delete(told, e.Policy)
		}
		if e.Type == jet.EventOwnable && e.Value == 0 {
			open.DeletePartialMatch(prometheus.Labels{"policy": e.Policy})
		}
		for _, l := range left {
			open.WithLabelValues(e.Policy, l.Name).Set(float64(l.Open))
			if l.Most > 0 {
				units.WithLabelValues(e.Policy, l.Name, "left").Set(float64(l.Left))
				units.WithLabelValues(e.Policy, l.Name, "max").Set(float64(l.Most))
			}
		}
	}, jet.EventLimitsLeft, jet.EventOwnable)
}
