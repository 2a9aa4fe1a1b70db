package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slow is the rate of the target's clock: its windows are longer than those of the drainers'
	// clocks by almost the 0.1 % that they allow for.
	slow = 0.9991
	// unanswered is the answered instant of a visit that has no answer yet.
	unanswered = -1
)

// visit is a request, by the target's clock: when it was counted, before any work, and the moment
// before the header of its answer.
type visit struct{ came, answered time.Duration }

// target counts requests by the first part of their path.
type target struct {
	began time.Time
	harm  atomic.Bool

	mu     sync.Mutex
	visits map[string][]visit
}

func (t *target) now() time.Duration {
	return time.Duration(float64(time.Since(t.began)) * slow)
}

// beTarget is the target's process: requests come to one address, questions to another.
func beTarget() error {
	t := &target{began: time.Now(), visits: map[string][]visit{}}
	requests, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	questions, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("ready requests=%s questions=%s\n", requests.Addr(), questions.Addr())
	failed := make(chan error)
	go func() { failed <- http.Serve(requests, t) }()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /now", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, int64(t.now()))
	})
	mux.HandleFunc("GET /visits/{name}", t.tell)
	mux.HandleFunc("PUT /harm", func(http.ResponseWriter, *http.Request) { t.harm.Store(true) })
	go func() { failed <- http.Serve(questions, mux) }()
	return <-failed
}

func (t *target) come(name string) (index int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.visits[name] = append(t.visits[name], visit{t.now(), unanswered})
	return len(t.visits[name]) - 1
}

func (t *target) answer(name string, index int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.visits[name][index].answered = t.now()
}

// ServeHTTP works for 5 to 35 ms. While there is harm, some answers are preceded by a 103, which is
// no answer, and some are a 503, which may come from an intermediary.
func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	index := t.come(name)
	harm := t.harm.Load()
	if harm && rand.IntN(20) == 0 {
		w.WriteHeader(http.StatusEarlyHints)
	}
	time.Sleep(5*time.Millisecond + rand.N(30*time.Millisecond))
	t.answer(name, index)
	if harm && rand.IntN(500) == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (t *target) tell(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	visits := slices.Clone(t.visits[r.PathValue("name")])
	t.mu.Unlock()
	numbers := make([]int64, 0, 2*len(visits))
	for _, v := range visits {
		numbers = append(numbers, int64(v.came), int64(v.answered))
	}
	_ = binary.Write(w, binary.LittleEndian, numbers)
}

// witness asks the target's process.
type witness struct{ url string }

func (w witness) ask(method, what string) ([]byte, error) {
	r, err := http.NewRequest(method, w.url+what, nil)
	if err != nil {
		return nil, err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	return io.ReadAll(a.Body)
}

func (w witness) now() (time.Duration, error) {
	text, err := w.ask(http.MethodGet, "/now")
	if err != nil {
		return 0, err
	}
	now, err := strconv.ParseInt(string(text), 10, 64)
	return time.Duration(now), err
}

func (w witness) visits(name string) ([]visit, error) {
	text, err := w.ask(http.MethodGet, "/visits/"+url.PathEscape(name))
	if err != nil {
		return nil, err
	}
	visits := make([]visit, len(text)/16)
	for i := range visits {
		at := func(offset int) time.Duration {
			return time.Duration(binary.LittleEndian.Uint64(text[16*i+offset:]))
		}
		visits[i] = visit{at(0), at(8)}
	}
	return visits, nil
}
