package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/admission/outbound"
	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/server/health"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/policy"
)

type proxyAt struct {
	*outbound.Proxy
	listen string
}

// routes reports the mistakes of the proxies' routes that the policies in force and files reveal.
type routes struct {
	proxies  []proxyAt
	policies func() policy.Entries // nil: not known yet
	observe  func(faults map[[2]string]int)
	notices  *notice.Log
}

const routesEvery = 2 * time.Second

var routeFault = notice.Kind{Level: slog.LevelWarn, Of: "route",
	Begin: "a route of the proxy cannot work as configured",
	End:   "the route works as configured", Note: "%s: %s"}

func (r *routes) parts() []health.Part {
	part := health.Part{Name: "outbound", Status: "its routes work as configured",
		Notes: r.notices.Notes(&routeFault)}
	if len(part.Notes) > 0 {
		part.Status = "routes cannot work as configured"
	}
	return []health.Part{part}
}

// run begins when the file's policies are written. Routes and policies change independently.
func (r *routes) run(ready <-chan struct{}) func(context.Context) error {
	look := lifecycle.Repeat(nil, r.look)
	return func(ctx context.Context) error {
		select {
		case <-ready:
			return look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *routes) look(context.Context) (time.Duration, error) {
	known := r.policies()
	if known == nil {
		return routesEvery, nil
	}
	counts, now := map[[2]string]int{}, map[string]bool{}
	for _, p := range r.proxies {
		for _, f := range p.Faults(known) {
			at := p.listen + " " + f.Route + " " + f.Field
			counts[[2]string{f.Policy, f.Kind}]++
			now[at] = true
			r.notices.Tell(&routeFault, at, f.Reason, "policy", f.Policy, "reason", f.Reason)
		}
	}
	r.notices.Only(&routeFault, func(at string) bool { return now[at] })
	r.observe(counts)
	return routesEvery, nil
}
