// Package workers starts the jobs of Penstock's queues at their policies' rates and runs them.
//
// A [Drainer] owns some partitions of some policies at any time. It pulls what they hold into
// memory, keeps a clock for each bucket, starts the head of a bucket when its clock says so, and
// acknowledges a job when it is finished. Any number of drainers share the work: a lease makes one
// writer, and the writer's clock is the rate.
//
//	d, err := workers.New(nc, workers.Options{})
//	d.Handle("stripe", func(ctx context.Context, job workers.Job) error { … })
//	err = d.Run(ctx)
//
// Inside there is a pure core, workers/internal/core, which decides everything, and this package is
// the loop around it. loop.go is what every part stands on, and drainer.go the loop itself, with
// its priorities. watch.go tells it of the world; perform.go names the parts that carry out what
// the core wants: backlogs.go, pool.go (the workers here), remote.go (workers elsewhere),
// records.go, journal.go (what is stored of single jobs), bury.go and questions.go. lender.go runs
// jobs of other drainers' valves; protocol.go is what the two sides say to each other
// (docs/workers-protocol.md). tell.go and notices.go are what operators read. Only drainer.go,
// stopping.go, watch.go and lendonly.go know the whole.
package workers
