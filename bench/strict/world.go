package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/wiretest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

const (
	key     = "k"
	lease   = 2 * time.Second
	timeout = 10 * time.Second
	// longestHold of a link, with a target's freeze, is within maxDelay.
	longestHold = 4 * time.Second
	maxDelay    = 5 * time.Second
	drains      = 2
)

// row is a bucket whose target allows n requests in any window.
type row struct {
	name   string
	n      int
	window time.Duration
	calls  bool // of callers, instead of jobs
}

func (r row) perSecond() int { return int(float64(r.n)/r.window.Seconds() + 0.5) }

// rules differ between runs of one world.
type rules struct {
	countFrom string
	maxDelay  time.Duration
	timeout   time.Duration
}

// process is a program with many lives.
type process struct {
	name    string
	command func() *exec.Cmd
	*proctest.Process
	ready map[string]string
}

func (p *process) start(ctx context.Context) (err error) {
	if p.Process, err = proctest.Open(p.command()); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if p.ready, err = p.Ready(ctx); err != nil {
		p.Kill()
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	return nil
}

type link struct {
	name string
	*wiretest.Link
}

// world is an installation and its target. The admitter with the NATS server is not harmed.
type world struct {
	dir   string
	rows  []row
	rules rules
	harm  func(w *world, ctx context.Context, seed uint64)

	admitter, target, proxy *process
	victims                 []*process
	links                   []*link
	witness                 witness
	nc                      *nats.Conn
	fail                    context.CancelCauseFunc

	mu    sync.Mutex
	began time.Time
	log   *os.File
	took  map[string]*took
}

// took is the time from start to answer of a bucket's jobs.
type took struct {
	jobs int
	sum  time.Duration
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.log, "%9.3fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// open starts all processes.
func (w *world) open(ctx context.Context, bin string) (err error) {
	w.began, w.took = time.Now(), map[string]*took{}
	if w.log, err = os.Create(filepath.Join(w.dir, "events.log")); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := func(name, file string, args ...string) *process {
		command := func() *exec.Cmd { return exec.Command(file, args...) }
		return &process{name: name, command: command}
	}
	w.target = program("target", self, roleTarget)
	if err := w.target.start(ctx); err != nil {
		return err
	}
	w.witness = witness{"http://" + w.target.ready["questions"]}
	file := filepath.Join(w.dir, "penstock.yaml")
	text, err := w.configuration()
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return err
	}
	w.admitter = program("admitter", filepath.Join(bin, "admitter"), "--config", file,
		"--nats-dir", filepath.Join(w.dir, "nats"), "--nats-listen", "127.0.0.1:0",
		"--http-listen", "127.0.0.1:0")
	if err := w.admitter.start(ctx); err != nil {
		return err
	}
	server := w.admitter.ready["nats"]
	for i := range drains {
		w.victims = append(w.victims, program(fmt.Sprintf("drainer-%d", i),
			filepath.Join(bin, "drainer"), "--config", file, "--nats-url", server))
	}
	w.victims = append(w.victims, w.target)
	if err := w.addCallers(self, file, bin, server, program); err != nil {
		return err
	}
	for _, p := range w.victims {
		if p == w.target {
			continue
		}
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return w.listen(server)
}

// addCallers adds the proxy for outbound calls and the caller with permits.
func (w *world) addCallers(self, file, bin, server string,
	program func(name, file string, args ...string) *process) error {
	i := slices.IndexFunc(w.rows, func(r row) bool { return r.calls })
	if i < 0 {
		return nil
	}
	r := w.rows[i]
	port, err := proctest.FreePort()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "outbound:\n  - listen: 127.0.0.1:%d\n    routes: "+
		"[{prefix: /%[2]s, upstream: 'http://%[3]s/%[2]s', policy: %[2]s, key: %[4]s, "+
		"max_wait: %[5]v}]\n", port, r.name, w.links[i].From, key, callWait)
	own := filepath.Join(w.dir, "proxy.yaml")
	if err := os.WriteFile(own, text, 0o600); err != nil {
		return err
	}
	w.proxy = program("proxy", filepath.Join(bin, "admitter"), "--config", own, "--nats-url",
		server, "--http-listen", "127.0.0.1:0")
	w.victims = append(w.victims, w.proxy, program("caller", self, roleCaller, server,
		"http://"+w.links[i].From+"/"+r.name, r.name))
	return nil
}

// configuration opens a link for each row. A policy's workers outnumber its limit where they can,
// because a link that is held holds as many requests.
func (w *world) configuration() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "drain: {lease: %v}\nlog: {level: warn}\npolicies:\n", lease)
	for _, r := range w.rows {
		l, err := wiretest.New(w.target.ready["requests"])
		if err != nil {
			return nil, err
		}
		w.links = append(w.links, &link{"the link of " + r.name, l})
		delay := ""
		if w.rules.countFrom != "start" {
			delay = fmt.Sprintf(", max_delay: %v", w.rules.maxDelay)
		}
		fmt.Fprintf(&b, "  - {name: %s, algorithm: leaking_bucket, limits: [{algorithm: "+
			"sliding_log, limit: %d, window: %v, count_from: %s}]%s, capacity: 1000000, "+
			"partitions: 1, workers: %d, timeout: %v, retry: {backoff: 100ms, max_backoff: 500ms}",
			r.name, r.n, r.window, w.rules.countFrom, delay, max(64, r.perSecond()/3),
			w.rules.timeout)
		if !r.calls {
			fmt.Fprintf(&b, ", target: {http: {url: 'http://%s/%s'}}", l.From, r.name)
		}
		fmt.Fprintln(&b, "}")
	}
	return b.Bytes(), nil
}

