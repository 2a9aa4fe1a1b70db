package main

import (
	"context"
	"sync"

	"github.com/penstock-mq/penstock/queue"
)

// followed is which revisions of the policies this process obeys, for those who wait to see their own change.
type followed struct {
	mu        sync.Mutex
	revisions map[string]uint64
	changed   chan struct{} // closed at the next change; nil while nobody waits
}

// set takes over what is obeyed from now on.
func (f *followed) set(set queue.PolicySet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revisions = make(map[string]uint64, len(set))
	for name, entry := range set {
		f.revisions[name] = entry.Revision
	}
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// wait returns when a policy is obeyed in at least this revision, 0 for not at all any more, or when the context ends.
func (f *followed) wait(ctx context.Context, policy string, revision uint64) {
	for {
		f.mu.Lock()
		if now := f.revisions[policy]; now >= revision && (now == 0) == (revision == 0) {
			f.mu.Unlock()
			return
		}
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
