// Package store keeps policies and overrides in KV tables, which all processes watch, by
// compare-and-set. A policy has one master, a file or the API; operators' levers are next to what
// the master wrote.
package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/policy"
)

// ErrTooMany is returned at the limit of policies, or of overrides of a policy.
var ErrTooMany = errors.New("too many")

// Store is safe for concurrent use and has no goroutine.
type Store struct {
	broker *jet.Broker
	table  *kv.Table
	log    *slog.Logger

	policies  int
	overrides uint64
}

// New returns the store of an installation; see [jet.Broker.Setup]. log gets unreadable records.
func New(broker *jet.Broker, log *slog.Logger) *Store {
	log = cmp.Or(log, slog.Default())
	return &Store{broker: broker, table: broker.Tables().Policies, log: log,
		policies: MaxPolicies, overrides: MaxOverrides}
}

// MaxPolicies bounds policies, draining ones included.
const MaxPolicies = 10_000

// Change is an act of the API or of an operator.
type Change struct {
	Act Act
	Set string // of Offer
	Dry bool   // nothing is written
	// Edit completes the record, or refuses the act; nil: there is nothing to complete. before is
	// without a name for a new or unreadable policy. It is repeated after a conflict.
	Edit func(before inforce.Entry, after *inforce.Entry) error
}

// Change does an act by compare-and-set, and returns the record before and after. It returns the
// errors of [policy.Policy.Validate] and [inforce.CheckChange], [ErrTooMany], [jet.ErrNotFound],
// and [*OwnerError] for a file's policy; a draining policy without a stream may become anything. An
// unchanged record is not written. Levers are not validated; see [inforce.Override.ValidateAll].
func (s *Store) Change(ctx context.Context, name string, c Change) (before, after inforce.Entry,
	err error) {

	defer errs.Annotate(&err, "policy %s", name)
	if !policy.IsName(name) {
		return before, after, jet.ErrNotFound
	}
	return s.change(ctx, name, nil, c)
}

// Put writes a policy for a program or the API, and returns its revision; see [Store.Change]. An
// HTTP target must obey the stricter rule of httptarget.Options.
func (s *Store) Put(ctx context.Context, p policy.Policy) (revision uint64, err error) {
	_, after, err := s.Change(ctx, p.Name, Change{Act: Write,
		Edit: func(_ inforce.Entry, e *inforce.Entry) error { e.Written = p; return nil }})
	return after.Revision, err
}

// change does an act to a record that was read, or else reads it.
func (s *Store) change(ctx context.Context, name string, read *kv.Record, c Change) (before,
	after inforce.Entry, err error) {

	after.Revision, err = s.table.Update(ctx, name, read, 0, func(r kv.Record) (value []byte,
		err error) {
		before, after, value, err = s.turn(ctx, name, r, c)
		if c.Dry {
			value = r.Value
		}
		return value, err
	})
	return before, after, err
}

// turn returns what an act makes of a record. An unchanged one has the same value.
func (s *Store) turn(ctx context.Context, name string, r kv.Record, c Change) (before,
	after inforce.Entry, value []byte, err error) {

	current, err := replaceable(r)
	if err != nil {
		return before, after, nil, err
	}
	if current != nil {
		before = *current
	}
	becomes, err := next(current, name, c.Act, c.Set)
	if err != nil || becomes == current {
		return before, before, r.Value, err
	}
	if c.Edit != nil {
		err = c.Edit(before, becomes)
	}
	if err == nil && (c.Act == Write || c.Act == inFile) {
		err = s.fill(ctx, name, c.Act, current, becomes)
	}
	if err == nil {
		becomes.InForce()
		value, err = json.Marshal(becomes)
	}
	return before, *becomes, value, err
}

// fill checks a policy that its master writes, and sets its defaults, because a later version may
// have others.
func (s *Store) fill(ctx context.Context, name string, a Act, current, next *inforce.Entry) error {
	var before inforce.Entry
	if current != nil {
		before = *current
	}
	p := inforce.Keeping(next.Written, before.Written).WithDefaults()
	if p.Name != name {
		return fmt.Errorf("the policy's name is %.64q", p.Name)
	}
	err := policy.Invalid(p.Validate())
	if err == nil {
		err = s.mayBecome(ctx, current, p)
	}
	if err == nil && a == Write {
		err = s.agrees(ctx, current == nil, p)
	}
	if err != nil {
		return err
	}
	if a == inFile {
		next.TargetSource = inforce.SourceFile
	} else if before.Written.Name == "" || before.Draining || !p.SameTarget(before.Written) {
		next.TargetSource = inforce.SourceAPI
	}
	next.V, next.Written = job.FormatVersion, p
	if before.Written.Name != "" {
		next.Last = before.LastChange(p, time.Now())
	}
	return nil
}

// mayBecome refuses changes that a queue cannot follow; see [inforce.CheckChange].
func (s *Store) mayBecome(ctx context.Context, current *inforce.Entry, p policy.Policy) error {
	if current == nil {
		return nil
	}
	var err error
	if current.Written.Name == "" { // unreadable: only the stream has the old partitions
		err = s.broker.CheckStream(ctx, p)
	} else {
		err = inforce.CheckChange(current.Written, p)
	}
	if err != nil && current.Draining { // the name is free without a stream
		if _, gone := s.broker.Depth(ctx, p.Name); errors.Is(gone, jet.ErrNoStream) {
			err = nil
		}
	}
	return err
}