// listen hears how long jobs took, from their start to their end.
func (w *world) listen(server string) (err error) {
	if w.nc, err = nats.Connect(server); err != nil {
		return err
	}
	names, err := jet.NewNames("")
	if err != nil {
		return err
	}
	for _, r := range w.rows {
		_, err := w.nc.Subscribe(names.Event(r.name, queue.Key(key)), func(m *nats.Msg) {
			var e queue.Event
			if json.Unmarshal(m.Data, &e) != nil || e.Type != queue.EventDone {
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.took[r.name] == nil {
				w.took[r.name] = &took{}
			}
			w.took[r.name].jobs++ // whole milliseconds, rounded down
			w.took[r.name].sum += time.Duration(e.DurationMS)*time.Millisecond + time.Millisecond/2
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// feed keeps jobs waiting, and callers calling through the proxy, until ctx ends.
func (w *world) feed(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, r := range w.rows {
		if r.calls {
			all.Go(func() {
				call(ctx, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}},
					"http://"+w.proxy.ready["outbound"]+"/"+r.name)
			})
			continue
		}
		all.Go(func() {
			for ctx.Err() == nil {
				if err := w.fill(ctx, r); err != nil && ctx.Err() == nil {
					w.fail(err)
				}
				pause(ctx, 250*time.Millisecond)
			}
		})
	}
}

// fill adds jobs until there are enough for three seconds.
func (w *world) fill(ctx context.Context, r row) error {
	var bucket struct{ Depth int }
	text, err := w.ask(ctx, http.MethodGet, "/v1/buckets/"+r.name+"/"+key, "")
	if err == nil {
		err = json.Unmarshal(text, &bucket)
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", r.name, err)
	}
	line := fmt.Sprintf(`{"policy":%q,"key":%q,"body":"x"}`+"\n", r.name, key)
	want := max(3*r.perSecond(), 2*r.n)
	if bucket.Depth >= want {
		return nil
	}
	_, err = w.ask(ctx, http.MethodPost, "/v1/jobs:batch", strings.Repeat(line, want-bucket.Depth))
	return err
}

func (w *world) ask(ctx context.Context, method, path, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+w.admitter.ready["http"]+path,
		strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", a.Status, text)
	}
	return text, err
}

// close ends all processes, and keeps their logs.
func (w *world) close() error {
	if w.nc != nil {
		w.nc.Close()
	}
	var failed error
	for _, p := range append(w.victims, w.admitter) {
		if p != nil && p.Process != nil {
			p.Thaw()
			p.Kill()
			file := filepath.Join(w.dir, p.name+".log")
			failed = errors.Join(failed, os.WriteFile(file, []byte(p.Log.String()), 0o600))
		}
	}
	for _, l := range w.links {
		l.Close()
	}
	if w.log != nil {
		failed = errors.Join(failed, w.log.Close())
	}
	return failed
}
