package main

import (
	"bufio"
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
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

const (
	patience = 10 * time.Minute
	glance   = 10 * time.Millisecond
)

type node struct {
	*proctest.Process
	b                *bench
	command          []string
	dir              string
	http, pprof, url string // in a cluster http is for routes
	replicas         int
	began            time.Time
	nc               *nats.Conn
	js               jetstream.JetStream
}

func (b *bench) admitter(policies ...string) *node {
	return b.admitterAt("", 1, true, policies...)
}

func (b *bench) admitterAt(url string, replicas int, drain bool, policies ...string) *node {
	n := b.node()
	server := fmt.Sprintf("url: %q, replicas: %d", url, replicas)
	if url == "" {
		server = fmt.Sprintf("embedded: {dir: %q, listen: %q}", filepath.Join(n.dir, "nats"),
			strings.TrimPrefix(n.url, "nats://"))
	} else {
		n.url = url
	}
	n.begin("admitter", fmt.Sprintf("http: {listen: %q}\nnats: {%s}\nlog: {level: error}\n"+
		"policies: [%s]\n", n.http, server, strings.Join(policies, ",\n  ")),
		fmt.Sprintf("--drain=%t", drain), "--pprof", n.pprof)
	return n
}

// natsServer starts a bare one with the admitter's sync interval.
func (b *bench) natsServer() *node {
	n := b.node()
	n.serve("")
	return n
}

func (n *node) serve(more string) {
	n.begin("nats-server", fmt.Sprintf("listen: %q\nprof_port: %s\n"+
		"jetstream {store_dir: %q, sync_interval: 1s}\n%s", strings.TrimPrefix(n.url, "nats://"),
		strings.TrimPrefix(n.pprof, "127.0.0.1:"), filepath.Join(n.dir, "nats"), more))
}

func (b *bench) node() *node {
	n := &node{b: b, replicas: 1, dir: get(os.MkdirTemp(b.dir, "run-"))}
	for _, at := range []*string{&n.http, &n.pprof, &n.url} {
		*at = fmt.Sprintf("127.0.0.1:%d", get(proctest.FreePort()))
	}
	n.url = "nats://" + n.url
	return n
}

func (n *node) begin(program, config string, args ...string) {
	file := filepath.Join(n.dir, "config")
	must(os.WriteFile(file, []byte(config), 0o600))
	n.command = append([]string{filepath.Join(n.b.dir, program), "--config", file}, args...)
	n.start()
}

func (n *node) start() {
	n.began = time.Now()
	n.Process = get(proctest.Open(exec.Command(n.command[0], n.command[1:]...)))
	n.b.processes = append(n.b.processes, n.Process)
	go func() {
		for range n.Lines {
		}
	}()
	n.until("it can be connected to", func() (err error) {
		if n.nc, err = nats.Connect(n.url, nats.MaxReconnects(-1)); err == nil {
			n.js, err = jetstream.New(n.nc)
		}
		return err
	})
}

func (n *node) again() {
	n.nc.Close()
	must(n.Stop())
	n.start()
}

func (n *node) until(what string, do func() error) float64 {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	end := time.After(patience)
	for {
		err := do()
		if err == nil {
			return time.Since(n.began).Seconds()
		}
		select {
		case <-ticker.C:
		case <-n.Exited:
			must(fmt.Errorf("it ended before %s: %s\n%s", what, n.Cmd.ProcessState, n.Log))
		case <-end:
			must(fmt.Errorf("waited %v in vain until %s: %w\n%s", patience, what, err, n.Log))
		case <-n.b.ctx.Done():
			must(n.b.ctx.Err())
		}
	}
}

func (n *node) streams(atLeast int) float64 {
	return n.until(fmt.Sprintf("there are %d streams", atLeast), func() error {
		info, err := n.js.AccountInfo(n.b.ctx)
		if err == nil && info.Streams < atLeast {
			err = fmt.Errorf("there are %d", info.Streams)
		}
		return err
	})
}

func (n *node) ready() float64 {
	return n.until("it is ready", func() error {
		return answered(http.Get("http://" + n.http + "/readyz"))
	})
}

func (n *node) drains(partitions int) float64 {
	return n.until(fmt.Sprintf("it owns %d partitions", partitions), func() error {
		time.Sleep(20 * glance)
		sum := 0.0
		for line := range n.lines("http://" + n.http + "/metrics") {
			if strings.HasPrefix(line, "penstock_partitions_owned{") {
				owned, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
				sum += owned
			}
		}
		if int(sum) < partitions {
			return fmt.Errorf("it owns %v", sum)
		}
		return nil
	})
}

func (n *node) call(method, path, body string) error {
	q, err := http.NewRequestWithContext(n.b.ctx, method, "http://"+n.http+"/v1/"+path,
		strings.NewReader(body))
	if err != nil {
		return err
	}
	return answered(http.DefaultClient.Do(q))
}

func answered(r *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode/100 != 2 {
		return fmt.Errorf("%s is answered %s", r.Request.URL, r.Status)
	}
	return nil
}

// lines are empty if a page cannot be read.
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

// taken is processor time in percent of a core, memory, heap after a collection, and goroutines.
type taken struct{ cpu, memory, heap, goroutines float64 }

func (b *bench) idle(nodes ...*node) (all []taken) {
	b.pass(3 * time.Second)
	var each []fleet
	for _, n := range nodes {
		each = append(each, fleet{n.Process})
	}
	cpu, took := during(func() { b.pass(b.idleFor) }, each...)
	for i, n := range nodes {
		all = append(all, taken{100 * cpu[i] / took, get(usage.Memory(n.Cmd.Process.Pid)),
			n.figure("heap?gc=1&debug=1", `^# HeapAlloc = (\d+)`),
			n.figure("goroutine?debug=1", `^goroutine profile: total (\d+)`)})
	}
	return all
}

func (n *node) figure(page, pattern string) float64 {
	found := regexp.MustCompile(pattern)
	for line := range n.lines("http://" + n.pprof + "/debug/pprof/" + page) {
		if m := found.FindStringSubmatch(line); m != nil {
			return get(strconv.ParseFloat(m[1], 64))
		}
	}
	panic(failure{fmt.Errorf("%s does not tell %s", n.command[0], page)})
}

func (b *bench) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.ctx.Done():
		must(b.ctx.Err())
	}
}
