package workersprom_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/workersprom"
)

// A program with handlers exports the same metrics as Penstock's own programs.
func ExampleNew() {
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	sink, err := workersprom.New(registry)
	if err != nil {
		fmt.Println(err)
		return
	}
	options := workers.Options{Sink: sink}

	// The drainer reports a new policy, and a start.
	options.Sink.Take(queue.Event{Type: jet.EventOwnable, Policy: "stripe", Value: 1})
	options.Sink.Take(queue.Event{Type: queue.EventStarted, Policy: "stripe"})
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		fmt.Println(family.GetName(), len(family.GetMetric()))
	}
	// Output:
	// penstock_attempts_total 6
	// penstock_dead_letters_discarded_total 1
	// penstock_history_lost_total 1
	// penstock_jobs_total 3
	// penstock_lease_held 1
	// penstock_rate_limit_headers_total 1
	// penstock_records_damaged_total 1
	// penstock_records_newer 1
	// penstock_start_delay_seconds_total 1
	// penstock_start_lag_seconds 1
	// penstock_starts_returned_total 3
	// penstock_starts_total 1
	// penstock_wait_seconds 1
}
