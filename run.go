package penstock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/admission/natsapi"
	"github.com/penstock-mq/penstock/admission/schedules"
	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/natsconn"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
)

// rosterLease is how long after its last heartbeat a process counts as one that shares limits.
const rosterLease = 5 * time.Second

// Run starts jobs, follows changes of the policies, and serves HTTP and NATS as configured,
// until ctx ends or Close is called. It then hands its partitions over to other processes, lets
// running jobs finish for at most Grace, and returns nil. Run can be called once. It waits out
// temporary failures, such as NATS being away, and returns permanent ones.
func (p *Penstock) Run(ctx context.Context) error {
	ctx, ended, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer ended()
	work := []func(context.Context) error{untilDone}
	if p.drainer != nil {
		work[0] = after(p.laidOut, p.drainer.Run)
	}
	defer p.broker.KeepMinutes()
	return lifecycle.Run(ctx, lifecycle.InTurn(p.options.HTTP.LameDuck, work, p.serving()))
}

// serving returns the parts of Run that continue until the last job has ended.
func (p *Penstock) serving() []func(context.Context) error {
	o := p.options
	owners := owners{broker: p.broker, known: p.known, observe: o.Observer.Unowned, log: p.log,
		asked: map[string]*asked{}}
	parts := []func(context.Context) error{
		p.guard.Run, p.watch, p.announce, p.streams.run,
		after(p.prepared, p.storage.run), after(p.prepared, p.policies.run),
		after(p.prepared, owners.run),
	}
	if o.StartWithoutNATS {
		parts = append(parts, p.meanwhile)
	}
	parts = append(parts, after(p.prepared, p.schedules.Run))
	if p.auditor != nil {
		parts = append(parts, after(p.prepared, p.auditor.Run))
	}
	if p.listener != nil {
		parts = append(parts, lifecycle.HTTP(p.listener,
			reportStatus(p.handler, o.Observer.Answered),
			lifecycle.HTTPOptions{Grace: o.Grace, MaxConnections: o.HTTP.MaxConnections,
				MaxPerClient: o.HTTP.MaxPerClient, Unbounded: o.HTTP.TrustedProxies,
				TLS: p.guard.TLS(), Logger: p.log}))
	}
	if o.ServeNATS {
		parts = append(parts, natsapi.Serve(p.requests, p.broker.Names(), p.service,
			natsapi.Options{Job: p.jobOrEnd, Bucket: p.bucket, Cancel: p.cancel,
				Budget: p.budget, Grace: o.Grace, Version: buildinfo.Version(),
				Started: func() { close(p.listening) }, Logger: p.log,
				Answered: func(status int) { o.Observer.Answered(APINATS, status) }}))
	} else {
		close(p.listening)
	}
	if o.shared {
		roster := kv.NewRoster(p.broker.Tables().Admitters, rosterLease, o.Limits.SetLive)
		parts = append(parts, after(p.prepared, roster.Run))
		if store, ok := o.Limits.(interface{ Run(context.Context) error }); ok {
			parts = append(parts, store.Run)
		}
	}
	return parts
}

// jobOrEnd, cancel and bucket answer further requests of the NATS API.
func (p *Penstock) jobOrEnd(ctx context.Context, policy string, seq uint64) (any, error) {
	return p.manage.JobOrEnd(ctx, p.manage.Job, policy, seq)
}

func (p *Penstock) cancel(ctx context.Context, policy string, seq uint64) (any, error) {
	return p.manage.Cancel(ctx, policy, seq)
}

func (p *Penstock) bucket(ctx context.Context, policy string, key job.Key) (any, error) {
	return p.manage.Bucket(ctx, policy, key)
}

// begin records that Run has been called. Run must call ended when it returns.
func (p *Penstock) begin(ctx context.Context) (_ context.Context, ended func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, nil, ErrClosed
	case p.stop != nil:
		return nil, nil, errors.New("penstock: Run was called before")
	}
	ctx, p.stop = context.WithCancel(ctx)
	p.ended = make(chan struct{})
	context.AfterFunc(ctx, func() {
		p.stopping.Store(true)
		p.watching.Close() // ends open event streams, which would delay the end
		p.service.EndWaits()
	})
	return ctx, sync.OnceFunc(func() { p.stop(); close(p.ended) }), nil
}

// Close ends Run and waits for it; running jobs get at most Grace. Then it closes the
// connections and the port, stops the embedded server, and removes its temporary directory.
// Close may be called repeatedly.
func (p *Penstock) Close() {
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		if p.stop != nil {
			p.stop()
			<-p.ended
		}
		for i := len(p.closers) - 1; i >= 0; i-- {
			p.closers[i]()
		}
	})
}

