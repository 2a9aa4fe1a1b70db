// Package promsink makes Prometheus metrics of events, by a table.
package promsink

import (
	"cmp"
	"errors"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-mq/penstock/queue"
)

type Metric struct {
	Name, Help string
	// at most three: policy; "over" or "allowed", whether Value is not 0; others: Name, or else the
	// type
	Labels []string
	Of     []string // types of events
	// to a counter; default 1
	Add func(queue.Event) float64
	// Gauge shows Value. A policy's series exists while the policy is known or the value is not 0;
	// with While, only if both.
	Gauge, While bool
	// series that begin at zero
	Zeros Zeros
}

// Zeros are the values of a metric's second label, or "" without one, by group.
type Zeros map[*Group][]string

// The series of a group begin with a policy's first event of these types. Most of many policies
// have no jobs, and a series takes half a kilobyte.
type Group struct{ Of []string }

type Sink struct {
	registerer prometheus.Registerer
	problems   []error
	takes      map[string][]func(queue.Event)
	vectors    []vector
	zeros      map[*Group][]func(policy string)

	mu    sync.Mutex
	known map[string]bool
	begun map[*Group]map[string]bool
}

type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func New(r prometheus.Registerer, table ...Metric) *Sink {
	s := &Sink{registerer: r, takes: map[string][]func(queue.Event){}, known: map[string]bool{},
		zeros: map[*Group][]func(string){}, begun: map[*Group]map[string]bool{}}
	for _, m := range table {
		if m.Gauge {
			s.gauge(m)
		} else {
			s.counter(m)
		}
	}
	return s
}

// Err returns the errors of registration.
func (s *Sink) Err() error { return errors.Join(s.problems...) }

func (s *Sink) Take(e queue.Event) {
	for _, take := range s.takes[e.Type] {
		take(e)
	}
}

func (s *Sink) On(take func(queue.Event), types ...string) {
	for _, t := range types {
		s.takes[t] = append(s.takes[t], take)
	}
}

// Register adds metrics; [Sink.Forget] deletes their policies.
func (s *Sink) Register(all ...prometheus.Collector) {
	for _, c := range all {
		s.problems = append(s.problems, s.registerer.Register(c))
		if v, ok := c.(vector); ok {
			s.vectors = append(s.vectors, v)
		}
	}
}

func (s *Sink) Know(policy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[policy] = true
}

func (s *Sink) Forget(policy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, policy)
	for _, begun := range s.begun {
		delete(begun, policy)
	}
	for _, v := range s.vectors {
		v.DeletePartialMatch(prometheus.Labels{"policy": policy})
	}
}

func (s *Sink) Begin(g *Group, policy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun[g][policy] {
		return
	}
	s.begun[g][policy] = true
	for _, zero := range s.zeros[g] {
		zero(policy)
	}
}

func (s *Sink) counter(m Metric) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
	s.Register(c)
	if len(m.Labels) == 0 {
		c.WithLabelValues()
	}
	for g, zeros := range m.Zeros {
		if s.begun[g] == nil {
			s.begun[g] = map[string]bool{}
			s.On(func(e queue.Event) { s.Begin(g, e.Policy) }, g.Of...)
		}
		s.zeros[g] = append(s.zeros[g], func(policy string) {
			for _, zero := range zeros {
				c.WithLabelValues([]string{policy, zero}[:len(m.Labels)]...)
			}
		})
	}
	s.On(func(e queue.Event) {
		var values [3]string
		n := 1.
		if m.Add != nil {
			n = m.Add(e)
		}
		c.WithLabelValues(m.labels(&values, e)...).Add(n)
	}, m.Of...)
}

func (s *Sink) gauge(m Metric) {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
	s.Register(g)
	if len(m.Labels) == 0 {
		g.WithLabelValues()
	}
	s.On(func(e queue.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		var values [3]string
		labels := m.labels(&values, e)
		known := len(labels) == 0 || s.known[e.Policy]
		if keep := known || e.Value > 0; keep && (!m.While || known && e.Value > 0) {
			g.WithLabelValues(labels...).Set(float64(e.Value))
		} else {
			g.DeleteLabelValues(labels...)
		}
	}, m.Of...)
}

func (m *Metric) labels(values *[3]string, e queue.Event) []string {
	for i, label := range m.Labels {
		switch label {
		case "policy":
			values[i] = e.Policy
		case "allowed", "over":
			values[i] = strconv.FormatBool(e.Value > 0)
		default:
			values[i] = cmp.Or(e.Name, e.Type)
		}
	}
	return values[:len(m.Labels)]
}

func Seconds(e queue.Event) float64 { return e.For.Seconds() }

func Value(e queue.Event) float64 { return float64(e.Value) }