// agrees refuses a policy of the API beyond the maximum, or whose shared limits differ from those
// of others.
func (s *Store) agrees(ctx context.Context, added bool, p policy.Policy) error {
	if added {
		if err := s.room(ctx, 1); err != nil {
			return err
		}
	}
	if len(p.SharedLimits()) == 0 {
		return nil
	}
	set, err := s.Policies(ctx)
	if err != nil {
		return err
	}
	return cmp.Or(differing(p, set, nil)...)
}

// differing tells which policies that do not drain have other limits than p under the same names,
// except for those listed in its file.
func differing(p policy.Policy, others inforce.Entries, listed map[string]bool) (found []error) {
	for _, name := range slices.Sorted(maps.Keys(others)) {
		other := others[name]
		if listed[name] || other.Draining {
			continue
		}
		if err := p.CheckShared(other.Written); err != nil {
			found = append(found, fmt.Errorf("%w; policy %s is of the set %q", err, name,
				other.Set))
		}
	}
	return found
}

func (s *Store) room(ctx context.Context, added int) error {
	names, err := s.table.Count(ctx, "*")
	if err != nil || int(names)+added <= s.policies {
		return err
	}
	records, err := s.table.List(ctx, "*") // without deleted ones
	if err == nil && len(records)+added > s.policies {
		err = fmt.Errorf("%w: there are %d policies, which is the maximum", ErrTooMany,
			len(records))
	}
	return err
}

// replaceable reads a record to replace: nil if it is missing, and without a policy if that is
// unreadable. A newer format is [job.ErrVersion].
func replaceable(r kv.Record) (*inforce.Entry, error) {
	if r.Value == nil {
		return nil, nil
	}
	entry, err := read(r)
	if errors.Is(err, job.ErrVersion) {
		return nil, err
	}
	return &entry, nil
}

func read(r kv.Record) (inforce.Entry, error) {
	entry, err := Parse(r.Value)
	entry.Revision, entry.Stored = r.Revision, r.Stored
	return entry, err
}

// Parse reads a record, or the rest of it if the policy is unreadable. A newer format is
// [job.ErrVersion].
func Parse(value []byte) (e inforce.Entry, err error) {
	defer errs.Annotate(&err, "read record")
	var r struct {
		inforce.Entry
		Policy json.RawMessage `json:"policy"`
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return e, err
	}
	if err := checkFormat(r.V); err != nil {
		return e, err
	}
	r.Written, err = policy.Read(r.Policy)
	r.InForce()
	return r.Entry, err
}

func checkFormat(v int) error {
	if v != job.FormatVersion {
		return fmt.Errorf("%w: format %d", job.ErrVersion, v)
	}
	return nil
}

// Policy reads a policy, perhaps a draining one, or returns [jet.ErrNotFound].
func (s *Store) Policy(ctx context.Context, name string) (entry inforce.Entry, err error) {
	defer errs.Annotate(&err, "policy %.64q", name)
	if !policy.IsName(name) {
		return entry, jet.ErrNotFound
	}
	r, err := s.table.Read(ctx, name)
	if err == nil {
		entry, err = read(r)
	}
	return entry, err
}

// Policies reads all policies. Unreadable ones are logged.
func (s *Store) Policies(ctx context.Context) (inforce.Entries, error) {
	records, err := s.table.List(ctx, "*")
	if err != nil {
		return nil, fmt.Errorf("read the policies: %w", err)
	}
	set := inforce.Entries{}
	for _, r := range records {
		s.enter(set, r)
	}
	return set, nil
}

// Watch calls changed with all policies, and again after changes with the sorted names of policies
// that changed since the last call (nil at first), until the context ends; it returns nil. Changes
// during a call are combined. changed may keep its arguments. Unreadable records are logged: this
// process lacks the policy.
func (s *Store) Watch(ctx context.Context,
	changed func(set inforce.Entries, names []string)) error {
	var mu sync.Mutex
	set, synced := inforce.Entries{}, false
	news := make(chan struct{}, 1)
	tell := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	ctx, end := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		for before := inforce.Entries(nil); ; {
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
			began := time.Now()
			mu.Lock()
			now := maps.Clone(set)
			mu.Unlock()
			var names []string
			if before != nil {
				names = inforce.Changed(before, now)
			}
			changed(now, names)
			before = now
			select {
			case <-time.After(pauseAfter(time.Since(began))):
			case <-ctx.Done():
			}
		}
	})
	defer telling.Wait()
	defer end()
	return s.table.Watch(ctx, "*", func(r kv.Record) {
		mu.Lock()
		defer mu.Unlock()
		if s.enter(set, r) && synced {
			tell()
		}
	}, func() {
		mu.Lock()
		defer mu.Unlock()
		synced = true
		tell()
	})
}

// pauseAfter returns the pause after a call with all policies, whose time is linear in their
// number: calls take at most a third of the time, and no change waits for more than a second.
func pauseAfter(call time.Duration) time.Duration { return min(2*call, time.Second) }

// enter reports whether the set changed.
func (s *Store) enter(set inforce.Entries, r kv.Record) bool {
	_, known := set[r.Key]
	if r.Deleted {
		delete(set, r.Key)
		return known
	}
	entry, err := read(r)
	if err != nil {
		level := slog.LevelError
		if errors.Is(err, job.ErrVersion) {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "policy left out: its record cannot be read",
			"policy", r.Key,
			"revision", r.Revision, "error", err)
		delete(set, r.Key)
		return known
	}
	set[r.Key] = &entry
	return true
}
