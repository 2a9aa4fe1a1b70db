// Package workers starts the jobs of Penstock's queues at their policies' rates and runs them.
//
// A [Drainer] owns some partitions of some policies at any time. It pulls what they hold into memory, keeps a clock for
// each bucket, starts the head of a bucket when its clock says so, and acknowledges a job when it is finished. Any number
// of drainers share the work: a lease makes one writer, and the writer's clock is the rate.
//
//	d, err := workers.New(nc, workers.Options{})
//	d.Handle("stripe", func(ctx context.Context, job workers.Job) error { … })
//	err = d.Run(ctx)
//
// Inside there is a pure core and a thin loop around it. The core is told what happened and when (a job arrived, a run
// ended, a record changed, time passed) and answers with what is to be done; it does no I/O and reads no clock, so that
// simulation_test.go can run years of traffic, crashes and takeovers in virtual time. Its parts:
//
//   - clock.go: when one bucket may start its next job;
//   - valve.go, bucket.go: the buckets, jobs and workers of one policy;
//   - claims.go: when a valve asks for workers in other processes, and which of them gets a job;
//   - lease.go, ownership.go: who is alive, and who owns which partition;
//   - checkpoint.go, record.go: what one owner tells the next;
//   - core.go: these together.
//
// drainer.go is the loop, perform.go its I/O, pool.go the workers, ask.go the answers to admitters. protocol.go
// is what valves and workers of different processes say to each other (docs/workers-protocol.md), remote.go the valve's side
// of it, lend.go the worker's.
package workers
