package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPIKeepsItsLimitInEveryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(2, time.Second, 0)
		began := time.Now()
		for _, step := range []struct {
			at     time.Duration
			status int
		}{
			{0, 204},
			{900 * time.Millisecond, 204},
			{999 * time.Millisecond, 429},  // 0, 900 and 999
			{1899 * time.Millisecond, 429}, // 900 and the refused one
			{1999 * time.Millisecond, 204}, // a window begins after its first request's second
			{5 * time.Second, 204},
		} {
			time.Sleep(time.Until(began.Add(step.at)))
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			if w.Code != step.status {
				t.Errorf("at %v: %d, want %d", step.at, w.Code, step.status)
			}
			if refused := w.Code == http.StatusTooManyRequests; refused !=
				(w.Header().Get("Retry-After") == "1") {
				t.Errorf("at %v: status %d with Retry-After %q", step.at, w.Code,
					w.Header().Get("Retry-After"))
			}
		}
		if most := busiest(a.seen(), time.Second); most != 3 {
			t.Errorf("%d in the busiest second, want 3", most)
		}
	})
}

func TestStallsAreClipped(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	m := &machine{stalls: []stall{{at(100), at(130)}, {at(500), at(520)}}}
	for _, c := range []struct {
		from, to       int
		longest, total time.Duration
	}{
		{0, 1000, 30 * time.Millisecond, 50 * time.Millisecond},
		{110, 505, 30 * time.Millisecond, 25 * time.Millisecond},
		{140, 490, 0, 0},
	} {
		if got := m.longest(at(c.from), at(c.to)); got != c.longest {
			t.Errorf("longest in %d–%d: %v, want %v", c.from, c.to, got, c.longest)
		}
		if got := m.total(at(c.from), at(c.to)); got != c.total {
			t.Errorf("total in %d–%d: %v, want %v", c.from, c.to, got, c.total)
		}
	}
}

// played is a flawless scene: 1,000 jobs at the outflow, the 480th killed with its drainer.
func played() *scene {
	began := time.Now()
	s := &scene{penstock: &penstock{}, api: newAPI(apiLimit, time.Second, 0),
		traffic: &traffic{backlogFrom: began},
		machine: &machine{}, mostHeld: capacity}
	at := began
	for i := range 1000 {
		job := fmt.Sprintf("%s:%d", policyName, i+1)
		s.traffic.jobs = append(s.traffic.jobs, job)
		s.api.done[job] = 1
		s.api.arrivals = append(s.api.arrivals,
			arrival{at: at, connected: began, job: job, attempt: 1, allowed: true})
		if i == 480 {
			s.killSent, s.killDone = at.Add(time.Millisecond), at.Add(2*time.Millisecond)
			s.resumed = s.killSent.Add(lease)
			at = s.resumed
			s.api.arrivals = append(s.api.arrivals,
				arrival{at: at, connected: at, job: job, attempt: 1, allowed: true})
		}
		at = at.Add(time.Second / outflow)
	}
	s.starts = slices.Clone(s.api.arrivals)
	return s
}

func TestReportNamesTheBrokenLaw(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *scene)
		broken string
	}{
		{"all well", func(*scene) {}, ""},
		{"too many held", func(s *scene) { s.mostHeld = capacity + 1 }, "law 1"},
		{"requests together at the API", func(s *scene) {
			for i := range 60 {
				s.api.arrivals[100+i].at = s.api.arrivals[160].at
			}
		}, "law 2 (rate): the API counted 110 requests in a second, and allows 50"},
		{"starts together", func(s *scene) {
			for i := range 3 {
				s.starts[100+i].at = s.starts[100].at
			}
		}, "law 2 (rate): 103 starts in 2s by the drainers' clock, 102.4 are allowed"},
		{"starts of which nobody told", func(s *scene) {
			s.starts = slices.Delete(s.starts, 700, 703)
		}, "law 2 (rate): no drainer told of 3 starts"},
		{"too slow", func(s *scene) { s.stretch(1.06) }, "law 2 (rate): 47.17/s is less than 47.5"},
		{"too fast", func(s *scene) { s.stretch(0.994) }, "law 2 (rate): the API counted 51"},
		{"slow by a stall", func(s *scene) {
			s.stretch(1.06)
			at := s.starts[0].at
			s.machine.stalls = []stall{{at, at.Add(200 * time.Millisecond)}}
		}, ""},
		{"a lost job", func(s *scene) {
			delete(s.api.done, policyName+":7")
		}, "never done: demo:7"},
		{"a dead letter", func(s *scene) { s.letters = 1 }, "law 3"},
		{"twice without a crash", func(s *scene) {
			s.api.arrivals[900].job = s.api.arrivals[899].job
		},
			"ran twice: demo:899"},
		{"overtaken on the way", func(s *scene) {
			s.swap(s.api.arrivals, 100, 110)
		}, ""},
		{"out of order", func(s *scene) {
			s.swap(s.starts, 100, 102)
		}, "law 4 (order): 2 jobs started after a job accepted later"},
		{"a job that the kill held up", func(s *scene) {
			s.starts[481].job = s.starts[469].job
			s.starts = slices.Delete(s.starts, 469, 470)
		}, ""},
		{"a counted attempt", func(s *scene) { s.api.arrivals[3].attempt = 2 }, "law 6"},
		{"no retry-after", func(s *scene) { s.traffic.withoutRetry = 1 }, "law 7"},
		{"neither yes nor no", func(s *scene) {
			s.traffic.failures = []error{http.ErrHandlerTimeout}
		}, "law 7"},
		{"no takeover", func(s *scene) { s.resumed = time.Time{} }, "nobody took the bucket over"},
		{"a late takeover", func(s *scene) {
			s.killSent = s.killSent.Add(lease - longestTakeover - time.Millisecond)
		}, "a takeover takes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := played()
			c.change(s)
			broken := s.broken(s.findings())
			if c.broken == "" && len(broken) == 0 {
				return
			}
			if len(broken) != 1 || c.broken == "" || !strings.Contains(broken[0], c.broken) {
				t.Errorf("broken: %q, want %q", broken, c.broken)
			}
		})
	}
}

func (s *scene) swap(a []arrival, i, j int) {
	a[i].job, a[j].job = a[j].job, a[i].job
}

func (s *scene) stretch(factor float64) {
	began := s.api.arrivals[0].at
	stretched := func(at time.Time) time.Time {
		return began.Add(time.Duration(float64(at.Sub(began)) * factor))
	}
	for _, list := range [][]arrival{s.api.arrivals, s.starts} {
		for i := range list {
			list[i].at = stretched(list[i].at)
		}
	}
	s.killSent, s.killDone, s.resumed = stretched(s.killSent), stretched(s.killDone),
		stretched(s.resumed)
}
