package main

import (
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

type target struct {
	url   string
	began time.Time
	http  *http.Server

	mu       sync.Mutex
	takes    time.Duration
	strict   bool // refuses what is above the limit in any second
	arrivals []arrival
	refused  int
}

type arrival struct {
	at     time.Duration
	number int
}

func newTarget() (*target, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{url: "http://" + l.Addr().String() + "/", began: time.Now()}
	t.http = &http.Server{Handler: t}
	go func() { _ = t.http.Serve(l) }()
	return t, nil
}

func (t *target) close() { _ = t.http.Close() }

func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Since(t.began)
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	if err != nil {
		return
	}
	number, err := numberOf(text)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	if t.strict {
		at = time.Since(t.began) // in order
	}
	n := len(t.arrivals)
	refused := t.strict && n >= limit && at-t.arrivals[n-limit].at < time.Second
	if refused {
		t.refused++
	} else {
		t.arrivals = append(t.arrivals, arrival{at, number})
	}
	takes := t.takes
	t.mu.Unlock()
	if refused {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
	}
}

func (t *target) begin(takes time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.takes, t.arrivals, t.refused = takes, nil, 0
}

func (t *target) arrived() []arrival {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(slices.Values(t.arrivals), func(a, b arrival) int {
		return int(a.at - b.at)
	})
}
