package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/bench/usage"
	"github.com/penstock-mq/penstock/internal/proctest"
)

const (
	// patience is how long a process may take for what it is asked.
	patience = 3 * time.Minute
	// glance is how often this program looks whether something has happened.
	glance = 10 * time.Millisecond
)

// node is a server that can be started again: an admitter, or a nats-server.
type node struct {
	*proctest.Process
	command          []string
	dir              string
	http, pprof, url string // addresses; http of a server of a cluster is for the others
	replicas         int    // of streams
	began            time.Time
	nc               *nats.Conn
	js               jetstream.JetStream
}

// admitter starts one that drains, with a server inside it.
func (b *bench) admitter(ctx context.Context, policies ...string) (*node, error) {
	return b.admitterAt(ctx, "", policies...)
}

// admitterAt starts one that does not drain, at a server; without one, it has both inside.
func (b *bench) admitterAt(ctx context.Context, url string, policies ...string) (*node, error) {
	n, err := b.beginAdmitter(ctx, url, 1, url == "", policies)
	if err == nil && url != "" {
		_, err = n.ready(ctx)
	}
	return n, err
}

func (b *bench) beginAdmitter(ctx context.Context, url string, replicas int, drain bool,
	policies []string) (*node, error) {
	n, err := b.newNode()
	if err != nil {
		return nil, err
	}
	server := fmt.Sprintf("url: %q, replicas: %d", url, replicas)
	if url == "" {
		server = fmt.Sprintf("embedded: {dir: %q, listen: %q}", filepath.Join(n.dir, "nats"),
			strings.TrimPrefix(n.url, "nats://"))
	} else {
		n.url = url
	}
	file := filepath.Join(n.dir, "penstock.yaml")
	n.command = []string{b.program("admitter"), fmt.Sprintf("--drain=%t", drain), "--config",
		file, "--pprof", n.pprof}
	return n, n.begin(ctx, file, fmt.Sprintf("http: {listen: %q}\nnats: {%s}\n"+
		"log: {level: error}\npolicies: [%s]\n", n.http, server,
		strings.Join(policies, ",\n  ")))
}

// natsServer starts a bare one, which forces to disk as often as the one in an admitter.
func (b *bench) natsServer(ctx context.Context) (*node, error) {
	n, err := b.newNode()
	if err != nil {
		return nil, err
	}
	return n, b.beginServer(ctx, n, "")
}

func (b *bench) beginServer(ctx context.Context, n *node, more string) error {
	file := filepath.Join(n.dir, "nats.conf")
	n.command = []string{b.program("nats-server"), "--config", file}
	return n.begin(ctx, file, fmt.Sprintf("listen: %q\nprof_port: %s\n"+
		"jetstream {store_dir: %q, sync_interval: 1s}\n%s", strings.TrimPrefix(n.url, "nats://"),
		strings.TrimPrefix(n.pprof, "127.0.0.1:"), filepath.Join(n.dir, "nats"), more))
}

func (b *bench) newNode() (n *node, err error) {
	n = &node{replicas: 1}
	if n.dir, err = os.MkdirTemp(b.dir, "run-"); err != nil {
		return nil, err
	}
	for _, at := range []*string{&n.http, &n.pprof, &n.url} {
		port, err := proctest.FreePort()
		if err != nil {
			return nil, err
		}
		*at = fmt.Sprintf("127.0.0.1:%d", port)
	}
	n.url = "nats://" + n.url
	return n, nil
}

func (n *node) begin(ctx context.Context, file, config string) error {
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return n.start(ctx)
}

// start starts the process and connects to its server.
func (n *node) start(ctx context.Context) (err error) {
	n.began = time.Now()
	if n.Process, err = proctest.Open(exec.Command(n.command[0], n.command[1:]...)); err != nil {
		return err
	}
	go func() {
		for range n.Lines { // what nobody reads must not hold it up
		}
	}()
	return n.until(ctx, glance, "it can be connected to", func() bool {
		if n.nc, err = nats.Connect(n.url, nats.MaxReconnects(-1)); err != nil {
			return false
		}
		n.js, err = jetstream.New(n.nc)
		return err == nil
	})
}

