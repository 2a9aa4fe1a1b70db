package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
)

// Act is what a master or an operator does to a policy.
type Act int

const (
	inFile   Act = iota // the file of a set has it
	leftFile            // its file no longer has it
	pruned              // leftFile, with prune
	Write               // by the API or a program
	Pull                // levers, by an operator, also of a file's policy
	Offer               // to the file of a set, by the API
	Release             // to the API; the file's text has no effect until Offer
	Delete              // over the API; it drains, and [Store.Forget] removes it
	drained             // its queue is empty
)

// OwnerError refuses an act of the API on a file's policy.
type OwnerError struct{ Policy, Set string }

// Error names the commands that do what was meant.
func (e *OwnerError) Error() string {
	return fmt.Sprintf("policy %[1]s comes from the file of set %[2]s: change or remove it there; "+
		"in an incident, override its numbers (penstock rate %[1]s RATE --for 1h); to manage it "+
		"over the API from now on, penstock policies release %[1]s", e.Policy, e.Set)
}

// errOfAPI: a file has a policy of the API.
var errOfAPI = errors.New("belongs to the API")

// next is the life of a policy, live → draining → gone, and the table of DESIGN.md: it returns
// the record after an act, nil for a policy that is gone, or why the act is refused. current is nil
// if it is missing, and without a name if it is unreadable. set is the file's.
func next(current *inforce.Entry, name string, a Act, set string) (*inforce.Entry, error) {
	n := inforce.Entry{}
	if current != nil {
		n = *current
	}
	ofFile := n.Source == inforce.SourceFile
	switch {
	case n.Written.Name == "" && a != inFile && a != Write:
		return nil, jet.ErrNotFound
	case a == inFile && ofFile && n.Set != set:
		return nil, policy.Invalid([]policy.Problem{{Field: "name", Reason: fmt.Sprintf(
			"belongs to the file with set: %s, and this file has set: %s: remove it from one of "+
				"them", n.Set, set)}})
	case a == inFile && n.Source == inforce.SourceAPI && n.Set == "" && !n.Draining:
		return nil, errOfAPI
	case ofFile && (a == Write || a == Delete || a == Offer):
		return nil, &OwnerError{name, n.Set}
	case (a == leftFile || a == pruned) && (!ofFile || n.Set != set):
		return current, nil // released meanwhile
	case a == drained && !n.Draining:
		return current, nil // written again meanwhile
	}
	if ofFile {
		n.TargetSource = inforce.SourceFile // also once the API has the policy
	}
	switch a {
	case inFile:
		n.Source, n.Set, n.Draining = inforce.SourceFile, set, false
	case leftFile, pruned:
		n.Source, n.Draining = inforce.SourceAPI, a == pruned
	case Write:
		n.Source, n.Set, n.Draining = inforce.SourceAPI, "", false
	case Offer:
		n.Set = set
	case Release:
		n.Source, n.Set = inforce.SourceAPI, ""
	case Delete:
		n.Draining = true
	case drained:
		return nil, nil
	}
	return &n, nil
}

// Forget removes a draining policy once its queue is empty: the stream, the overrides, the history
// and the record, in this order. Dead letters stay. Call it until it reports that the policy is
// gone, also after a crash between its steps. It keeps a policy that was written again.
func (s *Store) Forget(ctx context.Context, name string) (gone bool, err error) {
	defer errs.Annotate(&err, "forget policy %s", name)
	r, err := s.table.Read(ctx, name)
	if err != nil {
		if errors.Is(err, jet.ErrNotFound) {
			return true, nil
		}
		return false, err
	}
	current, err := replaceable(r)
	if err != nil {
		return false, err
	}
	if left, err := next(current, name, drained, ""); left != nil || err != nil {
		return false, err
	}
	if gone, err := s.broker.Retire(ctx, name); !gone {
		return false, err
	}
	for _, step := range []func() error{
		func() error { return s.table.DeleteAll(ctx, name+".>") },
		func() error { return s.broker.Letters(name).DropEmpty(ctx) },
		func() error { return s.broker.History(name).Drop(ctx) },
		func() error { return s.table.Delete(ctx, name, r.Revision) },
	} {
		if err := step(); err != nil {
			if errors.Is(err, jet.ErrConflict) {
				err = nil
			}
			return false, err
		}
	}
	return true, nil
}

// Inventory is the state of all records of policies.
type Inventory struct {
	OK, Draining int
	// by policy
	Unreadable map[string]error
	// streams without a record, whose jobs never start
	Orphaned map[string]jet.Stream
}

// Inventory compares records and streams. It deletes the records of deleted policies' partitions,
// unless they changed within age, because former owners still write.
func (s *Store) Inventory(ctx context.Context, age time.Duration) (found Inventory, err error) {
	defer errs.Annotate(&err, "look at what is stored of policies")
	found = Inventory{Unreadable: map[string]error{}, Orphaned: map[string]jet.Stream{}}
	// Streams are read first, because a record is older than its stream.
	streams, err := s.broker.Streams(ctx)
	if err != nil {
		return found, err
	}
	records, err := s.table.List(ctx, "*")
	if err != nil {
		return found, err
	}
	known := map[string]bool{}
	for _, r := range records {
		known[r.Key] = true
		switch entry, err := read(r); {
		case err != nil:
			found.Unreadable[r.Key] = err
		case entry.Draining:
			found.Draining++
		default:
			found.OK++
		}
	}
	for _, name := range streams {
		if known[name] {
			continue
		}
		stream, err := s.broker.Stream(ctx, name)
		switch {
		case err == nil:
			found.Orphaned[name], known[name] = stream, true
		case !errors.Is(err, jet.ErrNoStream):
			return found, err
		}
	}
	return found, s.sweep(ctx, known, time.Now().Add(-age))
}

func (s *Store) sweep(ctx context.Context, known map[string]bool, before time.Time) error {
	table := s.broker.Tables().Partitions
	keys, err := table.Keys(ctx, ">")
	if err != nil {
		return err
	}
	left, err := table.Records(ctx, slices.DeleteFunc(keys, func(key string) bool {
		name, rest, _ := strings.Cut(key, ".")
		number, _, _ := strings.Cut(rest, ".")
		_, err := strconv.Atoi(number)
		// others are of a shared limit, or damaged
		return err != nil || !policy.IsName(name) || known[name]
	}))
	for _, r := range left {
		if err == nil && r.Stored.Before(before) {
			err = table.Delete(ctx, r.Key, r.Revision)
		}
		if errors.Is(err, jet.ErrConflict) {
			err = nil
		}
	}
	return err
}
