// Package handle is what the core, its valves and their shell call what the core keeps: comparable
// values, so that events and actions can be written down, and nothing of the core's state can be
// reached from outside.
package handle

import (
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Partition names a partition for as long as this core has it: one that it gives up and takes again
// is another, of which nothing that is still under way for the first tells anything. (Its epoch
// would not do: it changes whenever the backlog is opened anew, while the jobs go on.)
type Partition struct {
	Policy string
	Number int
	Tenure uint64 // counted by the core
}

// Ref names a stored job of a partition. When it was stored is part of the name, for in a stream
// that was restored from a backup another job may have its sequence.
type Ref struct {
	Part  Partition
	Seq   uint64
	Key   job.Key // its bucket
	Stamp int64   // Unix ns
}

// AttemptKey is where the attempts of a job are recorded.
func (r Ref) AttemptKey() string {
	return record.AttemptKey(r.Part.Policy, r.Part.Number, r.Seq)
}
