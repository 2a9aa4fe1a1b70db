package penstock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
)

const (
	// pruneAgain is the interval of pruning while jobs wait in policies that left the file.
	pruneAgain = 10 * time.Second
	// inventoryAgain is the interval of checks for unreadable records and streams without a
	// policy.
	inventoryAgain = 10 * time.Second
	inventoryFirst = time.Second
)

// policyWriter writes the policies of the options for all processes, retires policies that left
// the options if Prune is set, and logs problems of stored policies.
type policyWriter struct {
	store    *store.Store
	known    *known
	observer Observer
	log      *slog.Logger

	written chan struct{}

	mu       sync.Mutex
	set      string
	prune    bool
	last     []store.FileChange // last write
	problems []string           // of stored policies, in plain text

	// problems already logged, used by run only
	logged map[string]string
}

func newPolicyWriter(
	store *store.Store, known *known, observer Observer, log *slog.Logger,
) *policyWriter {
	return &policyWriter{store: store, known: known, observer: observer, log: log,
		written: make(chan struct{}, 1), logged: map[string]string{}}
}

func (f *policyWriter) write(ctx context.Context, o Options) error {
	result, err := f.store.PutFile(ctx, store.File{Set: o.Set, Policies: o.Policies})
	if err != nil {
		return err
	}
	f.logResult(result, o)
	f.mu.Lock()
	f.set, f.prune, f.last = o.Set, o.Prune, result.Written
	f.mu.Unlock()
	select {
	case f.written <- struct{}{}:
	default:
	}
	return nil
}

// followed waits until this process follows its own last write.
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

// notes returns the remarks that /readyz adds for a ready process.
func (f *policyWriter) notes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problems
}

func (f *policyWriter) logResult(result store.FileResult, o Options) {
	for _, change := range result.Written {
		log := f.log.With("policy", change.After.Name, "set", o.Set, "revision", change.Revision)
		switch {
		case change.Revived:
			log.Warn("a retired policy is in the file again: it takes new jobs")
		case change.Before == nil:
			log.Info("policy written by the file", "new", true)
		default:
			log.Info("policy written by the file", "changed",
				policy.Diff(*change.Before, change.After))
		}
	}
	for _, name := range result.Absent {
		if !o.Prune {
			f.log.Warn("a policy is not in the file any more: it stays until prune: true or "+
				"DELETE /v1/policies/"+name+" retires it", "policy", name, "set", o.Set)
		}
	}
	for _, name := range result.Deleted {
		f.log.Warn("a policy of the file was deleted through the API: it stays away until its "+
			"text in the file changes", "policy", name, "set", o.Set)
	}
	for _, err := range result.Differing {
		f.log.Warn("a shared limit of the file is another one in another file: the one that was "+
			"stored last is in force for all that share it", "set", o.Set, "error", err)
	}
	for _, err := range result.Unreadable {
		f.log.Warn("a policy that is not in the file has a record that cannot be read: it stays",
			"error", err)
	}
}

func (f *policyWriter) run(ctx context.Context) error {
	look := time.NewTimer(inventoryFirst)
	defer look.Stop()
	prune := time.NewTimer(pruneAgain)
	defer prune.Stop()
	waiting := map[string]uint64{} // already logged
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			f.look(ctx)
			look.Reset(inventoryAgain)
			continue
		case <-f.written:
			clear(waiting)
		case <-prune.C:
		}
		prune.Stop()
		if f.pruned(ctx, waiting) {
			continue
		}
		prune.Reset(pruneAgain)
	}
}

// pruned retires policies that left the file, and reports whether none is left to retire.
func (f *policyWriter) pruned(ctx context.Context, logged map[string]uint64) bool {
	f.mu.Lock()
	set, asked := f.set, f.prune
	f.mu.Unlock()
	if !asked {
		return true
	}
	retired, waiting, err := f.store.RetireAbsent(ctx, set)
	for _, name := range retired {
		f.observer.Retired(name)
		f.log.Warn("policy retired: it is not in the file any more, and prune is asked for; its "+
			"dead letters stay", "policy", name, "set", set)
	}
	for name, jobs := range waiting {
		if _, before := logged[name]; !before {
			f.log.Warn("a policy that is not in the file any more is not retired while jobs wait "+
				"in it: looking again",
				"policy", name, "set", set, "jobs", jobs, "again", pruneAgain)
		}
		logged[name] = jobs
	}
	if err != nil && ctx.Err() == nil {
		f.log.Warn("policies that are not in the file any more could not be retired: trying again",
			"set", set, "again", pruneAgain, "error", err)
	}
	return err == nil && len(waiting) == 0
}

// look counts the stored policies, and logs each problem once.
func (f *policyWriter) look(ctx context.Context) {
	known := f.known.policies()
	if known == nil {
		return
	}
	found, err := f.store.Inventory(ctx, known)
	if err != nil {
		f.log.Debug("what is stored of policies is not known", "error", err)
		return
	}
	f.observer.Inventory(found)
	now := map[string]string{}
	for name, err := range found.Unreadable {
		now[name] = err.Error()
		if f.logged[name] != now[name] {
			f.log.Error("a policy's record cannot be read, so nobody starts its jobs: write the "+
				"policy again, or use the version that wrote it", "policy", name, "error", err)
		}
	}
	for name, orphan := range found.Orphaned {
		now[name] = "no record"
		if f.logged[name] != now[name] {
			f.log.Error("a policy's record is gone and its stream is not, so nobody starts its "+
				"jobs: write the policy again, or delete the stream", "policy", name,
				"stream", orphan.Name, "jobs", orphan.Jobs, "partitions", orphan.Partitions)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.logged)) {
		if _, still := now[name]; !still {
			f.log.Info("what is stored of the policy is in order again", "policy", name)
		}
	}
	f.logged = now
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		problems = append(problems, fmt.Sprintf("no job of %s starts: %s", name, now[name]))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems = problems
}
