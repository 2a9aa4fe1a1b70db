package main

import (
	"bufio"
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
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-mq/penstock/bench/build"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/workers"
)

type penstock struct {
	dir      string
	rule     string // of the paced policy
	admitter *proctest.Process
	http     string
	nats     string
	policy   string
	client   http.Client
}

const (
	policyPaced = "paced"
	policyFree  = "free"
)

func (p *penstock) name() string    { return "Penstock" }
func (p *penstock) setting() string { return "`" + p.rule + "`" }
func (p *penstock) first() bool     { return true }
func (p *penstock) version() string { return "this commit" }

func (p *penstock) open(ctx context.Context) error {
	admitter, err := build.Admitter(ctx, p.dir)
	if err != nil {
		return err
	}
	config := fmt.Appendf(nil, `http: {listen: "127.0.0.1:0"}
nats: {embedded: {dir: %q, listen: "127.0.0.1:0"}}
policies:
  - {name: %s, algorithm: leaking_bucket, %s, capacity: 1000000, workers: %d}
  - {name: %s, algorithm: leaking_bucket, outflow: 1000000/s, capacity: 1000000, workers: %d}
`, filepath.Join(p.dir, "nats"), policyPaced, p.rule, slots, policyFree, 10*slots)
	file := filepath.Join(p.dir, "penstock.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	if p.admitter, err = proctest.Open(exec.Command(admitter, "--config", file)); err != nil {
		return err
	}
	ready, err := p.admitter.Ready(ctx)
	if err != nil {
		return err
	}
	p.http, p.nats, p.policy = "http://"+ready["http"], ready["nats"], policyPaced
	p.client.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	return nil
}

func (p *penstock) ask(ctx context.Context, method, path string, body io.Reader, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, p.http+path, body)
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

func (p *penstock) add(ctx context.Context, n int, bulk bool) (time.Duration, error) {
	if bulk {
		return p.addBulk(ctx, n)
	}
	return side(ctx, n, func(number int) error {
		return p.ask(ctx, http.MethodPost, "/v1/jobs/"+p.policy+"/key",
			bytes.NewReader(body(number)), nil)
	})
}

func (p *penstock) addBulk(ctx context.Context, n int) (time.Duration, error) {
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	const each = 5000
	for from := 0; from < n; from += each {
		g.Go(func() error {
			var batch bytes.Buffer
			for i := from; i < min(from+each, n); i++ {
				fmt.Fprintf(&batch, `{"policy":%q,"key":"key","body":%s}`+"\n", p.policy,
					body(i))
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodPost,
				p.http+"/v1/jobs:batch", &batch)
			if err != nil {
				return err
			}
			response, err := p.client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			verdicts := bufio.NewScanner(response.Body)
			for verdicts.Scan() {
				if !bytes.Contains(verdicts.Bytes(), []byte(`"queued"`)) {
					return fmt.Errorf("a job was not taken: %s", verdicts.Text())
				}
			}
			return verdicts.Err()
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}

func (p *penstock) pause(ctx context.Context) error {
	return p.ask(ctx, http.MethodPost, "/v1/pause/"+p.policy, nil, nil)
}

func (p *penstock) resume(ctx context.Context) error {
	return p.ask(ctx, http.MethodPost, "/v1/resume/"+p.policy, nil, nil)
}

func (p *penstock) left(ctx context.Context) (int, error) {
	var bucket struct{ Depth int }
	err := p.ask(ctx, http.MethodGet, "/v1/buckets/"+p.policy+"/key", nil, &bucket)
	return bucket.Depth, err
}

func (p *penstock) unlimited() { p.policy = policyFree }

func (p *penstock) work(url string) *exec.Cmd {
	return child(rolePenstock, workSpec{p.nats, url, slots})
}

// victim is the queue's owner; the others only lend it workers.
func (p *penstock) victim(ctx context.Context,
	crew []*proctest.Process) (*proctest.Process, error) {
	var answer struct {
		Drainers []struct {
			PID      int
			Policies map[string]struct{ Owned []int }
		}
	}
	if err := p.ask(ctx, http.MethodGet, "/v1/drainers", nil, &answer); err != nil {
		return nil, err
	}
	for _, d := range answer.Drainers {
		for _, worker := range crew {
			if len(d.Policies[policyPaced].Owned) > 0 && d.PID == worker.Cmd.Process.Pid {
				return worker, nil
			}
		}
	}
	return nil, errors.New("nobody owns the queue")
}

func (p *penstock) servers(context.Context) ([]int, error) {
	return []int{p.admitter.Cmd.Process.Pid}, nil
}

func (p *penstock) close() {
	if p.admitter != nil {
		p.admitter.Kill()
	}
}

func workPenstock(spec workSpec) error {
	nc, err := nats.Connect(spec.Server, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	d, err := workers.New(nc, workers.Options{Ready: func() { fmt.Println("ready") }})
	if err != nil {
		return err
	}
	if spec.URL == "" {
		d.Handle(policyFree, func(context.Context, workers.Job) error { return nil })
	} else {
		d.Handle(policyPaced, func(ctx context.Context, job workers.Job) error {
			return post(ctx, spec.URL, job.Body)
		})
	}
	return d.Run(context.Background())
}
