//go:build unix

package main

import (
	"context"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type target struct {
	w    *world
	mood atomic.Int32
	url  string
	stop func() error

	mu    sync.Mutex
	times map[string]uint64
}

const (
	moodFlaky int32 = iota
	moodDown        // 503
	moodHangs
)

func (t *target) serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	t.url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: t, ReadHeaderTimeout: 10 * time.Second}
	t.stop = server.Close
	go func() { _ = server.Serve(listener) }()
	return nil
}

func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/call/") {
		t.called(r)
		return
	}
	came := t.w.now()
	name, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // truncated
	}
	attempt, err := strconv.Atoi(r.Header.Get("Penstock-Attempt"))
	if err != nil {
		attempt = -1
	}
	seen := run{name: string(name), job: r.Header.Get("Penstock-Job"), attempt: attempt, came: came}
	defer func() {
		seen.left = t.w.now()
		t.w.history.ran(seen)
	}()
	status, wait := t.choose(seen.name)
	if !pause(r.Context(), wait) {
		return
	}
	switch status {
	case 0:
		panic(http.ErrAbortHandler)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	seen.status = status
	w.WriteHeader(status)
}

func (t *target) choose(name string) (status int, wait time.Duration) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	t.mu.Lock()
	t.times[name]++
	r := rand.New(rand.NewPCG(t.w.seed, hash.Sum64()+t.times[name]))
	t.mu.Unlock()
	wait = time.Duration(r.IntN(15)) * time.Millisecond
	luck := r.IntN(1000)
	switch t.mood.Load() {
	case moodDown:
		return http.StatusServiceUnavailable, wait
	case moodHangs:
		return 0, time.Hour
	}
	switch {
	case luck < 30:
		return http.StatusOK, time.Duration(r.IntN(1000)) * time.Millisecond
	case luck < 45:
		return http.StatusInternalServerError, wait
	case luck < 49:
		return http.StatusTooManyRequests, wait
	case luck < 55:
		return http.StatusUnprocessableEntity, wait
	case luck < 58:
		return 0, wait
	case luck < 59:
		return 0, time.Hour
	default:
		return http.StatusOK, wait
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
