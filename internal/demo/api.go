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

type arrival struct {
	at        time.Time
	connected time.Time
	job       string
	attempt   int
	allowed   bool
}

// api refuses a request if the sliding window before it already holds limit requests, refused ones
// included.
type api struct {
	limit  int
	window time.Duration
	takes  time.Duration

	mu       sync.Mutex
	arrivals []arrival
	done     map[string]int
}

func newAPI(limit int, window, takes time.Duration) *api {
	return &api{limit: limit, window: window, takes: takes, done: map[string]int{}}
}

type connectedKey struct{}

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
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}

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

func (a *api) arrive(r arrival) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.at = time.Now()
	n := len(a.arrivals)
	r.allowed = n < a.limit || r.at.Sub(a.arrivals[n-a.limit].at) >= a.window
	a.arrivals = append(a.arrivals, r)
	return r.allowed
}

func (a *api) seen() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.arrivals)
}

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

func (a *api) finished(jobs []string) bool { return len(a.missing(jobs)) == 0 }

func (a *api) missing(jobs []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(jobs), func(job string) bool { return a.done[job] > 0 })
}

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
