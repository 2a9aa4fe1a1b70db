package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/base/errs"
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

// change is a stored entry of the audit list, whose ID and time are the message's.
type change struct {
	V int `json:"v"`
	api.AuditEntry
}

// Audit adds an entry to the audit list.
func (b *Broker) Audit(ctx context.Context, c api.AuditEntry) (err error) {
	defer errs.Annotate(&err, "audit list")
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
	body, err := json.Marshal(change{job.FormatVersion, c})
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
	found []api.AuditEntry, next uint64, err error) {

	defer errs.Annotate(&err, "audit list")
	subject := ""
	if policy != "" {
		subject = b.names.audit(policy, "*")
	}
	messages, next, err := b.newest(ctx, b.names.auditStream(), subject, before, limit)
	for _, m := range messages {
		var c change
		if json.Unmarshal(m.Data, &c) == nil && c.V == job.FormatVersion {
			c.ID, c.At = m.Seq, m.Time
			found = append(found, c.AuditEntry)
		}
	}
	return found, next, err
}
