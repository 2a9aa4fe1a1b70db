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
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	mostDrainers = 8
	// mostWaiting is the policy's max_jobs.
	mostWaiting = 1_000_000
	// partitions of a policy, unless it says otherwise: the default, and what drainers share.
	partitions, shared = 1, 8
	// inFlight is the number of publishes awaiting acknowledgement.
	inFlight = 8192
)

// penstock is a running installation: the admitter with the server inside it, and drainers.
type penstock struct {
	b        *bench
	dir      string
	admitter *process
	drainers []*process
	url      string
	nc       *nats.Conn
	js       jetstream.JetStream
	broker   *queue.Broker
	refused  chan error // of publishes
}

// startPenstock starts an admitter with policies as a configuration file lists them.
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
	if p.broker, err = queue.NewBroker(p.nc, queue.Options{}); err != nil {
		return err
	}
	return nil
}

// newPublisher returns a JetStream client for concurrent publishes, and the channel of refusals.
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

// send publishes a job and does not wait for the acknowledgement.
func send(js jetstream.JetStream, subject string, m mark) error {
	m.Published = monotonic()
	if _, err := js.PublishAsync(subject, m.body(), jetstream.WithStallWait(patience)); err != nil {
		return fmt.Errorf("publish to %s: %w", subject, err)
	}
	return nil
}

// stored waits until all that was sent is stored.
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

// fill publishes n jobs over the keys in turn and returns when they are stored.
func fill(ctx context.Context, js jetstream.JetStream, refused chan error,
	subject func(job.Key) string, n, keys int) error {
	subjects := make([]string, keys)
	for i := range subjects {
		subjects[i] = subject(job.Key(keyName(i)))
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

// fill publishes n jobs of a queue policy over the keys in turn and returns when they are stored.
func (p *penstock) fill(ctx context.Context, policy string, n, keys int) error {
	return fill(ctx, p.js, p.refused, func(k job.Key) string {
		return p.broker.Names().Jobs(policy, k)
	}, n, keys)
}

// drain starts drainer processes and waits until they share the policy's partitions.
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
			n, _ := strconv.Atoi(text) // nothing heard: 0
			sum, least = sum+n, min(least, n)
		}
		return sum == partitions && least >= partitions/drainers, nil
	})
}

// starts collects what the drainers have recorded.
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

// returned returns the number of starts that came back from their workers.
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

// drained waits until a policy holds at most left jobs, up to a deadline.
func (p *penstock) drained(ctx context.Context, policy string, left uint64,
	most time.Duration) error {
	return until(ctx, most, fmt.Sprintf("%s holds %d jobs", policy, left), func() (bool, error) {
		n, err := p.broker.Depth(ctx, policy)
		return n <= left, err
	})
}

// cpu is the processor time that the server and the drainers have used.
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

// dismiss ends the drainers.
func (p *penstock) dismiss() {
	for _, d := range p.drainers {
		d.Kill()
	}
	p.drainers = nil
}

// stop ends all processes and removes their data.
func (p *penstock) stop() {
	if p.nc != nil {
		p.nc.Close()
	}
	p.dismiss()
	if p.admitter != nil {
		p.admitter.Kill()
	}
	_ = os.RemoveAll(p.dir) // the directory around it goes too, in the end
}
