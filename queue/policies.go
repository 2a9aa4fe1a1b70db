package queue

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

// PolicyEntry is a policy as all processes share it.
type PolicyEntry struct {
	Policy   policy.Policy // with its defaults
	Revision uint64        // of the record; a higher one is newer
	Stored   time.Time     // when JetStream stored the record
	Retired  bool          // it takes no new jobs and ends when its queue is empty
	Deleting bool          // it is retired, and its record goes with its stream
	Paused   bool          // its jobs wait until an operator resumes it
	Source   string        // SourceAPI or SourceFile: who wrote the content
	Set      string        // the set of the file that it is in, or was until it left the file; empty: it is in none
}

// PolicySet is all policies by name.
type PolicySet map[string]PolicyEntry

// MaxPolicies is how many policies there may be, retired ones included: each has a stream and its place in every process.
const MaxPolicies = 1000

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
	Set     string          `json:"set,omitempty"`  // of that file; none: policy.DefaultSet
	Left    bool            `json:"left,omitempty"` // the set's file does not have it any more
	Retired bool            `json:"retired,omitempty"`
	Paused  bool            `json:"paused,omitempty"`
	// Deleting: it is retired, and goes for good with its stream. Deleted: it has gone, and this is left because a file
	// wrote it, so that the file brings it back only when its text changes.
	Deleting bool `json:"deleting,omitempty"`
	Deleted  bool `json:"deleted,omitempty"`

	revision uint64 // of the record as it was read
}

// entry is what the record says.
func (r *policyRecord) entry(revision uint64) (PolicyEntry, error) {
	p, err := policy.Read(r.Policy)
	return PolicyEntry{Policy: p, Revision: revision, Retired: r.Retired, Deleting: r.Deleting, Paused: r.Paused,
		Source: r.Source, Set: r.set()}, err
}

// set is the set of the file that wrote the policy last, empty when none ever did.
func (r *policyRecord) set() string {
	if r.File == "" {
		return ""
	}
	return cmp.Or(r.Set, policy.DefaultSet)
}

// PutPolicy writes a policy for all processes, as a program or the API does, and returns its revision. It refuses what
// [policy.Policy.Validate] and [policy.CheckChange] refuse, and the one that would be too many ([MaxPolicies]); a retired
// policy whose stream is gone may come back as anything. One that has left its file, or has retired, is the program's or
// the API's own from then on. What is there already is not written again. Its HTTP target obeys the stricter of the rules
// of httptarget.Options.
func (b *Broker) PutPolicy(ctx context.Context, p policy.Policy) (revision uint64, err error) {
	entry, err := b.ChangePolicy(ctx, p.Name, func(*PolicyEntry) (policy.Policy, error) { return p, nil })
	return entry.Revision, err
}

// ChangePolicy replaces a policy by what change makes of it, by compare-and-set, as [Broker.PutPolicy] does: change gets
// the present one, nil when there is none that can be read, and is called again when somebody else was faster, so that what it says is
// true of what it replaces. Its error ends the attempt and is returned.
func (b *Broker) ChangePolicy(
	ctx context.Context, name string, change func(current *PolicyEntry) (policy.Policy, error),
) (PolicyEntry, error) {
	var written *policyRecord
	revision, err := b.changePolicy(ctx, name, func(current *policyRecord) (next *policyRecord, err error) {
		written, err = b.draft(ctx, name, current, change)
		return written, err
	})
	var entry PolicyEntry
	if err == nil {
		entry, err = written.entry(revision)
	}
	if err != nil {
		return PolicyEntry{}, fmt.Errorf("put policy %s: %w", name, err)
	}
	return entry, nil
}

// TryPolicy is [Broker.ChangePolicy] without writing anything: the policy as it would be, with the present one's revision.
func (b *Broker) TryPolicy(
	ctx context.Context, name string, change func(current *PolicyEntry) (policy.Policy, error),
) (PolicyEntry, error) {
	current, err := b.policyRecord(ctx, name)
	var entry PolicyEntry
	if err == nil {
		var next *policyRecord
		if next, err = b.draft(ctx, name, current, change); err == nil {
			entry, err = next.entry(current.at())
		}
	}
	if err != nil {
		return PolicyEntry{}, fmt.Errorf("try policy %s: %w", name, err)
	}
	return entry, nil
}

// draft is the record that a program's or the API's change makes of the present one.
func (b *Broker) draft(ctx context.Context, name string, current *policyRecord,
	change func(current *PolicyEntry) (policy.Policy, error)) (*policyRecord, error) {

	next := policyRecord{Source: SourceAPI}
	if current != nil && !current.Left && (!current.Retired || current.Deleting || current.Deleted) {
		next.File, next.Set = current.File, current.Set
	}
	var before *PolicyEntry // also nil for a record that cannot be read
	if current = current.present(); current != nil {
		if entry, err := current.entry(current.revision); err == nil {
			before = &entry
		}
	} else if err := b.roomForPolicy(ctx); err != nil {
		return nil, err
	}
	p, err := change(before)
	if err != nil {
		return nil, err
	}
	if p.Name != name {
		return nil, fmt.Errorf("the policy's name is %.64q", p.Name)
	}
	return &next, b.fill(ctx, &next, current, p)
}

