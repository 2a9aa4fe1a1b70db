package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/bench/paper"
)

const (
	connections = 64
	// jobs of a batch, and of a turn of raw publishing
	batchJobs    = 5000
	batchClients = 2
)

type row struct {
	part, name                string
	load                      load
	base                      string
	atLeast, mostP50, mostP99 float64
	samples                   []sample
}

func (r *row) perSecond() float64 {
	return paper.MedianBy(r.samples, func(s sample) float64 { return s.perSecond })
}

func (r *row) cpu() float64 {
	return paper.MedianBy(r.samples, func(s sample) float64 { return float64(s.cpu) })
}

func (r *row) p50() float64 {
	return paper.MedianBy(r.samples, func(s sample) float64 { return float64(s.p50) })
}

func (r *row) p99() float64 {
	return paper.MedianBy(r.samples, func(s sample) float64 { return float64(s.p99) })
}

func pick(all []row, text string) []row {
	wanted := map[string]bool{}
	for _, r := range all {
		if strings.Contains(r.name, text) {
			wanted[r.name], wanted[r.base] = true, true
		}
	}
	return slices.DeleteFunc(all, func(r row) bool { return !wanted[r.name] })
}

var body = []byte(`{"to":"` + strings.Repeat("x", 91) + `"}`)

const (
	plainHTTP = "plain net/http"
	floorRow  = "net/http and a publish"
	floorMost = "net/http and a publish, 256 connections"
	floorOne  = "net/http and a publish, 1 connection"
	floorPull = "net/http, a publish and a consumer"
	bareNATS  = "bare request and reply"
	noDrainer = "a job, no drainer"
	rawJobs   = "raw asynchronous publishing"
	peerRow   = "envoyproxy/ratelimit, in Redis"
	peerGRPC  = "envoyproxy/ratelimit, in Redis, over gRPC"
)

func (s *servers) rows(ctx context.Context) ([]row, error) {
	job := func(to server, clients int, path string, head ...string) load {
		return overHTTP(to, clients, 202, func(i int) []byte {
			return request("POST", fmt.Sprint(path, "/k", i), body, head...)
		})
	}
	const told, untold = "/v1/jobs/told", "/v1/jobs/untold"
	floor := s.plain.with(s.plain["floor"])
	authorized := "Authorization: Bearer " + s.token
	check := func(to server) load {
		return overHTTP(to, connections, 200, func(i int) []byte {
			return request("POST", fmt.Sprintf("/v1/check/limit/k%d", i), nil)
		})
	}
	shared := row{part: "HTTP", name: "a check, in Redis", load: check(s.shared), base: plainHTTP}
	rows := []row{
		{part: "HTTP", name: plainHTTP, load: job(s.plain, connections, "")},
		{part: "HTTP", name: floorRow, load: job(floor, connections, "/held")},
		{part: "HTTP", name: noDrainer, load: job(s.admitter, connections, told), base: floorRow,
			atLeast: 0.95},
		{part: "HTTP", name: floorPull, load: job(floor, connections, "/pulled")},
		{part: "HTTP", name: "a job, drainer inside, start told",
			load: job(s.drainer, connections, told), base: floorPull, atLeast: 0.85},
		{part: "HTTP", name: "a job, drainer inside, nobody can tell",
			load: job(s.drainer, connections, untold), base: floorPull, atLeast: 0.85},
		{part: "HTTP", name: floorMost, load: job(floor, 256, "/held")},
		{part: "HTTP", name: "a job, 256 connections", load: job(s.admitter, 256, told),
			base: floorMost, atLeast: 1.2},
		{part: "HTTP", name: floorOne, load: job(floor, 1, "/held")},
		{part: "HTTP", name: "a job, 1 connection", load: job(s.admitter, 1, told),
			base: floorOne, mostP50: 1},
		{part: "HTTP", name: "a job, tokens", load: job(s.guarded, connections, told, authorized),
			base: noDrainer, mostP50: 1.5},
		{part: "HTTP", name: "a job, tokens, one in 100 traced",
			load: job(s.sampled, connections, told, authorized), base: noDrainer, mostP50: 1.5},
		{part: "HTTP", name: "a job, tokens, all traced",
			load: job(s.traced, connections, told, authorized), base: noDrainer, mostP50: 1.5},
		{part: "HTTP", name: "a check, in memory", load: check(s.admitter), base: plainHTTP,
			atLeast: 0.85, mostP99: 1.5},
	}
	if s.peer != nil {
		rows = append(rows, row{part: "HTTP", name: peerRow, base: plainHTTP,
			load: overHTTP(s.peer, connections, 200, func(i int) []byte {
				return request("POST", "/json", fmt.Appendf(nil, `{"domain":"bench",`+
					`"descriptors":[{"entries":[{"key":"key","value":"k%d"}]}]}`, i))
			})})
		shared.base, shared.atLeast = peerRow, 3
	}
	rows = append(rows, shared)
	bare, err := s.overNATS(s.plain, func(int) *nats.Msg {
		return &nats.Msg{Subject: "plain", Data: body}
	})
	if err != nil {
		return nil, err
	}
	checks, err := s.overNATS(s.admitter, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("penstock.check.limit.k%d", i)}
	})
	if err != nil {
		return nil, err
	}
	raw, err := s.publishing()
	if err != nil {
		return nil, err
	}
	rows = append(rows, s.gateways()...)
	return append(rows,
		row{part: "NATS", name: bareNATS, load: bare},
		row{part: "NATS", name: "a check, in memory, over NATS", load: checks, base: bareNATS,
			atLeast: 0.5},
		row{part: "batches", name: rawJobs, load: raw},
		row{part: "batches", name: "POST /v1/jobs:batch", base: rawJobs, atLeast: 0.6,
			load: load{s.admitter, batchClients, batchJobs, s.batches}},
	), nil
}

