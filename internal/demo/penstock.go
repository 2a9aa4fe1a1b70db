package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

type penstock struct {
	admitter *process
	drainers []*process
	killed   *process
	httpURL  string

	names     jet.Names
	nc        *nats.Conn
	js        jetstream.JetStream
	stream    jetstream.Stream
	owners    jetstream.KeyValue
	leases    jetstream.KeyValue
	partition int

	mu     sync.Mutex
	starts []arrival // by the drainers' own clock
	done   int
	took   time.Duration // of all that are done, from the start to the end
}

const configuration = `
http: {listen: "127.0.0.1:0"}
nats:
  embedded: {dir: %q, listen: "127.0.0.1:0"}
drain: {lease: %v}
policies:
  - name: %s
    algorithm: leaking_bucket
    outflow: %d/s
    limits: [{algorithm: sliding_log, limit: %d, window: %v, count_from: answer}]
    capacity: %d
    partitions: %d
    target: {http: {url: %q}}
  - name: %s
    algorithm: leaking_bucket
    outflow: %[4]d/s
    limits: [{algorithm: sliding_log, limit: %[5]d, window: %[6]v}]
    capacity: 10000
    partitions: %[8]d
    target: {http: {url: %[11]q}}
`

func (p *penstock) start(ctx context.Context, dir, admitter, drainer, target, second string,
	out *screen) (err error) {
	file := filepath.Join(dir, "penstock.yaml")
	text := fmt.Sprintf(configuration, filepath.Join(dir, "nats"), lease,
		policyName, outflow, apiLimit, apiWindow, capacity, partitions, target, fromStart, second)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if p.admitter, err = start(ctx, "admitter", admitter, "--config", file); err != nil {
		return err
	}
	natsURL := p.admitter.ready["nats"]
	p.httpURL = "http://" + p.admitter.ready["http"]
	out.say("admitter: %s, NATS inside it at %s; limit %d in %v, counted from the answer; "+
		"capacity %d", p.httpURL, natsURL, apiLimit, apiWindow, capacity)
	for i := range 2 {
		d, err := start(ctx, fmt.Sprintf("drainer %d", i+1), drainer, "--config", file,
			"--nats-url", natsURL)
		if err != nil {
			return err
		}
		p.drainers = append(p.drainers, d)
		out.say("%s: process %d", d.name, d.pid())
	}
	if err := p.connect(ctx, natsURL); err != nil {
		return err
	}
	return p.settle(ctx)
}

func (p *penstock) connect(ctx context.Context, url string) (err error) {
	if p.nc, err = nats.Connect(url, nats.Name("demo")); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	broker, err := jet.NewBroker(p.nc, jet.Options{})
	if err != nil {
		return err
	}
	if _, err := p.nc.Subscribe(broker.Names().Event(policyName, bucketKey), p.hear); err != nil {
		return fmt.Errorf("listen to the drainers' events: %w", err)
	}
	tables := broker.Tables()
	p.names = broker.Names()
	p.partition = job.Partition(p.names.Jobs(policyName, bucketKey), partitions)
	if p.js, err = jetstream.New(p.nc, jetstream.WithPublishAsyncTimeout(10*time.Second)); err !=
		nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	if p.stream, err = p.js.Stream(ctx, p.names.Stream(policyName)); err != nil {
		return fmt.Errorf("find the policy's stream: %w", err)
	}
	if p.owners, err = p.js.KeyValue(ctx, tables.Partitions.Bucket()); err != nil {
		return fmt.Errorf("find the owners of partitions: %w", err)
	}
	if p.leases, err = p.js.KeyValue(ctx, tables.Drainers.Bucket()); err != nil {
		return fmt.Errorf("find the drainers: %w", err)
	}
	return nil
}

func (p *penstock) hear(m *nats.Msg) {
	var e queue.Event
	if json.Unmarshal(m.Data, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Type {
	case queue.EventStarted:
		p.starts = append(p.starts, arrival{at: e.At, job: e.Job, attempt: e.Attempt})
	case queue.EventDone:
		p.done++
		p.took += milliseconds(e.DurationMS)
	}
}

// latency is the mean time from a start to its end.
func (p *penstock) latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.took / time.Duration(max(1, p.done))
}

func (p *penstock) started() []arrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(p.starts), func(a, b arrival) int {
		return a.at.Compare(b.at)
	})
}

func (p *penstock) owner(ctx context.Context, policy string,
	partition int) (*process, error) {
	entry, err := p.owners.Get(ctx, policy+"."+strconv.Itoa(partition))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the owner of partition %d: %w", partition, err)
	}
	var record struct {
		Owner    string `json:"owner"`
		Released bool   `json:"released"`
	}
	if err := json.Unmarshal(entry.Value(), &record); err != nil {
		return nil, fmt.Errorf("read the owner of partition %d: %w", partition, err)
	}
	if record.Released {
		return nil, nil
	}
	entry, err = p.leases.Get(ctx, record.Owner)
	if err != nil {
		return nil, fmt.Errorf("read the lease of %s: %w", record.Owner, err)
	}
	var owner struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(entry.Value(), &owner); err != nil {
		return nil, fmt.Errorf("read the lease of %s: %w", record.Owner, err)
	}
	i := slices.IndexFunc(p.drainers, func(d *process) bool { return d.pid() == owner.PID })
	if i < 0 {
		return nil, nil
	}
	return p.drainers[i], nil
}

// settle waits until the drainers share the partitions: the kill must cause the only takeover.
func (p *penstock) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, proctest.Patience)
	defer cancel()
	for {
		shares := map[*process]int{}
		for i := range 2 * partitions {
			policy := []string{policyName, fromStart}[i%2]
			owner, err := p.owner(ctx, policy, i/2)
			if err != nil {
				return err
			}
			shares[owner]++
		}
		if shares[p.drainers[0]] == partitions && shares[p.drainers[1]] == partitions {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait until the drainers share %d partitions: %w", partitions,
				ctx.Err())
		}
	}
}

func (p *penstock) killOwner(ctx context.Context) error {
	owner, err := p.owner(ctx, policyName, p.partition)
	if err != nil {
		return err
	}
	if owner == nil {
		return fmt.Errorf("partition %d has no owner to kill", p.partition)
	}
	owner.Kill()
	p.killed = owner
	return nil
}

func (p *penstock) held(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := p.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at the policy's stream: %w", err)
	}
	return int(info.State.Msgs), nil
}

func (p *penstock) buried(ctx context.Context) (int, error) {
	dead, err := p.js.Stream(ctx, p.names.DeadStream(policyName))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at the dead letters: %w", err)
	}
	return int(dead.CachedInfo().State.Msgs), nil
}

func (p *penstock) children() []*process {
	if p.admitter == nil {
		return nil
	}
	return append([]*process{p.admitter}, p.drainers...)
}

func (p *penstock) ended() error {
	for _, c := range p.children() {
		select {
		case <-c.Exited:
			if c != p.killed {
				return fmt.Errorf("%s ended: %s\n%s", c.name, c.Cmd.ProcessState, c.Log)
			}
		default:
		}
	}
	return nil
}

func (p *penstock) stop() error {
	p.nc.Close()
	var failed error
	for _, c := range slices.Backward(p.children()) {
		if c != p.killed {
			failed = errors.Join(failed, c.Stop())
		}
	}
	return failed
}

func (p *penstock) kill() {
	if p.nc != nil {
		p.nc.Close()
	}
	for _, c := range p.children() {
		c.Kill()
	}
}
