// Package handle defines the names with which the core, its valves and their shell refer to the
// core's state: comparable values, so that events and actions can be written down, and the state
// itself stays private.
package handle

import (
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Partition names a partition for one period of ownership by this core. If it is given up and
// retaken, the new name keeps pending messages of the first period apart. (The epoch does not
// serve, since it changes whenever the backlog is reopened while jobs continue.)
type Partition struct {
	Policy string
	Number int
	Tenure uint64 // counted by the core
}

// Ref names a stored job of a partition. It includes the time of storage, since in a stream
// restored from a backup another job may have the sequence.
type Ref struct {
	Part  Partition
	Seq   uint64
	Key   job.Key // its bucket
	Stamp int64   // Unix ns
}

// AttemptKey returns the key of the job's attempt record.
func (r Ref) AttemptKey() string {
	return record.AttemptKey(r.Part.Policy, r.Part.Number, r.Seq)
}
