package policy

import "time"

// Entry is a stored policy with its metadata.
type Entry struct {
	Policy   Policy    // with defaults
	Revision uint64    // of the record; higher is newer
	Stored   time.Time // storage time of the record
	Retired  bool      // takes no new jobs, and ends when its queue is empty
	Deleting bool      // retired, and its record goes with its stream
	Paused   bool      // by an operator
	Source   string    // of the content: SourceAPI or SourceFile
	// of the target: it determines where the target may be, and whether it may use the drainer's
	// files
	TargetSource string
	// set of the last file with the policy; empty: none
	Set string
	// nil: unchanged since its creation, or unknown
	Last *LastChange
}

// LastChange is the last change of a policy's content.
type LastChange struct {
	At      time.Time `json:"at"`      // by the writer's clock
	Changed Changes   `json:"changed"` // at most [MaxTold] fields
}

// MaxTold is the number of fields in a [LastChange].
const MaxTold = 10

// Next returns the last change after a policy becomes another; c if they are equal.
func (c *LastChange) Next(before, after Policy, at time.Time) *LastChange {
	changed := Diff(before, after)
	if len(changed) == 0 {
		return c
	}
	return &LastChange{At: at.UTC().Truncate(time.Millisecond),
		Changed: changed[:min(len(changed), MaxTold)]}
}

// Entries holds all policies by name.
type Entries map[string]Entry

// Sources of a policy's content.
const (
	SourceAPI  = "api"  // the API, or a program
	SourceFile = "file" // a configuration file
)
