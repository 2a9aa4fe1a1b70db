// Package inforce has policies as they apply in an installation: who wrote them, what operators
// have overridden, and what a change changes. It does no I/O.
package inforce

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
)

// Entry is a policy's record. Its master, which writes it, is a file or the API; operators' levers
// change it for a while.
type Entry struct {
	V       int           `json:"v"`
	Written policy.Policy `json:"policy"` // by its master, with defaults; without a name: unreadable
	Source  string        `json:"source"` // the master: SourceAPI or SourceFile
	// of the file. A file of any set may take a policy of the API that has one: it has left that
	// set, or was offered to it.
	Set string `json:"set,omitempty"`
	// of the target: decides where the target may be, and whether it may use the drainer's files
	TargetSource string `json:"target_source"`
	// Draining: takes no new jobs, and is gone once its queue is empty.
	Draining bool            `json:"draining,omitempty"`
	Levers   Levers          `json:"levers,omitempty"`
	Last     *api.LastChange `json:"last_change,omitempty"` // as written; nil: unchanged or unknown

	Policy   policy.Policy `json:"-"` // in force: as written, with the levers and defaults
	Paused   bool          `json:"-"` // by a lever
	Revision uint64        `json:"-"` // of the record
	Stored   time.Time     `json:"-"`
}

// InForce sets what results from the policy as written and its levers. Levers that cannot apply to
// it, because its file has changed, wait until they can.
func (e *Entry) InForce() {
	o := e.Levers.Override()
	e.Policy, e.Paused = e.Written, o.Paused
	if len(e.Levers) > 0 && len(o.ApplyAll(e.Written).Validate()) == 0 {
		e.Policy = o.ApplyAll(e.Written)
	}
}

// Difference lists what differs in force.
func (e *Entry) Difference(after Entry) Changes {
	changed := Diff(e.Policy, after.Policy)
	if e.Paused != after.Paused {
		changed = append(changed, fmt.Sprintf("paused %t → %t", e.Paused, after.Paused))
	}
	return changed
}

// Overridden tells what the levers change; see [Lever.Text].
func (e *Entry) Overridden(now time.Time) (texts []string) {
	for _, l := range e.Levers {
		texts = append(texts, l.Text(*e, now))
	}
	return texts
}

// HasQueue reports whether the policy has a queue; false for nil.
func (e *Entry) HasQueue() bool { return e != nil && e.Policy.HasQueue() }

// maxTold bounds the fields of [Entry.Last].
const maxTold = 10

// LastChange returns [Entry.Last] once the policy as written becomes another.
func (e *Entry) LastChange(after policy.Policy, at time.Time) *api.LastChange {
	changed := Diff(e.Written, after)
	if len(changed) == 0 {
		return e.Last
	}
	return &api.LastChange{At: at.UTC().Truncate(time.Millisecond),
		Changed: changed[:min(len(changed), maxTold)]}
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

// Sources of a policy.
const (
	SourceAPI  = "api"
	SourceFile = "file"
)

// States of a policy; one that is gone is not found.
const (
	StateLive     = "live"
	StateDraining = "draining"
)
