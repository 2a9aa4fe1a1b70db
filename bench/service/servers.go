package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/penstock-mq/penstock/bench/build"
	"github.com/penstock-mq/penstock/bench/usage"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
)

const patience = 60 * time.Second

// peerModule is a commit: there are no releases for Go.
const peerModule = "github.com/envoyproxy/ratelimit/src/service_cmd" +
	"@v1.4.1-0.20260122083618-3fb702589d36"

type server map[string]string

func (s server) with(addr string) server { return server{"http": addr, "pid": s["pid"]} }

// 0: unknown
func (s server) cpu() time.Duration {
	pid, _ := strconv.Atoi(s["pid"])
	if pid == 0 {
		return 0
	}
	used, _ := usage.CPU(pid)
	return used
}

// servers run all the time and are asked in turns.
type servers struct {
	options
	dir       string
	processes []*proctest.Process
	redis     *redistest.Server

	plain    server
	admitter server
	drainer  server
	shared   server

	// as admitter, with tokens, and tracing no, one in a hundred or all jobs
	guarded, sampled, traced server
	token                    string

	peer   server
	noPeer string
}

func startServers(ctx context.Context, o options) (s *servers, err error) {
	s = &servers{options: o}
	if s.dir, err = os.MkdirTemp("", "penstock-bench-"); err != nil {
		return s, err
	}
	if s.options.admitter == "" {
		say("building the admitter")
		if s.options.admitter, err = build.Admitter(ctx, s.dir); err != nil {
			return s, err
		}
	} else if s.options.admitter, err = filepath.Abs(o.admitter); err != nil { // runs in s.dir
		return s, err
	}
	if s.redis, err = redistest.Open(s.dir); err != nil {
		return s, err
	}
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	limits := filepath.Join(s.dir, "runtime", "ratelimit", "config")
	if err = os.MkdirAll(limits, 0o700); err == nil {
		err = os.WriteFile(filepath.Join(limits, "bench.yaml"), []byte(`domain: bench
descriptors:
  - key: key
    rate_limit: {unit: hour, requests_per_unit: 1000000000}
`), 0o600)
	}
	if err != nil {
		return s, err
	}
	if s.plain, err = s.start(ctx, exec.Command(self, plainCommand)); err != nil {
		return s, err
	}
	tokens, err := s.clients()
	if err != nil {
		return s, err
	}
	const memory = "{store: memory}"
	traces := "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + s.plain["http"]
	for _, a := range []struct {
		name          string
		state, tokens string
		drain         bool
		into          *server
		env           []string
	}{
		{"admitter", memory, "", false, &s.admitter, nil},
		{"drainer", memory, "", true, &s.drainer, nil},
		{"shared", fmt.Sprintf("{store: redis, redis: {addrs: [%q], timeout: 1s}}",
			s.redis.Addr()), "", false, &s.shared, nil},
		{"guarded", memory, tokens, false, &s.guarded, nil},
		{"sampled", memory, tokens, false, &s.sampled, []string{traces,
			"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01"}},
		{"traced", memory, tokens, false, &s.traced, []string{traces}},
	} {
		file := filepath.Join(s.dir, a.name+".yaml")
		if err := os.WriteFile(file, s.config(a.name, a.state, a.tokens), 0o600); err != nil {
			return s, err
		}
		admitter := exec.Command(s.options.admitter, "--config", file,
			fmt.Sprintf("--drain=%t", a.drain))
		admitter.Env = append(admitter.Environ(), a.env...)
		if *a.into, err = s.start(ctx, admitter); err != nil {
			return s, err
		}
	}
	if !o.peer {
		s.noPeer = "it was left out"
	} else if err := s.startPeer(ctx); err != nil {
		s.noPeer = err.Error()
		say("envoyproxy/ratelimit is not measured: %v", err)
	}
	return s, ctx.Err()
}

