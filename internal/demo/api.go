package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// arrival is a request as the API saw it.
type arrival struct {
	at        time.Time
	connected time.Time // when its connection was accepted
	job       string    // Penstock-Job
	attempt   int       // Penstock-Attempt
	allowed   bool
}

// api is an external API with a strict limit: it refuses a request if the window before it already
// holds limit requests, including refused ones. The window slides, so there is no edge at which
// twice as many fit.
type api struct {
	limit  int
	window time.Duration
	takes  time.Duration // to answer

	mu       sync.Mutex
	arrivals []arrival
	done     map[string]int // number of 2xx answers per job
}

func newAPI(limit int, window, takes time.Duration) *api {
	return &api{limit: limit, window: window, takes: takes, done: map[string]int{}}
}

type connectedKey struct{}

// serve serves the API until ctx ends, and returns its URL.
func (a *api) serve(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for the API: %w", err)
	}
	server := &http.Server{
		Handler:           a,
		ReadHeaderTimeout: 10 * time.Second,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, connectedKey{}, time.Now())
		},
	}
	context.AfterFunc(ctx, func() { server.Close() })
	go func() { _ = server.Serve(listener) }() // ends with the demo
	return "http://" + listener.Addr().String(), nil
}

// ServeHTTP implements [http.Handler].
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	job := r.Header.Get("Penstock-Job")
	attempt, err := strconv.Atoi(r.Header.Get("Penstock-Attempt"))
	if err != nil {
		attempt = -1
	}
	connected, _ := r.Context().Value(connectedKey{}).(time.Time)
	if !a.arrive(arrival{connected: connected, job: job, attempt: attempt}) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	time.Sleep(a.takes)
	a.mu.Lock()
	a.done[job]++
	a.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// arrive records a request and decides about it.
func (a *api) arrive(r arrival) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.at = time.Now() // under the lock, so that arrivals are in order
	n := len(a.arrivals)
	r.allowed = n < a.limit || r.at.Sub(a.arrivals[n-a.limit].at) >= a.window
	a.arrivals = append(a.arrivals, r)
	return r.allowed
}

// seen returns all requests so far.
func (a *api) seen() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.arrivals)
}

// count returns the number of distinct jobs done, of refused requests, and of requests in the last
// window.
func (a *api) count() (done, refused, lately int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.arrivals {
		if !r.allowed {
			refused++
		}
	}
	now := time.Now()
	for _, r := range slices.Backward(a.arrivals) {
		if now.Sub(r.at) >= a.window {
			break
		}
		lately++
	}
	return len(a.done), refused, lately
}

// finished reports whether all jobs were done.
func (a *api) finished(jobs []string) bool { return len(a.missing(jobs)) == 0 }

// missing returns the jobs without a 2xx answer.
func (a *api) missing(jobs []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(jobs), func(job string) bool { return a.done[job] > 0 })
}

// busiest returns the most requests in any window.
func busiest(arrivals []arrival, window time.Duration) int {
	most, first := 0, 0
	for i, r := range arrivals {
		for r.at.Sub(arrivals[first].at) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
