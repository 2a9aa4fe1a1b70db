// Package handle names the core's state by comparable values: events and actions can be logged, and
// the state stays private.
package handle

import (
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Partition names a partition for one period of ownership, to distinguish its messages from an
// earlier period's. (An epoch changes with each reopening, while jobs continue.)
type Partition struct {
	Policy string
	Number int
	Tenure uint64
}

// Ref names a stored job. In a stream restored from a backup another job may have its sequence.
type Ref struct {
	Part  Partition
	Seq   uint64
	Key   queue.Key
	Stamp int64 // Unix ns
}

func (r Ref) AttemptKey() string {
	return record.AttemptKey(r.Part.Policy, r.Part.Number, r.Seq)
}
