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
	// the set of the file that it is in, or was until it left the file; empty: it is in none
	Set string
}

// Entries is all policies by name.
type Entries map[string]Entry

// Where a policy's content came from.
const (
	SourceAPI  = "api"  // a program, or an operator through the API
	SourceFile = "file" // a configuration file
)
