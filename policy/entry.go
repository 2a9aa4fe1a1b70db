package policy

import (
	"slices"
	"time"
)

type Entry struct {
	Policy   Policy // with defaults
	Revision uint64 // of the record
	Stored   time.Time
	Retired  bool   // takes no new jobs
	Deleting bool   // retired, and removed with its stream
	Paused   bool   // by an operator
	Source   string // SourceAPI or SourceFile
	// of the target: decides where the target may be, and whether it may use the drainer's files
	TargetSource string
	// of the last file with the policy; may be empty
	Set string
	// nil: unchanged or unknown
	Last *LastChange
}

// HasQueue reports whether the policy has a queue; false for nil.
func (e *Entry) HasQueue() bool { return e != nil && e.Policy.HasQueue() }

type LastChange struct {
	At      time.Time `json:"at"`      // by the writer's clock
	Changed Changes   `json:"changed"` // at most [MaxTold] fields
}

const MaxTold = 10

// Next returns the last change once a policy becomes another, or c if they are equal.
func (c *LastChange) Next(before, after Policy, at time.Time) *LastChange {
	changed := Diff(before, after)
	if len(changed) == 0 {
		return c
	}
	return &LastChange{At: at.UTC().Truncate(time.Millisecond),
		Changed: changed[:min(len(changed), MaxTold)]}
}

// Entries holds policies by name. A set that was passed on does not change, and the next one shares
// pointers of unchanged policies.
type Entries map[string]*Entry

// Changed returns the names, sorted, whose values differ, or that are in only one of the two.
func Changed[V any](before, after map[string]*V) (names []string) {
	for name, v := range after {
		if before[name] != v {
			names = append(names, name)
		}
	}
	for name := range before {
		if after[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

const (
	SourceAPI  = "api"
	SourceFile = "file"
)
