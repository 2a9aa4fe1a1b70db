package queue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/penstock-mq/penstock/policy"
)

// PolicyEntry is a policy as all processes share it.
type PolicyEntry struct {
	Policy   policy.Policy // with its defaults
	Revision uint64        // of the record; a higher one is newer
	Retired  bool          // it takes no new jobs and ends when its queue is empty
	Paused   bool          // its jobs wait until an operator resumes it
	Source   string        // SourceAPI or SourceFile: who wrote the content
}

// PolicySet is all policies by name.
type PolicySet map[string]PolicyEntry

// Where a policy's content came from.
const (
	SourceAPI  = "api"  // a program, or an operator through the API
	SourceFile = "file" // a configuration file
)

// policyRecord is the stored form of a policy.
type policyRecord struct {
	V       int             `json:"v"`
	Policy  json.RawMessage `json:"policy"`
	Source  string          `json:"source"`
	File    string          `json:"file,omitempty"` // SHA-256 of what a file last wrote, as the file had it
	Retired bool            `json:"retired,omitempty"`
	Paused  bool            `json:"paused,omitempty"`
}

// entry is what the record says.
func (r *policyRecord) entry(revision uint64) (PolicyEntry, error) {
	p, err := policy.Read(r.Policy)
	return PolicyEntry{Policy: p, Revision: revision, Retired: r.Retired, Paused: r.Paused, Source: r.Source}, err
}

// PutPolicy writes a policy for all processes, as a program or the API does, and returns its new revision. It refuses what
// [policy.Policy.Validate] and [policy.CheckChange] refuse; a retired policy whose stream is gone may come back as
// anything.
func (b *Broker) PutPolicy(ctx context.Context, p policy.Policy) (revision uint64, err error) {
	revision, err = b.changePolicy(ctx, p.Name, func(current *policyRecord) (*policyRecord, error) {
		next := policyRecord{Source: SourceAPI}
		if current != nil {
			next.File = current.File
		}
		return &next, b.fill(ctx, &next, current, p)
	})
	if err != nil {
		return 0, fmt.Errorf("put policy %s: %w", p.Name, err)
	}
	return revision, nil
}

