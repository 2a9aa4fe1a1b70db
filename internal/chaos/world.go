//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/wiretest"
)

const (
	servers   = 3
	admitters = 2
	drainers  = 3

	password = "chaos"
	// small enough to be filled
	diskSize = 256 << 20
)

type world struct {
	seed  uint64
	bin   string
	dir   string
	logs  string
	disks bool
	began time.Time

	history *history
	target  *target

	servers   []*process
	ports     []ports
	routes    [servers][servers]*wiretest.Link
	admitters []*process
	drainers  []*process
	wires     map[string][]*wiretest.Link

	mu     sync.Mutex
	epochs map[string]epoch
	out    io.Writer
}

type ports struct{ client, cluster, monitor, http, proxy int }

// epoch is the start of a life by both clocks: a process reports its wall clock at the start plus a
// monotonic clock.
type epoch struct {
	wall time.Time
	at   time.Duration
}

func (w *world) now() time.Duration { return time.Since(w.began) }

func (w *world) launched(life string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epochs[life] = epoch{time.Now().Round(0), w.now()}
}

func (w *world) instant(life string, t time.Time) time.Duration {
	e := w.epochs[life]
	return e.at + t.Sub(e.wall)
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.out, "%9.3fs  %s\n", w.now().Seconds(), fmt.Sprintf(format, args...))
}

func (w *world) prepare(deploy, syncs string) error {
	w.logs = filepath.Join(w.dir, "logs")
	if err := os.MkdirAll(w.logs, 0o700); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(w.logs, "chaos.log"))
	if err != nil {
		return err
	}
	w.out = io.MultiWriter(os.Stdout, log)
	w.target = &target{w: w, times: map[string]uint64{}}
	if err := w.target.serve(); err != nil {
		return fmt.Errorf("serve the target: %w", err)
	}
	// Connections could take an ephemeral port meanwhile.
	next := 20000 + os.Getpid()%1000*10
	for range servers {
		var p ports
		for _, port := range []*int{&p.client, &p.cluster, &p.monitor, &p.http, &p.proxy} {
			if *port, err = freePort(&next); err != nil {
				return err
			}
		}
		w.ports = append(w.ports, p)
	}
	config := configuration(w.history.rules, w.history.lease, w.target.url)
	if err := os.WriteFile(filepath.Join(w.dir, "penstock.yaml"), []byte(config), 0o600); err !=
		nil {
		return err
	}
	if err := w.prepareServers(deploy, syncs); err != nil {
		return err
	}
	for i := range admitters {
		file := filepath.Join(w.dir, fmt.Sprintf("admitter-%d.yaml", i))
		own := config + outlets(w.history.rules, w.ports[i].proxy, w.target.url)
		if err := os.WriteFile(file, []byte(own), 0o600); err != nil {
			return err
		}
		p, err := w.program("admitter", i, "--config", file, "--http-listen",
			address(w.ports[i].http))
		if err != nil {
			return err
		}
		w.admitters = append(w.admitters, p)
	}
	for i := range drainers {
		p, err := w.program("drainer", i, "--log-level", "debug")
		if err != nil {
			return err
		}
		w.drainers = append(w.drainers, p)
	}
	return nil
}