// again stops the process and starts it again.
func (n *node) again(ctx context.Context) error {
	n.nc.Close()
	if err := n.Stop(); err != nil {
		return err
	}
	return n.start(ctx)
}

// stop ends the process and removes what it stored.
func (n *node) stop() {
	if n == nil || n.Process == nil {
		return
	}
	if n.nc != nil {
		n.nc.Close()
	}
	n.Kill()
	_ = os.RemoveAll(n.dir) // the directory around it goes too, in the end
}

// until waits until something holds.
func (n *node) until(ctx context.Context, every time.Duration, what string,
	holds func() bool) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	end := time.After(patience)
	for {
		if holds() {
			return nil
		}
		select {
		case <-ticker.C:
		case <-n.Exited:
			return fmt.Errorf("it ended before %s: %s\n%s", what, n.Cmd.ProcessState, n.Log)
		case <-end:
			return fmt.Errorf("waited %v in vain until %s\n%s", patience, what, n.Log)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// streams waits until JetStream has so many, and returns how long that took since the start.
func (n *node) streams(ctx context.Context, atLeast int) (time.Duration, error) {
	err := n.until(ctx, glance, fmt.Sprintf("there are %d streams", atLeast), func() bool {
		info, err := n.js.AccountInfo(ctx)
		return err == nil && info.Streams >= atLeast
	})
	return time.Since(n.began), err
}

// ready waits until an admitter says that it is ready.
func (n *node) ready(ctx context.Context) (time.Duration, error) {
	err := n.until(ctx, glance, "it is ready", func() bool {
		r, err := http.Get("http://" + n.http + "/readyz")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return time.Since(n.began), err
}

// drains waits until an admitter owns so many partitions.
func (n *node) drains(ctx context.Context, partitions int) (time.Duration, error) {
	err := n.until(ctx, 20*glance, fmt.Sprintf("it owns %d partitions", partitions), func() bool {
		sum := 0.0
		for line := range n.lines("http://" + n.http + "/metrics") {
			if strings.HasPrefix(line, "penstock_partitions_owned{") {
				owned, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
				sum += owned
			}
		}
		return int(sum) >= partitions
	})
	return time.Since(n.began), err
}

// lines are those of a page; none when it cannot be read.
func (n *node) lines(url string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		r, err := http.Get(url)
		if err != nil {
			return
		}
		defer r.Body.Close()
		for in := bufio.NewScanner(r.Body); in.Scan() && yield(in.Text()); {
		}
	}
}

// taken is what a process takes of the machine while it has nothing to do.
type taken struct{ cpu, memory, heap, goroutines float64 }

// idle watches processes for a while.
func (b *bench) idle(ctx context.Context, nodes ...*node) (all []taken, err error) {
	if err := pass(ctx, 3*time.Second); err != nil { // until what was before has died down
		return nil, err
	}
	var each []fleet
	for _, n := range nodes {
		each = append(each, fleet{n.Process})
	}
	cpu, took, err := during(func() error { return pass(ctx, b.idleFor) }, each...)
	if err != nil {
		return nil, err
	}
	for i, n := range nodes {
		t, err := n.takes()
		if err != nil {
			return nil, err
		}
		t.cpu = 100 * cpu[i].Seconds() / took.Seconds()
		all = append(all, t)
	}
	return all, nil
}

var (
	goroutines = regexp.MustCompile(`^goroutine profile: total (\d+)`)
	heapInUse  = regexp.MustCompile(`^# HeapAlloc = (\d+)`)
)

// takes reads what a process has of memory, its heap after a garbage collection.
func (n *node) takes() (t taken, err error) {
	for page, into := range map[string]struct {
		*regexp.Regexp
		value *float64
	}{"goroutine?debug=1": {goroutines, &t.goroutines}, "heap?gc=1&debug=1": {heapInUse, &t.heap}} {
		found := false
		for line := range n.lines("http://" + n.pprof + "/debug/pprof/" + page) {
			if m := into.FindStringSubmatch(line); m != nil {
				*into.value, err = strconv.ParseFloat(m[1], 64)
				found = err == nil
			}
		}
		if !found {
			return t, fmt.Errorf("%s does not tell %s", n.command[0], page)
		}
	}
	t.memory, err = usage.Memory(n.Cmd.Process.Pid)
	return t, err
}

// pass lets time pass.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
