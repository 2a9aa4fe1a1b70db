// Command callers calls a strict API through OpenAI's SDK from ten processes with four calls each,
// first directly and then through Penstock's outbound proxy. The API answers more than 20 requests
// in any second with 429.
//
//	make demo                             # its second act
//	go -C bench run ./callers -out ../docs   # and drawn as docs/callers.svg
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"gonum.org/v1/plot"

	"github.com/penstock-mq/penstock/bench/build"
	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

const (
	limit     = 20
	processes = 10
	atOnce    = 4
)

// without a target: for calls alone
const config = `policies:
  - name: openai
    algorithm: leaking_bucket
    limits: [{algorithm: sliding_log, limit: %d, window: 1s, count_from: answer}]
    capacity: 1000
outbound:
  - listen: "127.0.0.1:0"
    routes:
      - {prefix: /openai, upstream: "%s", policy: openai}
`

func main() {
	call := flag.String("call", "", "be one of the processes, and call this `URL`")
	length := flag.Duration("for", 8*time.Second, "how long the processes call, each way")
	admitter := flag.String("admitter", "", "the admitter's `program`; empty: build it")
	out := flag.String("out", "", "directory of the picture; empty: print only")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *call != "" {
		err = be(ctx, *call, *length)
	} else {
		err = run(ctx, *length, *admitter, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "callers:", err)
		os.Exit(1)
	}
}

type tally struct{ Answers, Failed int64 }

func be(ctx context.Context, url string, length time.Duration) error {
	client := openai.NewClient(option.WithBaseURL(url), option.WithAPIKey("sk-of-the-caller"))
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var answers, failed atomic.Int64
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
					Model: "gpt-5", Messages: []openai.ChatCompletionMessageParamUnion{
						openai.UserMessage("hello")}})
				switch {
				case err == nil:
					answers.Add(1)
				case ctx.Err() == nil:
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	return json.NewEncoder(os.Stdout).Encode(tally{answers.Load(), failed.Load()})
}

type api struct {
	mu      sync.Mutex
	began   time.Time
	came    []time.Duration
	passed  []time.Duration
	refused int
}

func (a *api) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if !a.take() {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":{"message":"Rate limit reached","type":"requests",`+
			`"code":"rate_limit_exceeded"}}`)
		return
	}
	time.Sleep(50 * time.Millisecond)
	fmt.Fprint(w, `{"id":"c","object":"chat.completion","model":"gpt-5","choices":[{"index":0,`+
		`"finish_reason":"stop","message":{"role":"assistant","content":"Hello!"}}]}`)
}

func (a *api) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Since(a.began)
	a.came = append(a.came, now)
	if n := len(a.passed); n >= limit && now-a.passed[n-limit] < time.Second {
		a.refused++
		return false
	}
	a.passed = append(a.passed, now)
	return true
}

type scene struct {
	name string
	*api
	got tally
}

func run(ctx context.Context, length time.Duration, admitter, out string) (err error) {
	dir, err := os.MkdirTemp("", "penstock-callers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if admitter == "" {
		if admitter, err = build.Admitter(ctx, dir); err != nil {
			return err
		}
	}
	fmt.Printf("%d processes call an API through OpenAI's SDK, %d calls at a time each; the API "+
		"allows %d requests in any second\n", processes, atOnce, limit)
	direct, err := play(ctx, "directly", length, func(url string) (string, func(), error) {
		return url, func() {}, nil
	})
	if err != nil {
		return err
	}
	through, err := play(ctx, "through Penstock", length, func(url string) (string, func(), error) {
		return proxy(ctx, dir, admitter, url)
	})
	if err != nil {
		return err
	}
	if err := table(direct, through).Print(os.Stdout); err != nil {
		return err
	}
	if out != "" {
		if err := draw(filepath.Join(out, "callers.svg"), direct, through); err != nil {
			return err
		}
	}
	if through.got.Failed > 0 || through.refused > 0 {
		return fmt.Errorf("%d calls failed through Penstock, and the API refused %d",
			through.got.Failed, through.refused)
	}
	return nil
}

func proxy(ctx context.Context, dir, admitter, url string) (string, func(), error) {
	file := filepath.Join(dir, "callers.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, limit, url), 0o600); err != nil {
		return "", nil, err
	}
	p, err := proctest.Open(exec.Command(admitter, "--config", file, "--drain", "--nats-dir",
		filepath.Join(dir, "data"), "--http-listen", "127.0.0.1:0",
		"--nats-listen", "127.0.0.1:0"))
	if err != nil {
		return "", nil, err
	}
	ready, err := p.Ready(ctx)
	if err != nil {
		p.Kill()
		return "", nil, err
	}
	return "http://" + ready["outbound"] + "/openai", p.Kill, nil
}

func play(ctx context.Context, name string, length time.Duration,
	lead func(url string) (string, func(), error)) (scene, error) {

	s := scene{name: name, api: &api{began: time.Now()}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	server := &http.Server{Handler: s.api, ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	go func() { _ = server.Serve(listener) }()
	url, end, err := lead("http://" + listener.Addr().String())
	if err != nil {
		return s, err
	}
	defer end()
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	var mu sync.Mutex
	var problems []error
	var all sync.WaitGroup
	for range processes {
		all.Go(func() {
			var got tally
			cmd := exec.CommandContext(ctx, self, "-call", url, "-for", length.String())
			cmd.Stderr = os.Stderr
			said, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(said, &got)
			}
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, err)
			s.got.Answers += got.Answers
			s.got.Failed += got.Failed
		})
	}
	all.Wait()
	if len(s.came) == 0 {
		problems = append(problems, fmt.Errorf("no call %s reached the API", name))
	}
	return s, errors.Join(problems...)
}

func table(scenes ...scene) paper.Table {
	t := paper.Table{{""}, {"requests at the API"}, {"429s from the API"},
		{"most requests in any second"}, {"calls answered"}, {"calls that failed"}}
	for _, s := range scenes {
		most, _ := paper.WorstSecond(s.came)
		for i, cell := range []string{s.name, paper.Grouped(len(s.came)), paper.Grouped(s.refused),
			paper.Grouped(most), paper.Grouped(int(s.got.Answers)),
			paper.Grouped(int(s.got.Failed))} {
			t[i] = append(t[i], cell)
		}
	}
	return t
}

func draw(file string, scenes ...scene) error {
	var plots []*plot.Plot
	for _, s := range scenes {
		p, err := paper.Starts(s.name, s.came, limit)
		if err != nil {
			return err
		}
		plots = append(plots, p)
	}
	return paper.WriteStarts(file, plots)
}