// watch prepares JetStream unless Open has, and watches the policies. Existing policies take
// effect while those of the options are being written.
func (p *Penstock) watch(ctx context.Context) error {
	if p.prepared.isClosed() {
		return p.followPolicies(ctx)
	}
	if err := p.layOut(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	return lifecycle.Run(ctx, p.followPolicies, func(ctx context.Context) error {
		switch err := p.writeFirst(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		p.policies.followed(ctx)
		close(p.streams.whole)
		p.streams.again()
		<-ctx.Done()
		return nil
	})
}

func (p *Penstock) followPolicies(ctx context.Context) error {
	cache := cache{file: p.options.Cache, log: p.log}
	return p.store.Watch(ctx, func(set policy.Entries) {
		p.known.take(set)
		cache.keep(set)
	})
}

// prepare creates everything that processes share, and writes the policies of the options.
func (p *Penstock) prepare(ctx context.Context) error {
	if err := p.layOut(ctx); err != nil {
		return err
	}
	return p.writeFirst(ctx)
}

// layOut creates the streams and KV buckets that processes share.
func (p *Penstock) layOut(ctx context.Context) error {
	nc := p.broker.Conn()
	if !natsconn.Connected(ctx, nc) {
		return fmt.Errorf("connect to NATS: %w", ctx.Err())
	}
	err := p.persist(ctx, "set up JetStream", func(ctx context.Context) error {
		err := p.broker.Setup(ctx)
		if errors.Is(err, job.ErrVersion) && nc.ConnectedServerVersion() == "" {
			return fmt.Errorf("%w: the connection was lost", queue.ErrUnavailable)
		}
		return err
	})
	if err == nil {
		close(p.laidOut)
	}
	return err
}

func (p *Penstock) writeFirst(ctx context.Context) error {
	err := p.write(ctx, p.options)
	if err == nil {
		close(p.prepared)
	}
	return err
}

// setUpAgain sets up what JetStream has lost, as at the start: the policies and schedules are those
// of the options. Policies written through the API were in JetStream only.
func (p *Penstock) setUpAgain(ctx context.Context) error {
	if err := p.broker.Setup(ctx); err != nil {
		return err
	}
	if !p.writing.TryLock() {
		return fmt.Errorf("%w: the policies are being written", queue.ErrUnavailable)
	}
	defer p.writing.Unlock()
	if err := p.put(ctx, p.written); err != nil {
		return err
	}
	for _, entry := range p.known.policies() {
		if entry.Policy.HasQueue() && !entry.Retired {
			_ = p.streams.broker.Apply(ctx, entry.Policy) // streams repeats what fails
		}
	}
	return nil
}

// write writes the policies of options, and then their schedules.
func (p *Penstock) write(ctx context.Context, o Options) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.written = o
	return p.put(ctx, o)
}

// put is write for a caller that holds the lock.
func (p *Penstock) put(ctx context.Context, o Options) error {
	if o.Policies == nil {
		return nil
	}
	err := p.persist(ctx, "write the policies",
		func(ctx context.Context) error { return p.policies.write(ctx, o) })
	if err != nil {
		return err
	}
	return p.persist(ctx, "write the schedules", func(ctx context.Context) error {
		return p.schedules.Apply(ctx, schedules.File{Set: cmp.Or(o.Set, policy.DefaultSet),
			Policies: o.Policies, Entries: o.Schedules})
	})
}

// meanwhile is a part of Run: it follows the last known policies if NATS is not reachable in
// time.
func (p *Penstock) meanwhile(ctx context.Context) error {
	select {
	case <-time.After(knownAfter):
	case <-ctx.Done():
		return nil
	}
	cache := cache{file: p.options.Cache, log: p.log}
	p.known.followInstead(func() policy.Entries { return cache.lastKnown(p.options.Policies) })
	<-ctx.Done()
	return nil
}

func (p *Penstock) follow(set policy.Entries) {
	if err := p.service.SetPolicies(set); err != nil {
		p.log.Error("policies keep their former form, or stay out", "error", err)
	}
	p.options.Observer.Policies(set)
}

// announce is a part of Run: it closes ready once all other parts have begun.
func (p *Penstock) announce(ctx context.Context) error {
	if wait(ctx, p.prepared, p.listening, p.streams.applied) {
		close(p.ready)
		<-ctx.Done()
	}
	return nil
}

const (
	persistFirst = 100 * time.Millisecond
	persistLast  = 2 * time.Second
	persistLog   = 10 * time.Second
)

// persist repeats do while NATS is unavailable, and logs the failure from time to time.
func (p *Penstock) persist(ctx context.Context, what string, do func(context.Context) error) error {
	var logged time.Time
	for pause := persistFirst; ; pause = min(2*pause, persistLast) {
		err := do(ctx)
		if err == nil || !errors.Is(err, queue.ErrUnavailable) {
			return err
		}
		if time.Since(logged) >= persistLog {
			logged = time.Now()
			p.log.Warn("NATS is not available: trying again", "doing", what, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}
