// Package workers starts the jobs of Penstock's queues at their policies' rates and runs them.
//
// A [Drainer] owns partitions of policies. It pulls their jobs into memory, keeps a clock per
// bucket, starts the head of a bucket when its clock permits, and acknowledges finished jobs. Any
// number of drainers share the work; a lease ensures a single writer per partition.
//
//	d, err := workers.New(nc, workers.Options{})
//	d.Handle("stripe", func(ctx context.Context, job workers.Job) error { … })
//	err = d.Run(ctx)
//
// A pure core, workers/internal/core, makes all decisions; this package is the loop around it.
// loop.go is the base of all parts, and drainer.go the loop with its priorities. watch.go observes
// policies and records. parts.go lists the parts, and carries out the core's actions with them:
// backlogs.go, pool.go (local workers), remote.go (remote workers), records.go, bury.go and
// questions.go. lender.go runs jobs of other drainers' valves; protocol.go is the protocol between
// the two (docs/workers-protocol.md). tell.go and notices.go write logs and events for operators.
// Only drainer.go, stopping.go and watch.go depend on all parts.
package workers