// PutFilePolicies writes the policies of a configuration file. A policy is written only if its content in the file is
// another than the one that a file last wrote, so that a restart undoes no change made since; one that a file once wrote
// and that is in ps no more retires; one that no file ever wrote is left alone. All are checked before the first is
// written; the error joins everything that is wrong. Only processes that load policies from a file should call it: an
// empty ps retires them all.
func (b *Broker) PutFilePolicies(ctx context.Context, ps []policy.Policy) error {
	records, err := b.policies.List(ctx, "*")
	if err != nil {
		return fmt.Errorf("put the file's policies: %w", err)
	}
	current := map[string]*policyRecord{}
	var problems []error
	for _, r := range records {
		if current[r.Key], err = parsePolicyRecord(r.Value); err != nil {
			problems = append(problems, fmt.Errorf("policy %s: %w", r.Key, err))
		}
	}
	for _, p := range ps {
		if _, err := b.fromFile(ctx, current[p.Name], p); err != nil {
			problems = append(problems, fmt.Errorf("policy %s: %w", p.Name, err))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("put the file's policies: %w", errors.Join(problems...))
	}

	inFile := map[string]bool{}
	for _, p := range ps {
		inFile[p.Name] = true
		_, err := b.changePolicy(ctx, p.Name, func(current *policyRecord) (*policyRecord, error) {
			return b.fromFile(ctx, current, p)
		})
		if err != nil {
			problems = append(problems, fmt.Errorf("policy %s: %w", p.Name, err))
		}
	}
	for name, record := range current {
		if inFile[name] || record.File == "" || record.Retired {
			continue
		}
		_, err := b.changePolicy(ctx, name, func(current *policyRecord) (*policyRecord, error) {
			if current == nil || current.File == "" || current.Retired {
				return nil, nil
			}
			next := *current
			next.Retired = true
			return &next, nil
		})
		if err != nil {
			problems = append(problems, fmt.Errorf("retire policy %s: %w", name, err))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("put the file's policies: %w", errors.Join(problems...))
	}
	return nil
}

// fromFile is what a file makes of a record; nil when there is nothing to write.
func (b *Broker) fromFile(ctx context.Context, current *policyRecord, p policy.Policy) (*policyRecord, error) {
	content, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	sum := sha256.Sum256(content)
	next := policyRecord{Source: SourceFile, File: hex.EncodeToString(sum[:])}
	if current != nil && current.File == next.File && !current.Retired {
		return nil, nil
	}
	return &next, b.fill(ctx, &next, current, p)
}

// fill checks a policy against the current record and puts it into the next one. Defaults are stored too: those that can
// never change must stay what they were at creation, whatever a later version's are.
func (b *Broker) fill(ctx context.Context, next, current *policyRecord, p policy.Policy) error {
	p = p.WithDefaults()
	if err := policy.Invalid(p.Validate()); err != nil {
		return err
	}
	if current != nil {
		next.Paused = current.Paused // an operator's word outlives whatever the content becomes
		before, err := policy.Read(current.Policy)
		if err != nil {
			return fmt.Errorf("read the current one: %w", err)
		}
		if err := policy.CheckChange(before, p); err != nil && !b.isGone(ctx, current, p.Name) {
			return err
		}
	}
	content, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	next.V, next.Policy = formatVersion, content
	return nil
}

// isGone reports whether nothing is left of a retired policy that a new one of the same name could disagree with.
func (b *Broker) isGone(ctx context.Context, r *policyRecord, name string) bool {
	if !r.Retired {
		return false
	}
	_, err := b.Depth(ctx, name)
	return errors.Is(err, ErrNoStream)
}

// changePolicy replaces a policy's record by compare-and-set, again when somebody else was faster. change gets nil when
// there is no record, and returns nil to leave it as it is.
func (b *Broker) changePolicy(
	ctx context.Context, name string, change func(*policyRecord) (*policyRecord, error),
) (uint64, error) {
	for {
		stored, err := b.policies.Read(ctx, name)
		var current *policyRecord
		switch {
		case err == nil:
			if current, err = parsePolicyRecord(stored.Value); err != nil {
				return 0, err
			}
		case !errors.Is(err, ErrNotFound):
			return 0, err
		}
		next, err := change(current)
		if err != nil {
			return 0, err
		}
		if next == nil {
			return stored.Revision, nil
		}
		value, err := json.Marshal(next)
		if err != nil {
			return 0, fmt.Errorf("encode: %w", err)
		}
		revision, err := b.policies.Put(ctx, name, value, stored.Revision)
		if err == nil {
			return revision, nil
		}
		if !errors.Is(err, ErrConflict) || ctx.Err() != nil {
			return 0, err
		}
		// An update of unknown result that was applied and then repeated conflicts with itself.
		if again, err := b.policies.Read(ctx, name); err == nil && bytes.Equal(again.Value, value) {
			return again.Revision, nil
		}
	}
}

func parsePolicyRecord(value []byte) (*policyRecord, error) {
	var r policyRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	if r.V != formatVersion {
		return nil, fmt.Errorf("read record: %w: format %d", ErrVersion, r.V)
	}
	return &r, nil
}

// Policy reads one policy as it is now; [ErrNotFound] when there is none of that name. A retired one is still there.
func (b *Broker) Policy(ctx context.Context, name string) (PolicyEntry, error) {
	if strings.Contains(name, ".") || !validRecordKey(name) {
		return PolicyEntry{}, fmt.Errorf("policy %.64q: %w", name, ErrNotFound)
	}
	r, err := b.policies.Read(ctx, name)
	var entry PolicyEntry
	if err == nil {
		entry, err = readPolicy(r)
	}
	if err != nil {
		return PolicyEntry{}, fmt.Errorf("policy %s: %w", name, err)
	}
	return entry, nil
}

// Policies reads all policies as they are now. Those that cannot be understood are left out and logged.
func (b *Broker) Policies(ctx context.Context) (PolicySet, error) {
	records, err := b.policies.List(ctx, "*")
	if err != nil {
		return nil, fmt.Errorf("read the policies: %w", err)
	}
	set := PolicySet{}
	for _, r := range records {
		b.enter(set, r)
	}
	return set, nil
}

// SetPaused holds back all jobs of a policy, or lets them go on. It is no part of the policy itself: whoever writes the
// policy leaves it as it is. It answers [ErrNotFound] when there is no such policy.
func (b *Broker) SetPaused(ctx context.Context, name string, paused bool) (revision uint64, err error) {
	if strings.Contains(name, ".") || !validRecordKey(name) {
		return 0, fmt.Errorf("pause policy %.64q: %w", name, ErrNotFound)
	}
	revision, err = b.changePolicy(ctx, name, func(current *policyRecord) (*policyRecord, error) {
		switch {
		case current == nil:
			return nil, ErrNotFound
		case current.Paused == paused:
			return nil, nil
		}
		next := *current
		next.Paused = paused
		return &next, nil
	})
	if err != nil {
		return 0, fmt.Errorf("pause policy %s: %w", name, err)
	}
	return revision, nil
}

func readPolicy(r Record) (PolicyEntry, error) {
	record, err := parsePolicyRecord(r.Value)
	if err != nil {
		return PolicyEntry{}, err
	}
	return record.entry(r.Revision)
}

// WatchPolicies calls changed with all policies, and again after every change, until the context ends; then it returns
// nil. Each set is the callee's own. It survives reconnects and restarts of the server. A record in an unknown format, or
// with a policy that cannot be understood, is left out of the set and logged: this process then has no such policy.
func (b *Broker) WatchPolicies(ctx context.Context, changed func(PolicySet)) error {
	set, synced := PolicySet{}, false
	tell := func() {
		if synced {
			changed(maps.Clone(set))
		}
	}
	return b.policies.Watch(ctx, "*", func(r Record) {
		if b.enter(set, r) {
			tell()
		}
	}, func() {
		synced = true
		tell()
	})
}

// enter brings one record into a set and reports whether that changed it.
func (b *Broker) enter(set PolicySet, r Record) bool {
	_, known := set[r.Key]
	if r.Deleted {
		delete(set, r.Key)
		return known
	}
	entry, err := readPolicy(r)
	if err != nil {
		b.log.Warn("policy left out: its record cannot be understood", "policy", r.Key, "revision", r.Revision,
			"error", err)
		delete(set, r.Key)
		return known
	}
	set[r.Key] = entry
	return true
}
