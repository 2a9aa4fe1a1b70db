// Command calls compares the outbound proxy with a plain httputil.ReverseProxy: the time that it
// adds to a request and to a stream's first chunk, how exactly ten processes share a rate, and how
// long calls wait when their bucket's owner is killed. It marks missed goals and exits 0.
//
//	go -C bench run ./calls                 # printed
//	go -C bench run ./calls -out ../docs    # and written to docs/bench-calls.md
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/bench/build"
	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

const (
	rounds   = 5
	requests = 2000
	streams  = 500
	at       = 4
	within   = 20 * time.Millisecond
	// mostDearer is what counting from the answer may add to p50.
	mostDearer = 100 * time.Microsecond

	rate      = 200
	processes = 10
	workers   = 8
	lasts     = 30 * time.Second
	settles   = 2 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "plain":
		err = plain(args[1])
	case len(args) == 2 && args[0] == "client":
		err = client(ctx, args[1])
	default:
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "calls:", err)
		os.Exit(1)
	}
}

func plain(upstream string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("ready http=%s\n", listener.Addr())
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	return http.Serve(listener, &httputil.ReverseProxy{FlushInterval: -1, Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
}

func client(ctx context.Context, to string) error {
	fmt.Println("ready")
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := get(ctx, to); err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		})
	}
	all.Wait()
	return nil
}

var pool = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func get(ctx context.Context, from string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	response, err := pool.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

type target struct {
	mu   sync.Mutex
	seen []time.Time
}

func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	if strings.HasSuffix(r.URL.Path, "/stream") {
		fmt.Fprintln(w, time.Now().UnixNano())
		_ = http.NewResponseController(w).Flush()
		time.Sleep(5 * time.Millisecond) // shows a proxy that waits for the next chunk
		_, _ = io.WriteString(w, "last")
		return
	}
	t.mu.Lock()
	t.seen = append(t.seen, now)
	t.mu.Unlock()
	_, _ = io.WriteString(w, `{"ok":true}`)
}

func (t *target) judge() (mean float64, worst int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := slices.IndexFunc(t.seen, func(at time.Time) bool {
		return at.Sub(t.seen[0]) >= settles
	})
	if first < 0 {
		return 0, len(t.seen)
	}
	seen := t.seen[first:]
	for i, j := 0, 0; j < len(seen); j++ {
		for seen[j].Sub(seen[i]) >= time.Second {
			i++
		}
		worst = max(worst, j-i+1)
	}
	return float64(len(seen)-1) / seen[len(seen)-1].Sub(seen[0]).Seconds(), worst
}

const settings = `
http: {listen: '127.0.0.1:0'}
nats: {%s}
log: {level: error}
outbound:
  - listen: 127.0.0.1:0
    routes:
      - {prefix: /free, upstream: '%[2]s', policy: free}
      - {prefix: /from-start, upstream: '%[2]s', policy: from-start}
      - {prefix: /from-answer, upstream: '%[2]s', policy: from-answer}
      - {prefix: /paced, upstream: '%[2]s', policy: paced}
policies:
  - name: from-start
    algorithm: leaking_bucket
    limits: [{algorithm: sliding_log, limit: 50000, window: 1s}]
    capacity: 10000
  - name: from-answer
    algorithm: leaking_bucket
    limits: [{algorithm: sliding_log, limit: 50000, window: 1s, count_from: answer}]
    capacity: 10000
  - {name: free, algorithm: leaking_bucket, outflow: 100000/s, burst: 1000, capacity: 10000}
  - {name: paced, algorithm: leaking_bucket, outflow: %[3]d/s, peak: %[4]d/s, capacity: 10000}
`

func begin(ctx context.Context, running *[]*proctest.Process, name string,
	args ...string) (map[string]string, error) {

	p, err := proctest.Open(exec.Command(name, args...))
	if err != nil {
		return nil, err
	}
	*running = append(*running, p)
	return p.Ready(ctx)
}

