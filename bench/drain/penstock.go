package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/bench/usage"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

const (
	mostDrainers       = 8
	mostWaiting        = 1_000_000
	partitions, shared = 1, 8
	inFlight           = 8192
)

type penstock struct {
	b        *bench
	dir      string
	admitter *process
	drainers []*process
	url      string
	nc       *nats.Conn
	js       jetstream.JetStream
	broker   *jet.Broker
	refused  chan error
}

func (b *bench) startPenstock(ctx context.Context, policies ...string) (*penstock, error) {
	dir, err := os.MkdirTemp(b.dir, "run-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	p := &penstock{b: b, dir: dir}
	if err := p.begin(ctx, policies); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *penstock) begin(ctx context.Context, policies []string) (err error) {
	config := fmt.Sprintf(
		"http: {listen: \"127.0.0.1:0\"}\nnats: {embedded: {dir: %q, listen: \"127.0.0.1:0\"}}\n"+
			"policies:\n  - %s\n",
		filepath.Join(p.dir, "nats"), strings.Join(policies, "\n  - "))
	file := filepath.Join(p.dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if p.admitter, err = p.b.start(ctx, "admitter", p.b.admitter, "--config", file); err != nil {
		return err
	}
	p.url = p.admitter.ready["nats"]
	if p.nc, err = nats.Connect(p.url, nats.Name("bench")); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if p.js, p.refused, err = newPublisher(p.nc); err != nil {
		return err
	}
	if p.broker, err = jet.NewBroker(p.nc, jet.Options{}); err != nil {
		return err
	}
	return nil
}

func newPublisher(nc *nats.Conn) (jetstream.JetStream, chan error, error) {
	refused := make(chan error, 1)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			select {
			case refused <- fmt.Errorf("publish to %s: %w", m.Subject, err):
			default:
			}
		}))
	if err != nil {
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return js, refused, nil
}

func send(js jetstream.JetStream, subject string, m mark) error {
	m.Published = monotonic()
	if _, err := js.PublishAsync(subject, m.body(), jetstream.WithStallWait(patience)); err != nil {
		return fmt.Errorf("publish to %s: %w", subject, err)
	}
	return nil
}

func stored(ctx context.Context, js jetstream.JetStream, refused chan error) error {
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		return fmt.Errorf("%d publishes not answered", js.PublishAsyncPending())
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-refused:
		return err
	default:
		return nil
	}
}

func fill(ctx context.Context, js jetstream.JetStream, refused chan error,
	subject func(queue.Key) string, n, keys int) error {
	subjects := make([]string, keys)
	for i := range subjects {
		subjects[i] = subject(queue.Key(keyName(i)))
	}
	for i := range n {
		if err := send(js, subjects[i%keys],
			mark{Key: uint32(i % keys), Number: uint32(i / keys)}); err != nil {
			return err
		}
	}
	return stored(ctx, js, refused)
}

func keyName(i int) string { return "key-" + strconv.Itoa(i) }

func (p *penstock) fill(ctx context.Context, policy string, n, keys int) error {
	return fill(ctx, p.js, p.refused, func(k queue.Key) string {
		return p.broker.Names().Jobs(policy, k)
	}, n, keys)
}

func (p *penstock) drain(ctx context.Context, spec drainerSpec, drainers, partitions int) error {
	spec.URL = p.url
	for i := range drainers {
		d, err := p.b.startChild(ctx, fmt.Sprintf("drainer %d", i+1), roleDrainer, spec)
		if err != nil {
			return err
		}
		p.drainers = append(p.drainers, d)
	}
	return until(ctx, patience, "the drainers share the partitions", func() (bool, error) {
		sum, least := 0, partitions
		for _, d := range p.drainers {
			text, _ := d.heard("owned")
			n, _ := strconv.Atoi(text)
			sum, least = sum+n, min(least, n)
		}
		return sum == partitions && least >= partitions/drainers, nil
	})
}

func (p *penstock) starts(ctx context.Context) ([]start, error) {
	var all []start
	for i, d := range p.drainers {
		file := filepath.Join(p.dir, fmt.Sprintf("starts-%d", i))
		if _, err := d.ask(ctx, "dump", file); err != nil {
			return nil, err
		}
		starts, err := load[start](file)
		if err != nil {
			return nil, fmt.Errorf("read the starts of %s: %w", d.name, err)
		}
		all = append(all, starts...)
	}
	return all, nil
}

func (p *penstock) returned(ctx context.Context) (sum int, err error) {
	for _, d := range p.drainers {
		text, err := d.ask(ctx, "returned", "")
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("read what came back: %w", err)
		}
		sum += n
	}
	return sum, nil
}

func (p *penstock) drained(ctx context.Context, policy string, left uint64,
	most time.Duration) error {
	return until(ctx, most, fmt.Sprintf("%s holds %d jobs", policy, left), func() (bool, error) {
		n, err := p.broker.Depth(ctx, policy)
		return n <= left, err
	})
}

// of the server and the drainers
func (p *penstock) cpu() (sum time.Duration, err error) {
	for _, process := range append([]*process{p.admitter}, p.drainers...) {
		t, err := usage.CPU(process.Cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

func (p *penstock) dismiss() {
	for _, d := range p.drainers {
		d.Kill()
	}
	p.drainers = nil
}

func (p *penstock) stop() {
	if p.nc != nil {
		p.nc.Close()
	}
	p.dismiss()
	if p.admitter != nil {
		p.admitter.Kill()
	}
	_ = os.RemoveAll(p.dir)
}
