// Package workers runs the jobs of Penstock's queues, at the rates of their policies.
//
//	drainer, err := workers.New(nc, workers.Options{})
//	…
//	drainer.Handle("stripe", func(ctx context.Context, job workers.Job) error {
//		return charge(ctx, job.Body)
//	})
//	err = drainer.Run(ctx)
//
// Any number of drainers, on any number of machines, share the work and keep to one rate. A handler
// returns nil for a job that is done, and an error for one to be tried again after a backoff, or an
// error made by [Permanent], [RetryAfter], [Again] or [Unavailable].
//
// A [Drainer] owns partitions of policies: it pulls their jobs into memory, keeps a clock per
// bucket, starts the head of a bucket when its clock permits, and acknowledges jobs that have
// ended. A lease ensures that a partition has one owner.
package workers

// A pure core, workers/internal/core, makes all decisions; this package is the loop around it.
// loop.go is the base of all parts, and drainer.go the loop with its priorities. watch.go observes
// policies and records. parts.go lists the parts, and carries out the core's actions with them:
// backlogs.go, pool.go (local workers), remote.go (remote workers), records.go and
// questions.go. lender.go runs jobs of other drainers' valves; remote.go has the protocol between
// the two, too (docs/workers-protocol.md). tell.go writes logs and events for operators. Only
// drainer.go and watch.go depend on all parts.
