package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/kv"
)

// File has the policies of a configuration file. A policy belongs to at most one set: files do not
// interfere.
type File struct {
	Set      string // default [policy.DefaultSet]
	Policies []policy.Policy
}

type FileResult struct {
	Written []FileChange // the others are unchanged, or changed by the API
	Absent  []string     // in the set but not in the file; they stay
	// deleted, and unchanged in the file; they stay deleted
	Deleted []string
	// records of policies that are not in the file; they stay
	Unreadable []error
	// shared limits that differ from other files': the last one stored applies
	Differing []error
}

type FileChange struct {
	After    policy.Policy
	Before   *policy.Policy // nil: new, or unreadable
	Revived  bool           // it had retired
	Revision uint64
}

// PutFile writes the policies of a file whose text has changed since a file last wrote them,
// because a restart must not undo later changes or deletions. Policies that left the file stay (see
// [Store.RetireAbsent]), and a file of another set may take them over. All are checked before any
// is written; the error joins all problems: errors of [Store.Put], policies of another set, and
// records of a newer format. An unreadable record is replaced if the policy fits its stream.
func (s *Store) PutFile(ctx context.Context, file File) (result FileResult, err error) {
	defer errs.Annotate(&err, "put the file's policies")
	set, ps := cmp.Or(file.Set, policy.DefaultSet), file.Policies
	records, err := s.table.List(ctx, "*")
	if err != nil {
		return result, err
	}
	inFile := map[string]bool{}
	for _, p := range ps {
		inFile[p.Name] = true
	}
	current, stored := map[string]*record{}, map[string]kv.Record{}
	var problems []error
	problem := func(name string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("policy %s: %w", name, err))
		}
	}
	for _, r := range records {
		if !inFile[r.Key] {
			if current[r.Key], err = parseRecord(r.Value); err != nil {
				result.Unreadable = append(result.Unreadable,
					fmt.Errorf("policy %s: %w", r.Key, err))
				delete(current, r.Key)
			}
			continue
		}
		stored[r.Key] = r
		current[r.Key], err = currentRecord(r)
		problem(r.Key, err)
	}
	same, added := map[string]bool{}, 0
	var sharing []policy.Policy
	for _, p := range ps {
		next, err := s.fromFile(ctx, set, current[p.Name], p)
		problem(p.Name, err)
		if same[p.Name] = next == nil; !same[p.Name] && current[p.Name].present() == nil {
			added++
		}
		if len(p.SharedLimits()) == 0 {
			continue
		}
		for _, other := range sharing {
			problem(p.Name, p.CheckShared(other))
		}
		sharing = append(sharing, p)
		differing, err := sharedBeside(p, current, inFile)
		problem(p.Name, err)
		result.Differing = append(result.Differing, differing...)
	}
	if len(problems) == 0 && added > 0 {
		if err := s.room(ctx, added); err != nil {
			return result, err
		}
	}
	if len(problems) > 0 {
		return result, errors.Join(problems...)
	}

	changes, errs := make([]*FileChange, len(ps)), make([]error, len(ps))
	var writing sync.WaitGroup
	places := make(chan struct{}, putAtOnce)
	for i, p := range ps {
		if same[p.Name] {
			continue
		}
		places <- struct{}{}
		writing.Go(func() {
			changes[i], errs[i] = s.putFromFile(ctx, set, p, stored[p.Name])
			<-places
		})
	}
	writing.Wait()
	for i, p := range ps {
		change, err := changes[i], errs[i]
		if err == nil && change != nil {
			result.Written = append(result.Written, *change)
		}
		problem(p.Name, err)
		if was := current[p.Name]; err == nil && change == nil && was != nil &&
			(was.Deleting || was.Deleted) {
			result.Deleted = append(result.Deleted, p.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(current)) {
		was := current[name]
		if inFile[name] || was.set() != set || was.Retired {
			continue
		}
		problem(name, s.leave(ctx, set, name))
		result.Absent = append(result.Absent, name)
	}
	return result, errors.Join(problems...)
}

// sharedBeside compares a policy's shared limits with policies outside the file. A policy that
// already shares them may change them, and differences are only reported, because files do not
// change together. A policy new to a limit must match.
func sharedBeside(p policy.Policy, current map[string]*record,
	inFile map[string]bool) (differing []error, refused error) {

	shares := len(p.SharedLimits()) > 0 && current[p.Name] != nil
	if shares {
		was, err := current[p.Name].entry(0)
		for _, l := range p.SharedLimits() {
			shares = shares && err == nil && slices.ContainsFunc(was.Policy.SharedLimits(),
				func(before policy.Limit) bool { return before.Shared == l.Shared })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(current)) {
		r := current[name]
		if r == nil || inFile[name] || r.Retired || r.Deleted {
			continue
		}
		other, err := r.entry(0)
		if err != nil {
			continue
		}
		switch err := p.CheckShared(other.Policy); {
		case err != nil && shares:
			differing = append(differing, fmt.Errorf("policy %s: %w; policy %s is of the set %q",
				p.Name, err, name, other.Set))
		case err != nil:
			refused = cmp.Or(refused, err)
		}
	}
	return differing, refused
}

func (s *Store) leave(ctx context.Context, set, name string) error {
	_, err := s.change(ctx, name, func(current *record) (*record, error) {
		if current == nil || current.set() != set || current.Retired || current.Left {
			return nil, nil
		}
		current.Left = true
		return current, nil
	})
	return err
}

const putAtOnce = 64

// putFromFile returns nil for an unchanged policy.
func (s *Store) putFromFile(ctx context.Context, set string, p policy.Policy,
	stored kv.Record) (change *FileChange, err error) {
	revision, err := s.replace(ctx, p.Name, &stored, func(current *record) (*record, error) {
		change = nil
		next, err := s.fromFile(ctx, set, current, p)
		if next == nil || err != nil {
			return nil, err
		}
		after, err := policy.Read(next.Policy)
		if err != nil {
			return nil, err
		}
		change = &FileChange{After: after}
		if current = current.present(); current != nil {
			change.Revived = current.Retired
			if before, err := policy.Read(current.Policy); err == nil {
				change.Before = &before
			}
		}
		return next, nil
	})
	if change != nil {
		change.Revision = revision
	}
	return change, err
}

// fromFile returns the record of a file's policy; nil: unchanged.
func (s *Store) fromFile(ctx context.Context, set string, current *record, p policy.Policy) (
	*record, error) {

	content, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	sum := sha256.Sum256(content)
	next := record{Source: policy.SourceFile, File: hex.EncodeToString(sum[:])}
	if set != policy.DefaultSet {
		next.Set = set
	}
	if current != nil && !current.Retired {
		switch other := current.set(); {
		case other != "" && other != set && !current.Left:
			return nil, policy.Invalid([]policy.Problem{{Field: "name", Reason: fmt.Sprintf(
				"belongs to the file with set: %s, and this file has set: %s: remove it from "+
					"one of them", other, set)}})
		case current.File != next.File:
		case current.Left:
			back := *current
			back.Set, back.Left = next.Set, false
			return &back, nil
		default:
			return nil, nil
		}
	}
	if current != nil && (current.Deleting || current.Deleted) && current.File == next.File &&
		current.Set == next.Set {
		return nil, nil
	}
	return &next, s.fill(ctx, &next, current.present(), p)
}

// RetireAbsent retires the policies of a set that left its file and have no waiting jobs. It
// returns their names, and the waiting jobs of the others. A job accepted meanwhile still runs.
func (s *Store) RetireAbsent(ctx context.Context,
	set string) (retired []string, waiting map[string]uint64, err error) {
	waiting = map[string]uint64{}
	records, err := s.table.List(ctx, "*")
	if err != nil {
		return nil, nil, fmt.Errorf("retire the policies that are not in the file: %w", err)
	}
	absent := func(r *record) bool { return r != nil && r.set() == set && r.Left && !r.Retired }
	for _, r := range records {
		found, err := parseRecord(r.Value)
		if err != nil || !absent(found) {
			continue
		}
		depth, err := s.broker.Depth(ctx, r.Key)
		if err != nil && !errors.Is(err, queue.ErrNoStream) {
			return retired, waiting, err
		}
		if depth > 0 {
			waiting[r.Key] = depth
			continue
		}
		changed := false
		_, err = s.change(ctx, r.Key, func(current *record) (*record, error) {
			if changed = absent(current); !changed {
				return nil, nil // back in the file, or retired meanwhile
			}
			current.Retired = true
			return current, nil
		})
		if err != nil {
			return retired, waiting, fmt.Errorf("retire policy %s: %w", r.Key, err)
		}
		if changed {
			retired = append(retired, r.Key)
		}
	}
	return retired, waiting, nil
}