// prepareServers lowers the limits of deploy's configuration. Routes lead over links: servers would
// bypass them by gossip, so they advertise an unused address.
func (w *world) prepareServers(deploy, syncs string) error {
	text, err := os.ReadFile(filepath.Join(deploy, "nats.conf"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, "deployed.conf"), text, 0o600); err != nil {
		return err
	}
	const most = `
include "deployed.conf"
jetstream { max_file_store: %d, max_memory_store: 256MB, store_dir: %q, sync_interval: %s }
accounts { PENSTOCK {
  users: [{user: penstock, password: $NATS_PASSWORD}]
  jetstream: {max_file: %d, max_memory: 512MB}
} }
`
	for i, p := range w.ports {
		store := filepath.Join(w.dir, fmt.Sprintf("nats-%d", i))
		if err := os.Mkdir(store, 0o700); err != nil {
			return err
		}
		if w.disks {
			if err := mountDisk(store, diskSize); err != nil {
				return err
			}
		}
		file := filepath.Join(w.dir, fmt.Sprintf("nats-%d.conf", i))
		config := fmt.Appendf(nil, most, diskSize*3/4, store, syncs, diskSize*3/4)
		if err := os.WriteFile(file, config, 0o600); err != nil {
			return err
		}
		routes := ""
		for j, other := range w.ports {
			if i == j {
				continue
			}
			if w.routes[i][j], err = wiretest.New(address(other.cluster)); err != nil {
				return err
			}
			routes += ",nats://" + w.routes[i][j].From
		}
		args := []string{"--config", file, "--name", fmt.Sprintf("nats-%d", i), "--addr",
			"127.0.0.1",
			"--port", fmt.Sprint(p.client), "--http_port", fmt.Sprint(p.monitor), "--no_advertise",
			"--cluster_listen", "nats://" + address(p.cluster), "--cluster_advertise",
			"127.0.0.1:1",
			"--routes", routes[1:]}
		w.servers = append(w.servers, &process{name: fmt.Sprintf("nats-%d",
			i), w: w, command: func() *exec.Cmd {
			cmd := exec.Command(filepath.Join(w.bin, "nats-server"), args...)
			cmd.Env = append(os.Environ(), "NATS_PASSWORD="+password)
			return cmd
		}})
	}
	return nil
}

func (w *world) program(program string, i int, args ...string) (*process, error) {
	name := fmt.Sprintf("%s-%d", program, i)
	url := ""
	for _, p := range w.ports {
		l, err := wiretest.New(address(p.client))
		if err != nil {
			return nil, err
		}
		w.wires[name] = append(w.wires[name], l)
		url += ",nats://penstock:" + password + "@" + l.From
	}
	args = append([]string{"--config", filepath.Join(w.dir, "penstock.yaml"), "--nats-url",
		url[1:]}, args...)
	return &process{name: name, w: w, command: func() *exec.Cmd {
		return exec.Command(filepath.Join(w.bin, program), args...)
	}}, nil
}

func (w *world) start(ctx context.Context) error {
	for _, p := range w.servers {
		if err := p.start(); err != nil {
			return err
		}
	}
	if err := w.healthy(ctx, time.Minute); err != nil {
		return err
	}
	for _, p := range append(w.admitters[:admitters:admitters], w.drainers...) {
		if err := p.start(); err != nil {
			return err
		}
	}
	for i := range w.admitters {
		if err := serves(ctx, fmt.Sprintf("http://%s/readyz", address(w.ports[i].http)),
			3*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) healthy(ctx context.Context, patience time.Duration) error {
	end := time.Now().Add(patience)
	for _, p := range w.ports {
		err := serves(ctx, fmt.Sprintf("http://%s/healthz", address(p.monitor)), time.Until(end))
		if err != nil {
			return err
		}
	}
	return nil
}

func serves(ctx context.Context, url string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := &http.Client{Timeout: 2 * time.Second}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(response.Status)
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%s is not well within %v: %w", url, patience.Round(time.Second), err)
		}
	}
}

// dependent ones first
func (w *world) all() []*process {
	return append(append(append([]*process{}, w.drainers...), w.admitters...), w.servers...)
}

func (w *world) end() {
	for _, p := range w.all() {
		p.finish()
	}
	for _, links := range w.wires {
		for _, l := range links {
			l.Close()
		}
	}
	for _, from := range w.routes {
		for _, l := range from {
			if l != nil {
				l.Close()
			}
		}
	}
	if w.target != nil && w.target.stop != nil {
		_ = w.target.stop()
	}
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func freePort(next *int) (int, error) {
	for ; *next < 32000; *next++ {
		l, err := net.Listen("tcp", address(*next))
		if err != nil {
			continue
		}
		*next++
		return *next - 1, l.Close()
	}
	return 0, errors.New("no free port below 32000")
}
