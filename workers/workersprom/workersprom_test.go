package workersprom_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/workersprom"
)

// values gathers the registry's series by name{labels}: values of counters and gauges, and counts
// of histograms.
func values(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue() +
				float64(metric.GetHistogram().GetSampleCount())
			found[fmt.Sprintf("%s{%s}", family.GetName(), strings.Join(labels, ","))] = value
		}
	}
	return found
}

func TestSeriesOfAPolicyComeWithItsFirstJobAndGoWithIt(t *testing.T) {
	r := prometheus.NewRegistry()
	o, err := workersprom.New(r)
	if err != nil {
		t.Fatal(err)
	}
	o.Take(queue.Event{Type: jet.EventOwnable, Policy: "stripe", Value: jet.Whether(true)})
	none := values(t, r)
	for _, alerted := range []string{"penstock_starts_total{stripe}",
		"penstock_jobs_total{dead,stripe}"} {
		if value, found := none[alerted]; !found || value != 0 {
			t.Errorf("%s: %v, %v", alerted, value, found)
		}
		delete(none, alerted)
	}
	for name := range none {
		if strings.Contains(name, "stripe") {
			t.Errorf("%s, though the policy never had a job", name)
		}
	}
	o.Take(queue.Event{Type: queue.EventStarted, Policy: "stripe"})
	all := values(t, r)
	for _, want := range []string{"penstock_starts_returned_total{stripe,rate}",
		"penstock_start_delay_seconds_total{processor,stripe}",
		"penstock_attempts_total{failed,stripe}",
		"penstock_jobs_total{dead,stripe}", "penstock_jobs_total{done,stripe}",
		"penstock_jobs_total{cancelled,stripe}",
		"penstock_dead_letters_discarded_total{stripe}"} {
		if value, found := all[want]; !found || value != 0 {
			t.Errorf("%s: %v, %v", want, value, found)
		}
	}
	o.Take(queue.Event{Type: jet.EventOwned, Policy: "stripe", Value: 8})
	o.Take(queue.Event{Type: jet.EventOwnable, Policy: "stripe", Value: jet.Whether(false)})
	o.Take(queue.Event{Type: jet.EventBreakers, Policy: "stripe", Value: 0})
	o.Take(queue.Event{Type: jet.EventOwned, Policy: "stripe"})
	for name := range values(t, r) {
		if strings.Contains(name, "stripe") {
			t.Errorf("%s is left of a policy that is gone", name)
		}
	}
}

func TestAttemptsAndJobsAreTwoCounters(t *testing.T) {
	r := prometheus.NewRegistry()
	o, err := workersprom.New(r)
	if err != nil {
		t.Fatal(err)
	}
	o.Take(queue.Event{Type: queue.EventStarted, Policy: "stripe"})
	o.Take(queue.Event{Type: jet.EventReturned, Policy: "stripe", Name: "lease"})
	o.Take(queue.Event{Type: jet.EventLate, Policy: "stripe", Name: "throttled_by_target",
		For: 3 * time.Second})
	o.Take(queue.Event{Type: queue.EventFailed, Policy: "stripe", Name: "failed"})
	o.Take(queue.Event{Type: queue.EventStarted, Policy: "stripe"})
	o.Take(queue.Event{Type: queue.EventFailed, Policy: "stripe", Name: "permanent"})
	o.Take(queue.Event{Type: queue.EventDead, Policy: "stripe"})
	all := values(t, r)
	for name, want := range map[string]float64{
		"penstock_starts_total{stripe}":                                  2,
		"penstock_starts_returned_total{stripe,lease}":                   1,
		"penstock_start_delay_seconds_total{throttled_by_target,stripe}": 3,
		"penstock_attempts_total{failed,stripe}":                         1,
		"penstock_attempts_total{permanent,stripe}":                      1,
		"penstock_jobs_total{dead,stripe}":                               1,
		"penstock_wait_seconds{stripe}":                                  2,
		"penstock_start_lag_seconds{}":                                   2,
	} {
		if all[name] != want {
			t.Errorf("%s is %v, want %v", name, all[name], want)
		}
	}
}

func TestASecondObserverOnOneRegistryIsAnError(t *testing.T) {
	r := prometheus.NewRegistry()
	if _, err := workersprom.New(r); err != nil {
		t.Fatal(err)
	}
	if _, err := workersprom.New(r); err == nil {
		t.Error("two drainers would be counted as one")
	}
}

func TestPrometheusIsLinkedOnlyOnUse(t *testing.T) {
	deps, err := exec.Command("go", "list", "-deps",
		"github.com/penstock-mq/penstock/workers").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(deps), "prometheus") {
		t.Error("package workers imports Prometheus")
	}
}

func TestRemaindersOfLimitsAreGauges(t *testing.T) {
	r := prometheus.NewRegistry()
	o, err := workersprom.New(r)
	if err != nil {
		t.Fatal(err)
	}
	o.Take(queue.Event{Type: jet.EventOwnable, Policy: "mail", Value: jet.Whether(true)})
	all := []api.LimitLeft{{Name: "daily", Left: 7, Most: 100},
		{Name: "account", Left: 2, Most: 5, Open: 3}, {Name: "key", Open: 9}}
	told := func(want string) {
		t.Helper()
		found := map[string]float64{}
		for name, value := range values(t, r) {
			if name, is := strings.CutPrefix(name, "penstock_limit_"); is {
				found[strings.TrimPrefix(name, "units")] = value
			}
		}
		if got := fmt.Sprint(found); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	o.Take(queue.Event{Type: jet.EventLimitsLeft, Policy: "mail", Data: all})
	told("map[open{account,mail}:3 open{daily,mail}:0 open{key,mail}:9 " +
		"{left,account,mail}:2 {left,daily,mail}:7 {max,account,mail}:5 {max,daily,mail}:100]")
	o.Take(queue.Event{Type: jet.EventLimitsLeft, Policy: "mail", Data: all[1:2]})
	told("map[open{account,mail}:3 open{daily,mail}:0 open{key,mail}:0 " +
		"{left,account,mail}:2 {max,account,mail}:5]")
	o.Take(queue.Event{Type: jet.EventOwnable, Policy: "mail", Value: jet.Whether(false)})
	told("map[]")
}