func run(ctx context.Context) error {
	out := flag.String("out", "", "directory to write bench-calls.md to; none: print only")
	flag.Parse()
	dir, err := os.MkdirTemp("", "calls")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	admitter, err := build.Admitter(ctx, dir)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	t := &target{}
	go func() { _ = http.Serve(listener, t) }()
	upstream := "http://" + listener.Addr().String()

	var running []*proctest.Process
	defer func() {
		for _, p := range slices.Backward(running) {
			p.Kill()
		}
	}()
	start := func(name, nats string, args ...string) (map[string]string, error) {
		file := filepath.Join(dir, name+".yaml")
		text := fmt.Sprintf(settings, nats, upstream, rate, rate+rate/200)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		return begin(ctx, &running, admitter, append(args, "--config", file)...)
	}
	first, err := start("first", fmt.Sprintf("embedded: {dir: '%s', listen: '127.0.0.1:0'}",
		filepath.Join(dir, "nats")), "--drain")
	if err != nil {
		return err
	}
	second, err := start("second", fmt.Sprintf("url: '%s'", first["nats"]))
	if err != nil {
		return err
	}
	beside, err := begin(ctx, &running, self, "plain", upstream)
	if err != nil {
		return err
	}
	page := fmt.Sprintf("# What the proxy for outbound calls costs\n\nWritten by `make "+
		"bench-calls` on %s. It is a measurement and no test.\n\n",
		paper.Machine("github.com/nats-io/nats-server/v2"))
	ways := []way{{name: "directly", url: upstream}, {name: "httputil.ReverseProxy",
		url: "http://" + beside["http"]},
		{name: "outbound, the policy's drainer inside",
			url: "http://" + first["outbound"] + "/free"},
		{name: "outbound, the drainer in another process",
			url: "http://" + second["outbound"] + "/free"},
		{name: "outbound, drainer inside, a limit counted from the start",
			url: "http://" + first["outbound"] + "/from-start"},
		{name: "outbound, drainer inside, a limit counted from the answer",
			url: "http://" + first["outbound"] + "/from-answer"}}
	if err := latencies(ctx, ways, requests, whole); err != nil {
		return err
	}
	page += fmt.Sprintf("%d requests each way, %d at once, in turns. Added: beside "+
		"httputil.ReverseProxy;\nwanted are at most 1 ms of p50 and 5 ms of p99.\n\n",
		rounds*requests, at) + table(ways, time.Millisecond, 5*time.Millisecond, time.Hour)
	ways, dearer := ways[:4], ways[5].median()-ways[4].median() // sorted by table
	page += fmt.Sprintf("\nTo count from the answer adds %.2f ms of p50 beside the start (wanted: "+
		"at most %v%s).\n", float64(dearer)/1e6, mostDearer, missed(dearer > mostDearer))
	if err := latencies(ctx, ways, streams, firstChunk); err != nil {
		return err
	}
	page += fmt.Sprintf("\nThe first chunk of %d streams each way: from the target's writing it, "+
		"5 ms before the next,\nto the caller's having it; wanted are at most %v of p99.\n\n",
		rounds*streams, within) + table(ways, time.Hour, time.Hour, within)
	t.mu.Lock()
	t.seen = nil
	t.mu.Unlock()
	for i := range processes {
		proxy := []string{first["outbound"], second["outbound"]}[i%2]
		if _, err := begin(ctx, &running, self, "client", "http://"+proxy+"/paced"); err != nil {
			return err
		}
	}
	select {
	case <-time.After(lasts + settles):
	case <-ctx.Done():
		return ctx.Err()
	}
	mean, worst := t.judge()
	page += fmt.Sprintf("\nTen processes with %d requests waiting each ask through two admitters "+
		"for %s, under a policy of %d/s (peak %d/s).\nThe target saw %.2f/s (%+.2f %%; wanted: "+
		"within 0.5 %%%s) and at most %d in any second (wanted: at most %d%s).\n",
		workers, lasts, rate, rate+rate/200, mean, 100*(mean/rate-1),
		missed(mean < rate*.995 || mean > rate*1.005), worst, rate+rate/100+1,
		missed(worst > rate+rate/100+1))
	for _, p := range running {
		p.Kill()
	}
	hub, err := start("hub", fmt.Sprintf("embedded: {dir: '%s', listen: '127.0.0.1:0'}",
		filepath.Join(dir, "hub")))
	if err != nil {
		return err
	}
	var drainers []drainer
	for _, name := range []string{"one", "other"} {
		words, err := start(name, fmt.Sprintf("url: '%s'", hub["nats"]), "--drain")
		if err != nil {
			return err
		}
		drainers = append(drainers, drainer{words["http"], running[len(running)-1]})
	}
	killed, err := crash(ctx, "http://"+hub["outbound"]+"/paced", drainers)
	if err != nil {
		return err
	}
	page += killed
	w := bufio.NewWriter(os.Stdout)
	fmt.Fprint(w, page)
	if err := w.Flush(); err != nil || *out == "" {
		return err
	}
	return os.WriteFile(filepath.Join(*out, "bench-calls.md"), []byte(page), 0o644)
}

func missed(yes bool) string {
	if yes {
		return ", MISSED"
	}
	return ""
}

type way struct {
	name, url string
	took      []time.Duration
}

// median is of sorted times.
func (w way) median() time.Duration { return w.took[len(w.took)/2] }

func whole(ctx context.Context, url string) (time.Duration, error) {
	began := time.Now()
	err := get(ctx, url)
	return time.Since(began), err
}

// firstChunk is measured from the target, in this process.
func firstChunk(ctx context.Context, url string) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/stream", nil)
	if err != nil {
		return 0, err
	}
	response, err := pool.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var sent int64
	_, err = fmt.Fscanln(response.Body, &sent)
	took := time.Since(time.Unix(0, sent))
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	return took, err
}

func latencies(ctx context.Context, ways []way, requests int,
	measure func(ctx context.Context, url string) (time.Duration, error)) error {

	for i := range ways {
		ways[i].took = nil
	}
	for round := range rounds + 1 {
		for i := range ways {
			w := &ways[i]
			took := make([][]time.Duration, at)
			failed := make([]error, at)
			var all sync.WaitGroup
			for n := range took {
				all.Go(func() {
					for len(took[n]) < requests/at && failed[n] == nil {
						var one time.Duration
						one, failed[n] = measure(ctx, w.url)
						took[n] = append(took[n], one)
					}
				})
			}
			all.Wait()
			if err := errors.Join(failed...); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				w.took = append(w.took, slices.Concat(took...)...)
			}
		}
	}
	return nil
}

func table(ways []way, most50, most99, most time.Duration) string {
	var b strings.Builder
	fmt.Fprint(&b, "| | p50 | p99 | p50 added | p99 added |\n|---|---|---|---|---|\n")
	ms := func(d, most time.Duration) string {
		return fmt.Sprintf("%.2f ms%s", float64(d)/1e6, missed(d > most))
	}
	var plain [2]time.Duration
	for i, w := range ways {
		slices.Sort(w.took)
		p50, p99 := w.median(), w.took[len(w.took)*99/100]
		added50, added99 := "", ""
		switch {
		case i == 1:
			plain = [2]time.Duration{p50, p99}
		case i > 1:
			added50, added99 = ms(p50-plain[0], most50), ms(p99-plain[1], most99)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", w.name, ms(p50, most), ms(p99, most),
			added50, added99)
	}
	return b.String()
}
