package workers

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// catalog is the policies with a queue and what runs their jobs in this process. It belongs to the
// loop.
type catalog struct {
	log      *slog.Logger
	names    queue.Names
	handlers map[string]Handler                  // that were registered, before Run
	target   func(policy.Entry) (Handler, error) // may be nil
	policies map[string]policy.Policy            // also of jobs that run on when theirs has gone
	running  map[string]Handler                  // registered or made of a target
	attempt  func(context.Context, Job) (context.Context, Job, func(error))
	keep     func(policy string, keep time.Duration) // a history of ended jobs
}

// observed is a handler whose attempts an observer hears of; nil: nobody does.
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

// learn takes the set of policies, as it is now.
func (c *catalog) learn(set policy.Entries) {
	c.running = map[string]Handler{}
	for name, entry := range set {
		if !entry.Policy.HasQueue() {
			continue
		}
		c.policies[name] = entry.Policy
		c.keep(name, time.Duration(entry.Policy.KeepDone))
		if handle := c.handlerOf(entry); handle != nil {
			c.running[name] = observed(handle, c.attempt)
		}
	}
}

// handlerOf returns what runs a policy's jobs in this process, nil when nothing does.
func (c *catalog) handlerOf(entry policy.Entry) Handler {
	if handle := c.handlers[entry.Policy.Name]; handle != nil && entry.Policy.Target == nil {
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

// timeout is how long an attempt of a policy's may take.
func (c *catalog) timeout(name string) time.Duration {
	return time.Duration(c.policies[name].Timeout)
}

// workSubject is where the jobs of a policy are offered. Those of a policy with a target are
// offered to other drainers alone, which have that target as well.
func (c *catalog) workSubject(name string) string {
	if c.policies[name].Target != nil {
		return c.names.WorkOfTarget(name)
	}
	return c.names.Work(name)
}
