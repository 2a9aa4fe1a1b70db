package queue

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

	"github.com/penstock-mq/penstock/policy"
)

// FileSet is the policies of one configuration file. A policy belongs to the set of one file at most, so that
// processes with different files leave each other's policies alone.
type FileSet struct {
	Name     string // default [policy.DefaultSet]
	Policies []policy.Policy
}

// FileResult says what became of a file's policies, by name.
type FileResult struct {
	Written    []FileChange // the others are as the file has them, or as they were changed since
	Absent     []string     // belong to the set and are not in the file: they stay
	Deleted    []string     // were deleted, and their text in the file has not changed since: they stay away
	Unreadable []error      // records that cannot be read, of policies that are not in the file: they stay
}

// FileChange is a policy that a file has written.
type FileChange struct {
	After    policy.Policy
	Before   *policy.Policy // nil: it is new, or what it was cannot be read
	Revived  bool           // it had retired
	Revision uint64
}

// PutFilePolicies writes the policies of a configuration file. A policy is written only if its content in the file is
// another than the one that a file last wrote, so that a restart undoes no change made since, nor a deletion. One
// that the set's file once had and has no more stays: see [Broker.RetireAbsent]; a file of another set may take it
// over. All are checked before the first is written; the error joins everything that is wrong: what
// [Broker.PutPolicy] refuses, a policy that belongs to another set, and a record in a newer format. A record that
// cannot be read at all is replaced if the policy is in the file and its stream fits.
func (b *Broker) PutFilePolicies(ctx context.Context, file FileSet) (FileResult, error) {
	result, err := b.putFile(ctx, cmp.Or(file.Name, policy.DefaultSet), file.Policies)
	if err != nil {
		return FileResult{}, fmt.Errorf("put the file's policies: %w", err)
	}
	return result, nil
}

func (b *Broker) putFile(ctx context.Context, set string, ps []policy.Policy) (result FileResult, err error) {
	records, err := b.policies.List(ctx, "*")
	if err != nil {
		return result, err
	}
	inFile := map[string]bool{}
	for _, p := range ps {
		inFile[p.Name] = true
	}
	current := map[string]*policyRecord{}
	var problems []error
	problem := func(name string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("policy %s: %w", name, err))
		}
	}
	for _, r := range records {
		if !inFile[r.Key] {
			if current[r.Key], err = parsePolicyRecord(r.Value); err != nil {
				result.Unreadable = append(result.Unreadable, fmt.Errorf("policy %s: %w", r.Key, err))
				delete(current, r.Key)
			}
			continue
		}
		current[r.Key], err = currentRecord(r.Value)
		problem(r.Key, err)
	}
	for _, p := range ps {
		_, err := b.fromFile(ctx, set, current[p.Name], p)
		problem(p.Name, err)
	}
	if len(problems) > 0 {
		return result, errors.Join(problems...)
	}

	for _, p := range ps {
		change, err := b.putFromFile(ctx, set, p)
		if err == nil && change != nil {
			result.Written = append(result.Written, *change)
		}
		problem(p.Name, err)
		if was := current[p.Name]; err == nil && change == nil && was != nil && (was.Deleting || was.Deleted) {
			result.Deleted = append(result.Deleted, p.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(current)) {
		record := current[name]
		if inFile[name] || record.set() != set || record.Retired {
			continue
		}
		_, err := b.changePolicy(ctx, name, func(current *policyRecord) (*policyRecord, error) {
			if current == nil || current.set() != set || current.Retired || current.Left {
				return nil, nil
			}
			next := *current
			next.Left = true
			return &next, nil
		})
		problem(name, err)
		result.Absent = append(result.Absent, name)
	}
	return result, errors.Join(problems...)
}

// putFromFile writes one policy of a file; nil when there was nothing to write.
func (b *Broker) putFromFile(ctx context.Context, set string, p policy.Policy) (change *FileChange, err error) {
	revision, err := b.changePolicy(ctx, p.Name, func(current *policyRecord) (*policyRecord, error) {
		change = nil
		next, err := b.fromFile(ctx, set, current, p)
		if next == nil || err != nil {
			return nil, err
		}
		change = &FileChange{After: p.WithDefaults()}
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

// fromFile is what a file makes of a record; nil when there is nothing to write.
func (b *Broker) fromFile(ctx context.Context, set string, current *policyRecord, p policy.Policy) (
	*policyRecord, error) {

	content, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	sum := sha256.Sum256(content)
	next := policyRecord{Source: SourceFile, File: hex.EncodeToString(sum[:])}
	if set != policy.DefaultSet {
		next.Set = set
	}
	if current != nil && !current.Retired {
		switch other := current.set(); {
		case other != "" && other != set && !current.Left:
			return nil, policy.Invalid([]policy.Problem{{Field: "name", Reason: fmt.Sprintf(
				"is a policy of the file with set: %s, and this file has set: %s: take it out of one of them", other, set)}})
		case current.File != next.File:
		case current.Left:
			back := *current // with what was changed since
			back.Set, back.Left = next.Set, false
			return &back, nil
		default:
			return nil, nil
		}
	}
	if current != nil && (current.Deleting || current.Deleted) && current.File == next.File && current.Set == next.Set {
		return nil, nil
	}
	if current = current.present(); current == nil {
		if err := b.roomForPolicy(ctx); err != nil {
			return nil, err
		}
	}
	return &next, b.fill(ctx, &next, current, p)
}

// RetireAbsent retires the policies of a set that are not in its file any more and in which no job waits: they take
// no new jobs, and their streams go. It returns their names, and how many jobs wait in those that stay for that. A
// job that is accepted at the same moment still runs.
func (b *Broker) RetireAbsent(ctx context.Context, set string) (retired []string, waiting map[string]uint64, err error) {
	waiting = map[string]uint64{}
	records, err := b.policies.List(ctx, "*")
	if err != nil {
		return nil, nil, fmt.Errorf("retire the policies that are not in the file: %w", err)
	}
	absent := func(r *policyRecord) bool { return r != nil && r.set() == set && r.Left && !r.Retired }
	for _, r := range records {
		record, err := parsePolicyRecord(r.Value)
		if err != nil || !absent(record) {
			continue // what cannot be read was told when the file was put
		}
		depth, err := b.Depth(ctx, r.Key)
		if err != nil && !errors.Is(err, ErrNoStream) {
			return retired, waiting, err
		}
		if depth > 0 {
			waiting[r.Key] = depth
			continue
		}
		changed := false
		_, err = b.changePolicy(ctx, r.Key, func(current *policyRecord) (*policyRecord, error) {
			if changed = absent(current); !changed {
				return nil, nil // it is back in the file, or somebody else was faster
			}
			next := *current
			next.Retired = true
			return &next, nil
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
