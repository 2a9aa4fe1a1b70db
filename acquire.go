package penstock

import (
	"context"

	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/internal/natsconn"
)

// Call is a request for a start: see [Penstock.Acquire].
type Call = permits.Request

// Permit allows one call: see [Penstock.Acquire].
type Permit = permits.Permit

// Acquirer acquires permits, as [*Penstock], [*Client] and [*permits.Client] do.
type Acquirer = permits.Acquirer

// Transport is an [http.RoundTripper] whose requests begin when their policy lets them.
type Transport = permits.Transport

// Acquire waits until a call may begin, in the bucket in which the jobs of its policy and key wait
// as well. Nothing is stored: the caller makes its request itself, at once, and then calls Settle,
// or Return if it has not begun. The policy must be a leaking bucket with a queue, which some
// process drains. A refusal is a [*RefusedError]; other errors are those of
// [permits.Client.Acquire], and [ErrUnknownPolicy].
func (p *Penstock) Acquire(ctx context.Context, c Call) (*Permit, error) {
	client, err := p.callers(c.Policy)
	if err != nil {
		return nil, err
	}
	return client.Acquire(ctx, c)
}

// callers returns the client for permits of a policy. Its connection is made for the first call.
func (p *Penstock) callers(policy string) (*permits.Client, error) {
	if err := p.service.Callable(policy); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, ErrClosed
	case p.calls != nil:
		return p.calls, nil
	}
	nc, err := p.nats.Connect("penstock admitter calls")
	if err != nil {
		return nil, err
	}
	if p.calls, err = permits.New(nc, p.broker.Names()); err != nil {
		nc.Close()
		return nil, err
	}
	p.closers = append(p.closers, func() {
		p.calls.Close()
		natsconn.Leave(nc)
	})
	return p.calls, nil
}
