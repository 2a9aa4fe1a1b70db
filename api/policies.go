package api

import "time"

// PolicyState is a policy's document without its content.
type PolicyState struct {
	Revision uint64 `json:"revision"` // increases with every change
	Source   string `json:"source"`   // its one master, which alone writes it
	// set of its configuration file; of a policy of the API: the file that may take it
	Set string `json:"set,omitempty"`
	// `draining`: it accepts no new jobs, and is gone once its queue is empty
	State      string      `json:"state"`
	Paused     bool        `json:"paused"`
	Overridden []string    `json:"overridden,omitempty"`  // the overrides in words
	Last       *LastChange `json:"last_change,omitempty"` // the last change of its content, if any
	// that it is overridden, or was changed within a day: a sentence whose subject is the policy
	News string `json:"news,omitempty"`
	Written
}

// LastChange is the last change of a policy's content.
type LastChange struct {
	At      time.Time `json:"at"`      // by the writer's clock
	Changed []string  `json:"changed"` // changed fields with their old and new values
}

// Written is what a change of a policy, or of a key's limits, did.
type Written struct {
	// changed fields with their old and new values
	Changed []string `json:"changed,omitempty"`
	DryRun  bool     `json:"dry_run,omitempty"` // nothing was written
	*Resumed
}

// Resumed is what resuming a policy or bucket did.
type Resumed struct {
	// pauses asked for by the target that the request ended
	Ended int `json:"cooldowns_ended,omitempty"`
	// open breakers whose next probe the request started
	Probes int `json:"probes,omitempty"`
	// partitions whose drainer did not answer
	Unanswered []int `json:"unanswered,omitempty"`
}

// Deleted is the result of deleting a policy.
type Deleted struct {
	Policy  string `json:"policy"`
	Deleted bool   `json:"deleted"`
	Removed int    `json:"removed"`        // dropped waiting jobs
	Jobs    uint64 `json:"jobs,omitempty"` // remaining jobs
}

// AuditEntry is a change by an operator or a file.
type AuditEntry struct {
	ID uint64    `json:"id,omitempty"`
	At time.Time `json:"at,omitzero"`
	// the client's name, or the file; missing without access control
	By   string `json:"by,omitempty"`
	From string `json:"from,omitempty"` // the client's address, possibly a proxy's
	What string `json:"what"`           // for people
	// missing key: the whole policy
	Policy  string   `json:"policy"`
	Key     *string  `json:"key,omitempty"`
	Job     string   `json:"job,omitempty"`     // the job's id, if one job was changed
	Changed []string `json:"changed,omitempty"` // fields with their old and new values
	Details []string `json:"details,omitempty"` // further information, such as "removed 3"
}

// AuditList is a page of changes.
type AuditList struct {
	Changes []AuditEntry `json:"changes"`
	Next    *uint64      `json:"next,omitempty"` // the next page's `before`; missing on the last page
}

// Schedule makes jobs at its times.
type Schedule struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	Name   string `json:"name"`
	When   string `json:"when"`           // cron patterns have six fields, starting with seconds
	Zone   string `json:"zone,omitempty"` // the cron pattern's time zone; UTC if missing
	Paused bool   `json:"paused"`
	Bytes  int    `json:"bytes"` // size of its jobs' body
	// the set of its configuration file; missing if it is not from a file
	Set string `json:"set,omitempty"`
	// its next time; missing if it is paused, if no time comes, or if only the server knows
	NextAt time.Time `json:"next_at,omitzero"`
	// its last run, at one of its times or by hand; missing if none is known, as from 14 days after
	// the next time on, and in answers to changes
	Last *ScheduleRun `json:"last,omitempty"`
}

// ScheduleRun is a run of a schedule.
type ScheduleRun struct {
	At time.Time `json:"at"`
	// the state of the job, or how it ended; `missed`: the run made no job
	Outcome string `json:"outcome"`
	Job     string `json:"job,omitempty"`    // the job of the run; missing if it was missed
	Reason  string `json:"reason,omitempty"` // why the run was missed
}

// Schedules is a list of schedules.
type Schedules struct {
	Schedules []Schedule `json:"schedules"`
	Total     int        `json:"total"` // counts all, also those beyond `limit`
}

// ScheduleDetail is a schedule with its jobs' headers and body.
type ScheduleDetail struct {
	Schedule
	Header map[string][]string `json:"header"`           // headers of its jobs
	Body   *string             `json:"body,omitempty"`   // body of its jobs, if it is text
	Base64 []byte              `json:"base64,omitempty"` // body of its jobs if it is not text
}
