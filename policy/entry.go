package policy

import "time"

// Entry is a policy as all processes share it.
type Entry struct {
	Policy   Policy    // with its defaults
	Revision uint64    // of the record; a higher one is newer
	Stored   time.Time // when JetStream stored the record
	Retired  bool      // it takes no new jobs and ends when its queue is empty
	Deleting bool      // it is retired, and its record goes with its stream
	Paused   bool      // its jobs wait until an operator resumes it
	Source   string    // SourceAPI or SourceFile: who wrote the content
	// SourceAPI or SourceFile: who wrote the target. It is the file's until another target is
	// written, and decides where the target may be and whether it may use files of the drainer.
	TargetSource string
	// the set of the file that it is in, or was until it left the file; empty: it is in none
	Set string
	// what it became last, since it was made; nil: what it was made, or not known
	Last *LastChange
}

// LastChange is the last change of a policy's content, by whoever wrote it.
type LastChange struct {
	At      time.Time `json:"at"`      // by the clock of the process that wrote it
	Changed Changes   `json:"changed"` // at most [MaxTold] fields
}

// MaxTold is how many fields a [LastChange] tells of.
const MaxTold = 10

// Next returns the last change of a policy that becomes another, which is the one before if that
// changes nothing.
func (c *LastChange) Next(before, after Policy, at time.Time) *LastChange {
	changed := Diff(before, after)
	if len(changed) == 0 {
		return c
	}
	return &LastChange{At: at.UTC().Truncate(time.Millisecond),
		Changed: changed[:min(len(changed), MaxTold)]}
}

// Entries is all policies by name.
type Entries map[string]Entry

// Where a policy's content came from.
const (
	SourceAPI  = "api"  // a program, or an operator through the API
	SourceFile = "file" // a configuration file
)