// present is the record unless its policy has been deleted.
func (r *policyRecord) present() *policyRecord {
	if r == nil || r.Deleted {
		return nil
	}
	return r
}

// at is the record's revision, 0 for none and for that of a policy that has been deleted.
func (r *policyRecord) at() uint64 {
	if r = r.present(); r != nil {
		return r.revision
	}
	return 0
}

// roomForPolicy refuses the policy that would be too many.
func (b *Broker) roomForPolicy(ctx context.Context) error {
	names, err := b.policies.keys(ctx, "*")
	if err != nil || len(names) < MaxPolicies {
		return err // some of the names may be deleted
	}
	set, err := b.Policies(ctx)
	if err == nil && len(set) >= MaxPolicies {
		err = fmt.Errorf("%w: there are %d policies, the most that there can be", ErrTooMany, len(set))
	}
	return err
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
		if err == nil {
			err = policy.CheckChange(before, p)
		} else {
			err = b.checkShape(ctx, p) // what it was cannot be told, but its stream can
		}
		if err != nil && !b.isGone(ctx, current, p.Name) {
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

// checkShape refuses a policy that the stream of its name does not fit.
func (b *Broker) checkShape(ctx context.Context, p policy.Policy) error {
	info, err := b.streamInfo(ctx, b.names.Stream(p.Name), "")
	switch {
	case hasCode(err, codeStreamNotFound):
		return nil
	case err != nil:
		return translate(err)
	case !p.HasQueue():
		return policy.Invalid([]policy.Problem{{Field: "queue", Reason: "cannot be taken away, for there is a stream of it: " +
			"give the policy a new name"}})
	}
	return checkStream(p.Name, info.Config, b.streamConfig(p))
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
// there is no record, one without a policy when it cannot be read, and returns nil to leave it as it is; what is as it
// was is not written again. The record of a policy that has been deleted is a record, too. What a newer version wrote is
// [ErrVersion].
func (b *Broker) changePolicy(
	ctx context.Context, name string, change func(*policyRecord) (*policyRecord, error),
) (uint64, error) {
	for {
		stored, current, err := b.storedPolicy(ctx, name)
		if err != nil {
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
		if bytes.Equal(value, stored.Value) {
			return stored.Revision, nil
		}
		revision, err := b.policies.Put(ctx, name, value, stored.Revision)
		if err == nil {
			return revision, nil
		}
		if !errors.Is(err, ErrConflict) || ctx.Err() != nil {
			return 0, err
		}
	}
}

// storedPolicy reads a policy's record, nil when there is none.
func (b *Broker) storedPolicy(ctx context.Context, name string) (Record, *policyRecord, error) {
	stored, err := b.policies.Read(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound):
		return stored, nil, nil
	case err != nil:
		return stored, nil, err
	}
	record, err := currentRecord(stored.Value)
	if err != nil {
		return stored, nil, err
	}
	record.revision = stored.Revision
	return stored, record, nil
}

func (b *Broker) policyRecord(ctx context.Context, name string) (*policyRecord, error) {
	_, record, err := b.storedPolicy(ctx, name)
	return record, err
}

// currentRecord is a record that may be replaced: one without a policy when it cannot be read. What a newer version wrote
// may not.
func currentRecord(value []byte) (*policyRecord, error) {
	r, err := parsePolicyRecord(value)
	switch {
	case errors.Is(err, ErrVersion):
		return nil, err
	case err != nil:
		return &policyRecord{}, nil
	}
	return r, nil
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
		case current.present() == nil:
			return nil, ErrNotFound
		case len(current.Policy) == 0:
			return nil, errors.New("its record cannot be read: write the policy again")
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
	if record.Deleted {
		return PolicyEntry{}, fmt.Errorf("%w: deleted", ErrNotFound)
	}
	entry, err := record.entry(r.Revision)
	entry.Stored = r.Stored
	return entry, err
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
	if errors.Is(err, ErrNotFound) {
		delete(set, r.Key)
		return known
	}
	if err != nil {
		level := slog.LevelError
		if errors.Is(err, ErrVersion) {
			level = slog.LevelWarn // as while versions are mixed
		}
		b.log.Log(context.Background(), level, "policy left out: its record cannot be read", "policy", r.Key,
			"revision", r.Revision, "error", err)
		delete(set, r.Key)
		return known
	}
	set[r.Key] = entry
	return true
}
