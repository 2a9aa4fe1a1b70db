package penstock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/natsapi"
	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/internal/health"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
)

// rosterLease is how long after its last heartbeat a process counts.
const rosterLease = 5 * time.Second

// Run starts jobs, follows the policies, and serves HTTP and NATS, until ctx ends or Close is
// called. Then it hands its partitions over, lets running jobs finish for at most Grace, and
// returns nil; other errors are permanent. It can be called once.
func (p *Penstock) Run(ctx context.Context) error {
	ctx, ended, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer ended()
	work := []func(context.Context) error{
		func(ctx context.Context) error { <-ctx.Done(); return nil }}
	if p.drainer != nil {
		work[0] = lifecycle.After(p.node.LaidOut, p.drainer.Run)
	}
	defer p.broker.KeepMinutes()
	return lifecycle.Run(ctx, lifecycle.InTurn(p.options.HTTP.LameDuck, work, p.serving()))
}

// serving continues until the last job has ended.
func (p *Penstock) serving() []func(context.Context) error {
	o := p.options
	prepared := func(run func(context.Context) error) func(context.Context) error {
		return lifecycle.After(p.node.Prepared, run)
	}
	parts := append(p.node.Parts(), p.guard.Run, p.announce, prepared(p.schedules.Run))
	if p.auditor != nil {
		parts = append(parts, prepared(p.auditor.Run))
	}
	if p.listener != nil {
		parts = append(parts, lifecycle.HTTP(p.listener,
			p.handler, lifecycle.HTTPOptions{Grace: o.Grace, MaxConnections: o.HTTP.MaxConnections,
				MaxPerClient: o.HTTP.MaxPerClient, Unbounded: o.HTTP.TrustedProxies,
				Answered: p.answered("http"), TLS: p.guard.TLS(), Logger: p.log}))
	}
	if o.ServeNATS {
		parts = append(parts, natsapi.Serve(p.requests, p.broker.Names(), p.service,
			natsapi.Options{Job: p.jobOrEnd, Bucket: p.bucket, Cancel: p.cancel,
				Budget: p.budget, Grace: o.Grace, Version: buildinfo.Version(),
				Started: func() { close(p.listening) }, Logger: p.log,
				Answered: p.answered("nats")}))
	} else {
		close(p.listening)
	}
	if o.shared {
		roster := kv.NewRoster(p.broker.Tables().Admitters, rosterLease, o.Limits.SetLive)
		parts = append(parts, prepared(roster.Run))
		if store, ok := o.Limits.(interface{ Run(context.Context) error }); ok {
			parts = append(parts, store.Run)
		}
	}
	return parts
}

func (p *Penstock) answered(api string) func(status int) {
	return func(status int) {
		p.sink.Take(queue.Event{Type: queue.EventAnswered, Name: api, Value: int64(status)})
	}
}

// Further requests of the NATS API.
func (p *Penstock) jobOrEnd(ctx context.Context, policy string, seq uint64) (any, error) {
	return p.manage.JobOrEnd(ctx, p.manage.Job, policy, seq)
}

func (p *Penstock) cancel(ctx context.Context, policy string, seq uint64) (any, error) {
	return p.manage.Cancel(ctx, policy, seq)
}

func (p *Penstock) bucket(ctx context.Context, policy string, key job.Key) (any, error) {
	return p.manage.Bucket(ctx, policy, key)
}

// begin records the call of Run, which must call ended when it returns.
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

// Close ends Run and waits for it; running jobs get at most Grace. Then it closes everything that
// Open opened. It may be repeated.
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

func (p *Penstock) follow(set policy.Entries) {
	if err := p.service.SetPolicies(set); err != nil {
		p.log.Error("policies keep their former form, or stay out", "error", err)
	}
	p.sink.Take(queue.Event{Type: queue.EventFollowed, Data: set})
}

// announce closes ready once all other parts have begun.
func (p *Penstock) announce(ctx context.Context) error {
	if lifecycle.Wait(ctx, p.node.Prepared, p.listening, p.node.Applied) {
		close(p.ready)
		<-ctx.Done()
	}
	return nil
}

// parts lists the health of each part after the parts it depends on, so that the first error is the
// cause of later ones.
func (p *Penstock) parts() []health.Part {
	process := health.Part{Name: "process", Status: "running"}
	if p.stopping.Load() {
		process.Err = admission.ErrStopping
	}
	var starting error
	if !p.ready.Closed() {
		starting = fmt.Errorf("%w, or their streams not prepared", admission.ErrStarting)
	}
	parts := append([]health.Part{process}, p.node.Health(starting)...)
	if p.drainer != nil {
		parts = append(parts, health.Part{Name: "drainer", Err: p.drainer.Health(),
			Status: "holds its lease", Notes: p.drainer.Notes()})
	}
	if p.options.shared {
		parts = append(parts, limitsPart(p.options.Limits))
	}
	if p.listener != nil {
		parts = append(parts, p.options.Files.Part())
	}
	return parts
}

// An unreachable store does not make the process unready: the policies define how to decide without
// it.
func limitsPart(l Limits) health.Part {
	part := health.Part{Name: "limits", Status: "the shared store is asked"}
	if store, ok := l.(interface{ Health() error }); ok {
		if err := store.Health(); err != nil {
			part.Status = err.Error()
		}
	}
	return part
}
