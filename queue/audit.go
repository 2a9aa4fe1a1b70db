package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// These bounds keep the audit list below about 100 MB. mostOfPolicy applies to a policy's own
	// changes and, separately, to changes of its jobs.
	mostChanges       = 50_000
	mostOfPolicy      = 1000
	mostChangedFields = 64
	mostChangedText   = 128
)

type Change struct {
	V int `json:"v,omitempty"`
	// By is the client's name or the file's; empty: no access control.
	By   string `json:"by,omitempty"`
	From string `json:"from,omitempty"`
	What string `json:"what"`
	// Key is nil for changes of a whole policy.
	Policy string  `json:"policy"`
	Key    *string `json:"key,omitempty"`
	Job    string  `json:"job,omitempty"`
	// Changed lists fields with their old and new values.
	Changed []string `json:"changed,omitempty"`
	Details []string `json:"details,omitempty"` // such as "removed 3"

	ID uint64    `json:"id,omitempty"` // in the list; not stored
	At time.Time `json:"at,omitzero"`  // not stored
}

func (b *Broker) Audit(ctx context.Context, c Change) (err error) {
	defer errs.Annotate(&err, "audit list")
	c.V = job.FormatVersion
	changed := c.Changed
	c.Changed = nil
	for i, text := range changed {
		if i == mostChangedFields {
			c.Changed = append(c.Changed, fmt.Sprintf("and %d more", len(changed)-i))
			break
		}
		if runes := []rune(text); len(runes) > mostChangedText {
			text = string(runes[:mostChangedText]) + "…"
		}
		c.Changed = append(c.Changed, text)
	}
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	kind := "policy"
	if c.Job != "" {
		kind = "job"
	}
	return b.record(ctx, b.names.audit(c.Policy, kind), body, b.recordConfig(
		b.names.auditStream(), b.names.audit("*", "*"), "changes by operators",
		jetstream.StreamConfig{MaxMsgs: mostChanges, MaxMsgsPerSubject: mostOfPolicy}))
}

// Changes lists changes of a policy, or of all if policy is empty, like [History.List].
func (b *Broker) Changes(ctx context.Context, policy string, before uint64, limit int) (
	found []Change, next uint64, err error) {

	defer errs.Annotate(&err, "audit list")
	subject := ""
	if policy != "" {
		subject = b.names.audit(policy, "*")
	}
	messages, next, err := b.newest(ctx, b.names.auditStream(), subject, before, limit)
	for _, m := range messages {
		var c Change
		if json.Unmarshal(m.Data, &c) == nil && c.V == job.FormatVersion {
			c.V, c.ID, c.At = 0, m.Seq, m.Time
			found = append(found, c)
		}
	}
	return found, next, err
}
