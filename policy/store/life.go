package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// act is what a master or an operator does to a policy.
type act int

const (
	inFile    act = iota // the file of a set has it
	leftFile             // its file no longer has it
	pruned               // leftFile, with prune
	written              // by the API or a program
	levered              // by an operator, also of a file's policy
	offered              // to the file of a set, by the API
	released             // to the API
	condemned            // deleted over the API
	drained              // its queue is empty
)

// OwnerError refuses an act of the API on a file's policy.
type OwnerError struct{ Policy, Set string }

func (e *OwnerError) Error() string {
	return fmt.Sprintf("policy %[1]s comes from the file of set %[2]s: change or remove it there; "+
		"in an incident, override its numbers (penstock rate %[1]s RATE --for 1h); to manage it "+
		"over the API from now on, penstock policies release %[1]s", e.Policy, e.Set)
}

// errOfAPI: a file has a policy of the API.
var errOfAPI = errors.New("belongs to the API")

// next is the life of a policy, live → draining → gone, and the table of DESIGN.md: it returns
// the record after an act, nil for a policy that is gone, or why the act is refused. set is the
// file's.
func (r *record) next(name string, a act, set string) (*record, error) {
	n := record{}
	if r != nil {
		n = *r
	}
	ofFile := n.Source == policy.SourceFile
	switch {
	case n.Source == "" && a != inFile && a != written: // missing or unreadable
		return nil, queue.ErrNotFound
	case a == inFile && ofFile && n.Set != set:
		return nil, policy.Invalid([]policy.Problem{{Field: "name", Reason: fmt.Sprintf(
			"belongs to the file with set: %s, and this file has set: %s: remove it from one of "+
				"them", n.Set, set)}})
	case a == inFile && n.Source == policy.SourceAPI && n.Set == "" && !n.Draining:
		return nil, errOfAPI
	case ofFile && (a == written || a == condemned || a == offered):
		return nil, &OwnerError{name, n.Set}
	case (a == leftFile || a == pruned) && (!ofFile || n.Set != set):
		return r, nil // released meanwhile
	case a == drained && !n.Draining:
		return r, nil // written again meanwhile
	}
	if ofFile {
		n.TargetSource = policy.SourceFile // also once the API has the policy
	}
	switch a {
	case inFile:
		n.Source, n.Set, n.Draining = policy.SourceFile, set, false
	case leftFile, pruned:
		n.Source, n.Draining = policy.SourceAPI, a == pruned
	case written:
		n.Source, n.Set, n.Draining = policy.SourceAPI, "", false
	case offered:
		n.Set = set
	case released:
		n.Source, n.Set = policy.SourceAPI, ""
	case condemned:
		n.Draining = true
	case drained:
		return nil, nil
	}
	return &n, nil
}

// pass writes what an act makes of a policy that no one else changes meanwhile; see record.next.
func (s *Store) pass(ctx context.Context, name string, a act, set string) (revision uint64,
	err error) {
	if !policy.IsName(name) {
		return 0, queue.ErrNotFound
	}
	return s.change(ctx, name, func(current *record) (*record, error) {
		return current.next(name, a, set)
	})
}

// Offer lets the file of a set take a policy of the API, as soon as that file has it.
func (s *Store) Offer(ctx context.Context, name, set string) (uint64, error) {
	if err := policy.CheckSet(set); err != nil {
		return 0, policy.Invalid([]policy.Problem{{Field: "set", Reason: err.Error()}})
	}
	revision, err := s.pass(ctx, name, offered, set)
	return revision, wrap(err, "offer policy %s to set %s", name, set)
}

// Release makes a policy the API's. Its file's text has no effect until [Store.Offer].
func (s *Store) Release(ctx context.Context, name string) (uint64, error) {
	revision, err := s.pass(ctx, name, released, "")
	return revision, wrap(err, "release policy %s", name)
}

func wrap(err error, format string, args ...any) error {
	errs.Annotate(&err, format, args...)
	return err
}

// Delete begins the end of a policy of the API: it drains, and [Store.Forget] removes it. If the
// closed queue holds jobs, it is opened again and the error is a [*queue.PolicyInUseError], unless
// even permits dropping them. may, unless nil, can reject the current policy. Further errors:
// [queue.ErrNotFound], [*OwnerError].
func (s *Store) Delete(ctx context.Context, name string, even bool,
	may func(policy.Entry) error) (err error) {
	defer errs.Annotate(&err, "delete policy %s", name)
	for {
		entry, err := s.Policy(ctx, name)
		if err == nil && may != nil {
			err = may(entry)
		}
		if err == nil && !entry.Draining {
			err = s.condemn(ctx, entry, even)
		}
		if errors.Is(err, queue.ErrConflict) && ctx.Err() == nil {
			continue
		}
		return err
	}
}

func (s *Store) condemn(ctx context.Context, entry policy.Entry, even bool) error {
	name := entry.Policy.Name
	mark := func(ctx context.Context) error {
		_, err := s.change(ctx, name, func(current *record) (*record, error) {
			if current.at() != entry.Revision {
				return nil, queue.ErrConflict
			}
			return current.next(name, condemned, "")
		})
		return err
	}
	if entry.Source == policy.SourceFile || !entry.Policy.HasQueue() {
		return mark(ctx)
	}
	return s.broker.CloseQueue(ctx, name, even, mark)
}

// Forget removes a draining policy once its queue is empty: the stream, the overrides, the history
// and the record, in this order. Dead letters stay. Call it until it reports that the policy is
// gone, also after a crash between its steps. It keeps a policy that was written again.
func (s *Store) Forget(ctx context.Context, name string) (gone bool, err error) {
	defer errs.Annotate(&err, "forget policy %s", name)
	current, err := s.stored(ctx, name)
	if err != nil || current == nil {
		return err == nil, err
	}
	if left, err := current.next(name, drained, ""); left != nil || err != nil {
		return false, err
	}
	if gone, err := s.broker.Retire(ctx, name); !gone {
		return false, err
	}
	for _, step := range []func() error{
		func() error { return s.table.DeleteAll(ctx, name+".>") },
		func() error { return s.broker.Letters(name).DropEmpty(ctx) },
		func() error { return s.broker.History(name).Drop(ctx) },
		func() error { return s.table.Delete(ctx, name, current.revision) },
	} {
		if err := step(); err != nil {
			if errors.Is(err, queue.ErrConflict) {
				err = nil
			}
			return false, err
		}
	}
	return true, nil
}
