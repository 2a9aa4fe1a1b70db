package workers

import (
	"cmp"
	"context"
	"log/slog"
	"path"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

type catalog struct {
	log      *slog.Logger
	names    jet.Names
	handlers map[string]Handler // registered before Run
	target   func(inforce.Entry) (Handler, error)
	policies map[string]policy.Policy // also deleted ones, whose jobs may still run
	gone     map[string]time.Time     // when policies were first missed
	running  map[string]Handler       // registered or of a target
	attempt  func(context.Context, Job) (context.Context, Job, func(error))
	keep     func(policy string, keep time.Duration)
}

// observed adds [Options.Attempt] to a handler.
func observed(handle Handler,
	attempt func(context.Context, Job) (context.Context, Job, func(error))) Handler {
	if attempt == nil {
		return handle
	}
	return func(ctx context.Context, job Job) (err error) {
		ctx, job, ended := attempt(ctx, job)
		defer func() { ended(err) }()
		return caught(ctx, handle, job)
	}
}

// rememberGone, plus its timeout, is the time that a deleted policy is kept.
const rememberGone = 10 * time.Minute

func (c *catalog) learn(changed []string, set inforce.Entries, now time.Time) {
	for _, name := range changed {
		entry := set[name]
		delete(c.gone, name)
		delete(c.running, name)
		switch _, known := c.policies[name]; {
		case entry.HasQueue():
			c.policies[name] = entry.Policy
			c.keep(name, time.Duration(entry.Policy.ResultRetention))
			if handle := c.handlerOf(*entry); handle != nil {
				c.running[name] = observed(handle, c.attempt)
			}
		case entry == nil && known:
			c.gone[name] = now
		}
	}
	for name, since := range c.gone {
		if now.Sub(since) > time.Duration(c.policies[name].Timeout)+rememberGone {
			delete(c.gone, name)
			delete(c.policies, name)
			c.keep(name, 0)
		}
	}
}

func (c *catalog) handlerOf(entry inforce.Entry) Handler {
	if handle := c.registered(entry.Policy.Name); handle != nil && entry.Policy.Target == nil {
		return handle
	}
	if c.target == nil {
		return nil
	}
	handle, err := c.target(entry)
	if err != nil {
		c.log.Warn("the policy's target cannot be used", "policy", entry.Policy.Name, "error", err)
		return nil
	}
	return handle
}

func (c *catalog) registered(policy string) Handler {
	if handle := c.handlers[policy]; handle != nil {
		return handle
	}
	best := ""
	for pattern := range c.handlers {
		matches, _ := path.Match(pattern, policy)
		if matches && cmp.Or(len(pattern)-len(best), cmp.Compare(pattern, best)) > 0 {
			best = pattern
		}
	}
	return c.handlers[best]
}

func (c *catalog) timeout(name string, header map[string][]string) time.Duration {
	return job.DurationAtMost(time.Duration(c.policies[name].Timeout), header, job.HeaderTimeout)
}

// workSubject returns the subject of a policy's offers. Only drainers have its target.
func (c *catalog) workSubject(name string) string {
	if c.policies[name].Target != nil {
		return c.names.WorkOfTarget(name)
	}
	return c.names.Work(name)
}
