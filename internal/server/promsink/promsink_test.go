package promsink_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/internal/server/promsink"
	"github.com/penstock-mq/penstock/queue"
)

// Each start and each check is an event.
func TestAnEventAllocatesNothing(t *testing.T) {
	first := &promsink.Group{Of: []string{queue.EventStarted}}
	s := promsink.New(prometheus.NewRegistry(),
		promsink.Metric{Name: "starts", Labels: []string{"policy"},
			Of: []string{queue.EventStarted}, Zeros: promsink.Zeros{first: {""}}},
		promsink.Metric{Name: "shadows", Labels: []string{"policy", "limit", "over"},
			Of: []string{queue.EventStarted}},
		promsink.Metric{Name: "held", Labels: []string{"policy"},
			Of: []string{queue.EventStarted}, Gauge: true})
	sinks := queue.Sinks{nil, s}
	n := testing.AllocsPerRun(100, func() {
		sinks.Take(queue.Event{Type: queue.EventStarted, Policy: "p", Name: "daily", Value: 1})
	})
	if s.Err() != nil || n > 0 {
		t.Errorf("%v allocations, %v", n, s.Err())
	}
}
