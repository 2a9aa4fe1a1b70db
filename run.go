package penstock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/server/health"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

const rosterLease = 5 * time.Second

// Run starts jobs, follows the policies, and serves HTTP and NATS, until ctx ends or Close is
// called. Then it hands over its partitions, gives running jobs at most Grace to finish, and
// returns nil, or an error if it could not hand over in time, for example without NATS: then some
// jobs may run twice. Other errors are permanent. It can be called once.
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
	defer p.broker.Tally().KeepMinutes()
	return lifecycle.Run(ctx, lifecycle.InTurn(p.options.HTTP.LameDuck, work, p.serving()))
}

// serving continues until the last job has ended.
func (p *Penstock) serving() []func(context.Context) error {
	prepared := func(run func(context.Context) error) func(context.Context) error {
		return lifecycle.After(p.node.Prepared, run)
	}
	parts := append(p.node.Parts(), p.announce, prepared(p.door.Schedules.Run))
	parts = append(parts, p.door.Parts()...)
	if p.auditor != nil {
		parts = append(parts, prepared(p.auditor.Run))
	}
	parts = append(parts, prepared(p.roster.Run))
	store, runs := p.options.Limits.(interface{ Run(context.Context) error })
	if runs && p.options.shared {
		parts = append(parts, store.Run)
	}
	return parts
}

func (p *Penstock) begin(ctx context.Context) (_ context.Context, ended func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch err := p.usable(); {
	case err != nil:
		return nil, nil, err
	case p.stop != nil:
		return nil, nil, errors.New("penstock: Run was called before")
	}
	ctx, p.stop = context.WithCancel(ctx)
	p.running = ctx
	p.ended = make(chan struct{})
	context.AfterFunc(ctx, func() {
		p.stopping.Store(true)
		p.door.Stop()
	})
	return ctx, sync.OnceFunc(func() { p.stop(); close(p.ended) }), nil
}

func (p *Penstock) usable() error { return context.Cause(p.life) }

// Close ends Run and other calls, waits for Run, and undoes Open. It may be repeated.
func (p *Penstock) Close() {
	p.closing.Do(func() {
		p.mu.Lock()
		p.end(ErrClosed)
		p.mu.Unlock()
		if p.stop != nil {
			p.stop()
			<-p.ended
		}
		if p.door != nil {
			p.door.Stop() // if Run was never called
			p.door.Close()
		}
		for i := len(p.closers) - 1; i >= 0; i-- {
			p.closers[i]()
		}
	})
}

// announce closes ready once all other parts have begun.
func (p *Penstock) announce(ctx context.Context) error {
	if lifecycle.Wait(ctx, p.node.Prepared, p.door.Listening, p.node.Applied) {
		close(p.ready)
		<-ctx.Done()
	}
	return nil
}

func (p *Penstock) parts() []health.Part {
	var stopping, starting error
	if p.stopping.Load() {
		stopping = admit.ErrStopping
	}
	if !p.ready.Closed() {
		starting = fmt.Errorf("%w, or their streams not prepared", admit.ErrStarting)
	}
	parts := p.node.Health(stopping, starting)
	if p.options.Parts != nil {
		parts = append(parts, p.options.Parts()...)
	}
	return parts
}
