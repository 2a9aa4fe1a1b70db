package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/notice"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
)

const (
	// while jobs wait in absent policies
	pruneAgain     = 10 * time.Second
	inventoryAgain = 10 * time.Second
	inventoryFirst = time.Second
	// delay before a deleted policy's partition records are swept
	leftFor    = 10 * time.Minute
	sweepAgain = 10 * time.Minute
	never      = 1 << 62 * time.Nanosecond
)

var (
	unpruned = notice.Kind{Level: slog.LevelWarn, Of: "policy", Begin: "policy missing from " +
		"the file not retired yet: jobs are waiting"}
	unreadable = notice.Kind{Level: slog.LevelError, Of: "policy",
		Begin: "policy record unreadable, so its jobs do not start: write the policy " +
			"again, or run the version that wrote it",
		End: "policy record readable again"}
	orphaned = notice.Kind{Level: slog.LevelError, Of: "policy",
		Begin: "policy record missing but its stream exists, so its jobs do not start: " +
			"write the policy again, or delete the stream",
		End: unreadable.End}
)

type policyWriter struct {
	*Node
	written chan struct{}

	mu    sync.Mutex
	wants Wanted
	last  []store.FileChange
	// for the audit list
	unlisted []api.AuditEntry
}

func (f *policyWriter) write(ctx context.Context, w Wanted) error {
	result, err := f.Store.PutFile(ctx, store.File{Set: w.Set, Policies: w.Policies})
	if err != nil {
		return err
	}
	f.logResult(result, w)
	f.mu.Lock()
	for _, c := range result.Written {
		changed := policy.Fields(c.After)
		if c.Before != nil {
			changed = policy.Diff(*c.Before, c.After)
		}
		f.unlisted = append(f.unlisted, api.AuditEntry{By: "file of set " + w.Set,
			What: "policy written by the file", Policy: c.After.Name, Changed: changed})
	}
	f.wants, f.last = w, result.Written
	f.mu.Unlock()
	wake(f.written)
	return nil
}

func (f *policyWriter) followed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	f.mu.Lock()
	written := f.last
	f.mu.Unlock()
	if len(written) > 0 {
		last := slices.MaxFunc(written, func(a, b store.FileChange) int {
			return cmp.Compare(a.Revision, b.Revision)
		})
		f.known.wait(ctx, last.After.Name, last.Revision)
	}
}

func (f *policyWriter) notes() (notes []string) {
	open := map[string]string{}
	maps.Copy(open, f.notices.Open(&unreadable))
	maps.Copy(open, f.notices.Open(&orphaned))
	for _, name := range slices.Sorted(maps.Keys(open)) {
		notes = append(notes, fmt.Sprintf("no job of %s starts: %s", name, open[name]))
	}
	return notes
}

func (f *policyWriter) logResult(result store.FileResult, w Wanted) {
	for _, change := range result.Written {
		log := f.Log.With("policy", change.After.Name, "set", w.Set, "revision", change.Revision)
		switch {
		case change.Revived:
			log.Warn("retired policy is in the file again: it accepts new jobs")
		case change.Before == nil:
			log.Info("policy written by the file", "new", true)
		default:
			log.Info("policy written by the file", "changed",
				policy.Diff(*change.Before, change.After))
		}
	}
	for _, name := range result.Absent {
		if !w.Prune {
			f.Log.Warn("policy no longer in the file: it stays until prune: true or "+
				"DELETE /v1/policies/"+name+" retires it", "policy", name, "set", w.Set)
		}
	}
	for _, name := range result.Deleted {
		f.Log.Warn("policy of the file was deleted through the API: it stays deleted until its "+
			"text in the file changes", "policy", name, "set", w.Set)
	}
	for _, err := range result.Differing {
		f.Log.Warn("shared limit differs between files: the one "+
			"stored last applies to all its policies", "set", w.Set, "error", err)
	}
	for _, err := range result.Unreadable {
		f.Log.Warn("policy not in the file has an unreadable record: it stays",
			"error", err)
	}
}

func (f *policyWriter) list(ctx context.Context, c api.AuditEntry) {
	if err := f.Broker.Audit(ctx, c); err != nil && ctx.Err() == nil {
		f.Log.Error("change missing from the audit list", "change", c.What, "policy", c.Policy,
			"error", err)
	}
}

func (f *policyWriter) pruned(ctx context.Context) (time.Duration, error) {
	f.mu.Lock()
	set, asked, unlisted := f.wants.Set, f.wants.Prune, f.unlisted
	f.unlisted = nil
	f.mu.Unlock()
	for _, c := range unlisted {
		f.list(ctx, c)
	}
	if !asked {
		return never, nil
	}
	retired, waiting, err := f.Store.RetireAbsent(ctx, set)
	for _, name := range retired {
		f.Sink.Take(queue.Event{Type: queue.EventRetired, Policy: name})
		f.list(ctx, api.AuditEntry{By: "file of set " + set, What: "policy retired", Policy: name})
		f.Log.Warn("policy retired: it is no longer in the file, and prune is set; its "+
			"dead letters stay", "policy", name, "set", set)
	}
	for name, jobs := range waiting {
		f.notices.Tell(&unpruned, name, "waits", "set", set, "jobs", jobs, "again", pruneAgain)
	}
	if err != nil && ctx.Err() == nil {
		f.Log.Warn("policies no longer in the file could not be retired: retrying",
			"set", set, "again", pruneAgain, "error", err)
	}
	if err == nil {
		f.notices.Only(&unpruned, func(name string) bool { return waiting[name] > 0 })
		if len(waiting) == 0 {
			return never, nil
		}
	}
	return pruneAgain, nil
}

func (f *policyWriter) look(ctx context.Context) (time.Duration, error) {
	known := f.known.policies()
	if known == nil {
		return inventoryFirst, nil
	}
	began := time.Now()
	found, err := f.Store.Inventory(ctx, known)
	if err != nil {
		f.Log.Debug("stored policies not listed", "error", err)
		return inventoryAgain, nil
	}
	f.Sink.Take(queue.Event{Type: queue.EventInventory, Data: found})
	for name, err := range found.Unreadable {
		f.notices.Tell(&unreadable, name, err.Error(), "error", err)
	}
	for name, orphan := range found.Orphaned {
		f.notices.Tell(&orphaned, name, "no record", "stream", orphan.Name, "jobs", orphan.Jobs,
			"partitions", orphan.Partitions)
	}
	f.notices.Only(&unreadable, has(found.Unreadable))
	f.notices.Only(&orphaned, has(found.Orphaned))
	return max(inventoryAgain, restAfter(time.Since(began), len(known))), nil
}

func (f *policyWriter) sweep(ctx context.Context) (time.Duration, error) {
	if err := f.Store.Sweep(ctx, leftFor); err != nil {
		f.Log.Debug("records of deleted policies may be left", "error", err)
	}
	return sweepAgain, nil
}

func has[V any](m map[string]V) func(string) bool {
	return func(key string) bool { _, found := m[key]; return found }
}
