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
	// connections is how many clients ask at once.
	connections = 64
	// batchJobs is how many jobs a batch has, and a turn of raw publishing.
	batchJobs = 5000
	// batchClients send batches at once.
	batchClients = 2
	// fastBatch is the goal of batches, per second, where raw publishing is not twice as fast.
	fastBatch = 100_000
)

// row is one kind of question to one server.
type row struct {
	part, name string
	load       load
	base       string // name of the row that it is compared with; empty: none
	atLeast    float64
	likeP50    string  // name of the row whose p50 it is compared with; empty: none
	enough     float64 // per second: then the ratio does not count; 0: it always does
	lessP99    bool    // it must be below the base's
	samples    []sample
}

func (r *row) perSecond() float64 {
	return paper.MedianBy(r.samples, func(s sample) float64 { return s.perSecond })
}

func (r *row) p50() float64 {
	return paper.MedianBy(r.samples, func(s sample) float64 { return float64(s.p50) })
}

func (r *row) p99() float64 {
	return paper.MedianBy(r.samples, func(s sample) float64 { return float64(s.p99) })
}

// pick returns the rows whose names hold a text, and those that they are compared with.
func pick(all []row, text string) []row {
	wanted := map[string]bool{}
	for _, r := range all {
		if strings.Contains(r.name, text) {
			wanted[r.name], wanted[r.base], wanted[r.likeP50] = true, true, true
		}
	}
	return slices.DeleteFunc(all, func(r row) bool { return !wanted[r.name] })
}

// timesP50 is how many times the p50 without a drainer that with one may be.
const timesP50 = 1.5

// body is that of a job.
var body = []byte(`{"to":"` + strings.Repeat("x", 91) + `"}`)

const (
	plainHTTP = "plain net/http"
	bareNATS  = "bare request and reply"
	noDrainer = "a job, no drainer"
	rawJobs   = "raw asynchronous publishing"
	peerRow   = "envoyproxy/ratelimit, in Redis"
	peerGRPC  = "envoyproxy/ratelimit, in Redis, over gRPC"
)

func (s *servers) rows(ctx context.Context) ([]row, error) {
	job := func(to server, policy string, head ...string) load {
		return overHTTP(to["http"], connections, 202, func(i int) []byte {
			return request("POST", fmt.Sprintf("/v1/jobs/%s/k%d", policy, i), body, head...)
		})
	}
	authorized := "Authorization: Bearer " + s.token
	check := func(to server) load {
		return overHTTP(to["http"], connections, 200, func(i int) []byte {
			return request("POST", fmt.Sprintf("/v1/check/limit/k%d", i), nil)
		})
	}
	rows := []row{
		{part: "HTTP", name: plainHTTP, load: overHTTP(s.plain["http"], connections, 202,
			func(int) []byte { return request("POST", "/", body) })},
		{part: "HTTP", name: noDrainer, load: job(s.admitter, "told"), base: plainHTTP},
		{part: "HTTP", name: "a job, no drainer, tokens", load: job(s.guarded, "told", authorized),
			base: plainHTTP, likeP50: noDrainer},
		{part: "HTTP", name: "a job, no drainer, tokens, one in 100 traced",
			load: job(s.sampled, "told", authorized), base: plainHTTP, likeP50: noDrainer},
		{part: "HTTP", name: "a job, no drainer, tokens, all traced",
			load: job(s.traced, "told", authorized), base: plainHTTP, likeP50: noDrainer},
		{part: "HTTP", name: "a job, drainer inside, start told", load: job(s.drainer, "told"),
			base: plainHTTP, atLeast: 0.45, likeP50: noDrainer},
		{part: "HTTP", name: "a job, drainer inside, nobody can tell",
			load: job(s.drainer, "untold"), base: plainHTTP, atLeast: 0.45, likeP50: noDrainer},
		{part: "HTTP", name: "a check, in memory", load: check(s.admitter), base: plainHTTP,
			atLeast: 0.85},
		{part: "HTTP", name: "a check, in Redis", load: check(s.shared), base: plainHTTP},
	}
	if s.peer != nil {
		rows = append(rows, row{part: "HTTP", name: peerRow, base: plainHTTP,
			load: overHTTP(s.peer["http"], connections, 200, func(i int) []byte {
				return request("POST", "/json", fmt.Appendf(nil, `{"domain":"bench",`+
					`"descriptors":[{"entries":[{"key":"key","value":"k%d"}]}]}`, i))
			})})
	}
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
		row{part: "batches", name: "POST /v1/jobs:batch", base: rawJobs, atLeast: 0.5,
			enough: fastBatch, load: load{batchClients, batchJobs, s.batches}},
	), nil
}

// gateways are the rows of Envoy's rate limit service.
func (s *servers) gateways() []row {
	shared := row{part: "gRPC", name: "ShouldRateLimit, in Redis",
		load: overGRPC(s.shared["envoy"])}
	memory := row{part: "gRPC", name: "ShouldRateLimit, in memory",
		load: overGRPC(s.admitter["envoy"])}
	switch {
	case s.shared["envoy"] == "": // a build that does not answer gateways
		return nil
	case s.peer == nil:
		return []row{shared, memory}
	}
	shared.base, shared.atLeast, shared.lessP99 = peerGRPC, 1.5, true
	memory.base = peerGRPC
	return []row{{part: "gRPC", name: peerGRPC, load: overGRPC(s.peer["grpc"])}, shared, memory}
}

// natsClient asks one thing again and again, over the connection that all share.
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
	return load{connections, 1, func(_ context.Context, i int) (client, error) {
		return natsClient{nc, question(i)}, nil
	}}, nil
}

// publisher publishes jobs straight into a queue, as fast as the client library does it.
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
	return load{batchClients, batchJobs, func(ctx context.Context, i int) (client, error) {
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(batchJobs))
		if err == nil && i == 0 {
			err = empty(ctx, js, "raw")
		}
		return publisher{js}, err
	}}, nil
}

// empty makes room in a queue, whose stream holds a million jobs.
func empty(ctx context.Context, js jetstream.JetStream, policy string) error {
	stream, err := js.Stream(ctx, "PENSTOCK_"+policy)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

// batches opens a client that sends batches over HTTP.
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
	c, err := overHTTP(s.admitter["http"], 1, http.StatusOK, func(int) []byte {
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