// config has a policy for each question, with limits that are never reached.
func (s *servers) config(name, state, tokens string) []byte {
	return fmt.Appendf(nil, `http: {listen: "127.0.0.1:0", tokens: %q}
nats: {embedded: {dir: %q, listen: "127.0.0.1:0"}}
log: {level: error}
state: %s
policies:
  - {name: told, algorithm: leaking_bucket, outflow: 1/m, capacity: 1000000,
     target: {http: {url: "http://%s/"}}}
  - {name: untold, algorithm: leaking_bucket, outflow: 1/m, capacity: 1000000}
  - {name: batch, algorithm: leaking_bucket, outflow: 1/m, capacity: 1000000}
  - {name: raw, algorithm: leaking_bucket, outflow: 1/m, capacity: 1000000}
  - {name: limit, algorithm: token_bucket, capacity: 1000000, refill: 1000000/s}
`, tokens, filepath.Join(s.dir, name+".data"), state, s.plain["http"])
}

func (s *servers) clients() (file string, err error) {
	text := "clients:\n"
	for i := range 100 {
		s.token = access.NewToken()
		text += access.Line(fmt.Sprint("client-", i), []string{"submit"}, []string{"*"}, nil,
			s.token) + "\n"
	}
	file = filepath.Join(s.dir, "tokens.yaml")
	return file, os.WriteFile(file, []byte(text), 0o600)
}

func (s *servers) open(cmd *exec.Cmd) (*proctest.Process, error) {
	cmd.Dir = s.dir
	p, err := proctest.Open(cmd)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	go func() {
		for range p.Lines {
		}
	}()
	return p, nil
}

func (s *servers) start(ctx context.Context, program *exec.Cmd) (server, error) {
	program.Env = append(program.Environ(), "PENSTOCK_ENVOY_LISTEN=127.0.0.1:0",
		"PENSTOCK_ENVOY_FILES="+filepath.Join(s.dir, "runtime", "ratelimit", "config"))
	p, err := s.open(program)
	if err != nil {
		return nil, err
	}
	ready, err := p.Ready(ctx)
	if err == nil {
		ready["pid"] = strconv.Itoa(program.Process.Pid)
	}
	return ready, err
}

func (s *servers) startPeer(ctx context.Context) error {
	say("building envoyproxy/ratelimit, which takes minutes when it is new here")
	install := exec.CommandContext(ctx, "go", "install", peerModule)
	install.Dir = s.dir
	install.Env = append(install.Environ(), "GOBIN="+s.dir, "GOFLAGS=-mod=mod")
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("go install %s: %w: %s", peerModule, err, out)
	}
	var ports [3]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
		l.Close()
	}
	cmd := exec.Command(filepath.Join(s.dir, "service_cmd"))
	cmd.Env = append(os.Environ(), "USE_STATSD=false", "LOG_LEVEL=error", "HOST=127.0.0.1",
		"GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT="+ports[0], "GRPC_PORT="+ports[1],
		"DEBUG_PORT="+ports[2], "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+s.redis.Addr(),
		"RUNTIME_ROOT="+filepath.Join(s.dir, "runtime"), "RUNTIME_SUBDIRECTORY=ratelimit",
		"RUNTIME_WATCH_ROOT=false")
	p, err := s.open(cmd)
	if err != nil {
		return err
	}
	addr := "127.0.0.1:" + ports[0]
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		response, err := http.Get("http://" + addr + "/healthcheck")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				s.peer = server{"http": addr, "grpc": "127.0.0.1:" + ports[1],
					"pid": strconv.Itoa(cmd.Process.Pid)}
				return nil
			}
		}
		select {
		case <-p.Exited:
			return fmt.Errorf("it ended: %s\n%s", p.Cmd.ProcessState, p.Log)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
	}
	return errors.New("it did not answer its health check")
}

func (s *servers) stop() {
	for _, p := range s.processes {
		p.Kill()
	}
	if s.redis != nil {
		s.redis.Stop()
	}
	_ = os.RemoveAll(s.dir)
}