func (s *servers) gateways() []row {
	shared := row{part: "gRPC", name: "ShouldRateLimit, in Redis",
		load: overGRPC(s.shared, s.shared["envoy"])}
	memory := row{part: "gRPC", name: "ShouldRateLimit, in memory",
		load: overGRPC(s.admitter, s.admitter["envoy"])}
	switch {
	case s.shared["envoy"] == "":
		return nil
	case s.peer == nil:
		return []row{shared, memory}
	}
	shared.base, shared.atLeast, shared.mostP99 = peerGRPC, 1.5, 1
	memory.base = peerGRPC
	return []row{{part: "gRPC", name: peerGRPC, load: overGRPC(s.peer, s.peer["grpc"])},
		shared, memory}
}

// natsClient shares one connection.
type natsClient struct {
	nc *nats.Conn
	m  *nats.Msg
}

func (c natsClient) close() {}

func (c natsClient) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := c.nc.RequestMsgWithContext(ctx, c.m)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.m.Subject, err)
	}
	if status := answer.Header.Get("Penstock-Status"); status != "" && status != "200" {
		return fmt.Errorf("%s is answered %s", c.m.Subject, status)
	}
	return nil
}

func (s *servers) overNATS(to server, question func(client int) *nats.Msg) (load, error) {
	nc, err := nats.Connect(to["nats"])
	if err != nil {
		return load{}, err
	}
	return load{to, connections, 1, func(_ context.Context, i int) (client, error) {
		return natsClient{nc, question(i)}, nil
	}}, nil
}

type publisher struct {
	js jetstream.JetStream
}

func (publisher) close() {}

func (p publisher) ask(ctx context.Context) error {
	for i := range batchJobs {
		if _, err := p.js.PublishAsync(fmt.Sprintf("penstock.jobs.raw.k%d", i%1000), body,
			jetstream.WithStallWait(patience)); err != nil {
			return err
		}
	}
	select {
	case <-p.js.PublishAsyncComplete():
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%d publishes are not answered", p.js.PublishAsyncPending())
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *servers) publishing() (load, error) {
	nc, err := nats.Connect(s.admitter["nats"])
	if err != nil {
		return load{}, err
	}
	open := func(ctx context.Context, i int) (client, error) {
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(batchJobs))
		if err == nil && i == 0 {
			err = empty(ctx, js, "raw")
		}
		return publisher{js}, err
	}
	return load{s.admitter, batchClients, batchJobs, open}, nil
}

// empty makes room in a full queue.
func empty(ctx context.Context, js jetstream.JetStream, policy string) error {
	stream, err := js.Stream(ctx, "PENSTOCK_"+policy)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

func (s *servers) batches(ctx context.Context, i int) (client, error) {
	if i == 0 {
		nc, err := nats.Connect(s.admitter["nats"])
		if err != nil {
			return nil, err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err == nil {
			err = empty(ctx, js, "batch")
		}
		if err != nil {
			return nil, err
		}
	}
	var text []byte
	for i := range batchJobs {
		text = fmt.Appendf(text, `{"policy":"batch","key":"k%d","body":%s}`+"\n", i%1000, body)
	}
	c, err := overHTTP(s.admitter, 1, http.StatusOK, func(int) []byte {
		return request("POST", "/v1/jobs:batch", text)
	}).open(ctx, 0)
	if err != nil {
		return nil, err
	}
	c.(*httpClient).inBody = func(text []byte) error {
		if n := strings.Count(string(text), `"status":202`); n != batchJobs {
			return fmt.Errorf("%d of %d jobs were taken", n, batchJobs)
		}
		return nil
	}
	return c, nil
}
