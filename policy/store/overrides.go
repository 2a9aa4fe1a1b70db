package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"

	"github.com/penstock-mq/penstock/queue"
)

// overrideRecord is the stored form of an override.
type overrideRecord struct {
	V        int             `json:"v"`
	Key      job.Key         `json:"key"`
	Override json.RawMessage `json:"override"`
}

// Override is one key's override.
type Override struct {
	Key      job.Key
	Override policy.Override
	Revision uint64 // of the record; a higher one is newer
}

// MaxOverrides is how many keys of one policy may have an override; deleted ones count for another
// hour.
const MaxOverrides = 100_000

// PutOverride gives one key of a policy limits of its own, in place of those it may have had, and
// returns the record's revision. The zero override deletes the record. PutOverride does not check
// that the override suits the policy (see [policy.Override.Validate]): a policy may change later,
// and what does not suit it then has no effect. It returns [job.ErrInvalidKey] for what is no key,
// and [ErrTooMany].
func (s *Store) PutOverride(ctx context.Context, policyName string, key job.Key,
	o policy.Override) (uint64, error) {
	put, err := s.ChangeOverride(ctx, policyName, key, func(Override) (policy.Override, error) {
		return o, nil
	})
	if err != nil {
		return 0, fmt.Errorf("put override: %w", err)
	}
	return put.Revision, nil
}

// ChangeOverride replaces a key's override by what change makes of it, by compare-and-set: change
// gets the present one, with revision 0 when there is none, and is called again when the record
// changed meanwhile. Its error ends the attempt and is returned.
func (s *Store) ChangeOverride(
	ctx context.Context, policyName string, key job.Key,
	change func(Override) (policy.Override, error),
) (Override, error) {
	name, err := overrideName(policyName, key)
	var put Override
	for written := false; err == nil && !written; {
		put, written, err = s.changeOverride(ctx, policyName, name, key, change)
	}
	if err != nil {
		return Override{}, fmt.Errorf("override of %s.%s: %w", policyName, key, err)
	}
	return put, nil
}

// changeOverride tries once; written is false when the record changed meanwhile.
func (s *Store) changeOverride(ctx context.Context, policyName, name string, key job.Key,
	change func(Override) (policy.Override, error)) (put Override, written bool, err error) {

	stored, err := s.table.Read(ctx, name)
	current := Override{Key: key}
	switch {
	case err == nil:
		current.Revision = stored.Revision
		if current.Override, err = parseOverrideRecord(stored.Value, key); err != nil {
			return current, false, err
		}
	case !errors.Is(err, queue.ErrNotFound):
		return current, false, err
	}
	next, err := change(current)
	if err != nil {
		return current, false, err
	}
	put = Override{Key: key, Override: next}
	if next.IsZero() {
		if current.Revision == 0 {
			return put, true, nil
		}
		err = s.table.Delete(ctx, name, stored.Revision)
	} else {
		put.Revision, err = s.writeOverride(ctx, policyName, name, stored, put)
	}
	if errors.Is(err, queue.ErrConflict) && ctx.Err() == nil {
		return put, false, nil
	}
	return put, err == nil, err
}

// writeOverride stores an override over what was read, unless it is the same.
func (s *Store) writeOverride(
	ctx context.Context, policyName, name string, stored kv.Record, put Override,
) (revision uint64, err error) {
	value, err := encodeOverride(put.Key, put.Override)
	if err != nil || bytes.Equal(value, stored.Value) {
		return stored.Revision, err
	}
	if stored.Value == nil {
		n, err := s.table.Count(ctx, policyName+".>")
		if err == nil && n >= MaxOverrides {
			err = fmt.Errorf(
				"%w: %d keys of the policy have limits of their own, the most that can, or had "+
					"them within "+
					"the last hour", ErrTooMany, n)
		}
		if err != nil {
			return 0, err
		}
	}
	return s.table.Put(ctx, name, value, stored.Revision)
}

// Override is what one key of a policy follows instead of the policy's numbers; [queue.ErrNotFound]
// when it has no override.
func (s *Store) Override(ctx context.Context, policyName string, key job.Key) (Override, error) {
	name, err := overrideName(policyName, key)
	var r kv.Record
	if err == nil {
		r, err = s.table.Read(ctx, name)
	}
	o := Override{Key: key, Revision: r.Revision}
	if err == nil {
		o.Override, err = parseOverrideRecord(r.Value, key)
	}
	if err != nil {
		return Override{}, fmt.Errorf("override of %s.%s: %w", policyName, key, err)
	}
	return o, nil
}

// DeleteOverride lets a key follow its policy again. A key without an override is no error.
func (s *Store) DeleteOverride(ctx context.Context, policyName string, key job.Key) error {
	name, err := overrideName(policyName, key)
	if err == nil {
		err = s.table.Delete(ctx, name, 0)
	}
	if err != nil {
		return fmt.Errorf("delete override of %s.%s: %w", policyName, key, err)
	}
	return nil
}

// Overrides lists a policy's overrides in the order of the keys' bytes as they are stored, at most
// limit of those that come after a key; the empty Key means from the beginning. A record that
// cannot be understood is left out and logged.
func (s *Store) Overrides(ctx context.Context, policyName string, after job.Key,
	limit int) ([]Override, error) {
	names, err := s.table.Keys(ctx, policyName+".>")
	if err != nil {
		return nil, fmt.Errorf("overrides of %s: %w", policyName, err)
	}
	slices.Sort(names)
	if after != "" {
		last, err := overrideName(policyName, after)
		if err != nil {
			return nil, fmt.Errorf("overrides of %s: %w", policyName, err)
		}
		first, found := slices.BinarySearch(names, last)
		if found {
			first++
		}
		names = names[first:]
	}
	var overrides []Override
	for len(names) > 0 && len(overrides) < limit {
		batch := names[:min(len(names), limit-len(overrides))]
		names = names[len(batch):]
		records, err := s.table.Records(ctx, batch)
		if err != nil {
			return nil, fmt.Errorf("overrides of %s: %w", policyName, err)
		}
		for _, r := range records {
			if _, key, o, err := readOverride(r); err == nil {
				overrides = append(overrides, Override{key, o, r.Revision})
			} else {
				s.log.Warn("override left out: its record cannot be understood", "record", r.Key,
					"error", err)
			}
		}
	}
	return overrides, nil
}

// WatchOverrides calls changed for every override of every policy, then synced once, then changed
// for every change, all from one goroutine, until the context ends; then it returns nil. exists is
// false, and the override zero, for one that was deleted, or that cannot be understood, which is
// also logged: its key follows the policy then. It survives reconnects.
func (s *Store) WatchOverrides(
	ctx context.Context, changed func(policy string, key job.Key, o policy.Override, exists bool),
	synced func(),
) error {
	if synced == nil {
		synced = func() {}
	}
	return s.table.Watch(ctx, "*.>", func(r kv.Record) {
		name, key, o, err := readOverride(r)
		switch {
		case err == nil:
			changed(name, key, o, !r.Deleted)
			return
		case key != "":
			changed(name, key, policy.Override{}, false)
		}
		s.log.Warn("override left out: its record cannot be understood", "record", r.Key,
			"revision", r.Revision,
			"error", err)
	}, synced)
}

func encodeOverride(key job.Key, o policy.Override) ([]byte, error) {
	content, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	value, err := json.Marshal(overrideRecord{V: job.FormatVersion, Key: key, Override: content})
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return value, nil
}

// readOverride reads what a record's name says, and its value unless it is deleted. The key is
// empty when even the name cannot be understood.
func readOverride(r kv.Record) (policyName string, key job.Key, o policy.Override, err error) {
	if policyName, key, err = parseOverrideName(r.Key); err != nil || r.Deleted {
		return policyName, key, policy.Override{}, err
	}
	o, err = parseOverrideRecord(r.Value, key)
	return policyName, key, o, err
}

func parseOverrideRecord(value []byte, key job.Key) (policy.Override, error) {
	var r overrideRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return policy.Override{}, fmt.Errorf("read record: %w", err)
	}
	if r.V != job.FormatVersion {
		return policy.Override{}, fmt.Errorf("read record: %w: format %d", job.ErrVersion, r.V)
	}
	if r.Key != key {
		return policy.Override{}, fmt.Errorf("read record: it is of key %q, under the name of %q",
			r.Key, key)
	}
	o, err := policy.ParseOverride(r.Override)
	if err != nil {
		// Only valid overrides are written: this one by a process that knows more fields.
		// not the caller's mistake, so no InvalidError
		return policy.Override{}, fmt.Errorf("read record: %w: %v", job.ErrVersion, err)
	}
	return o, nil
}

// overrideName returns the name of an override's record: the policy, and the key's subject form
// with what the names of records cannot hold, "=" included, as =XX.
func overrideName(policyName string, key job.Key) (string, error) {
	if !policy.IsName(policyName) {
		return "", fmt.Errorf("%w: %q is not a policy's name", queue.ErrNotFound, policyName)
	}
	if _, err := job.ParseKey(string(key)); err != nil {
		return "", err
	}
	const hexDigits = "0123456789ABCDEF"
	var s strings.Builder
	s.WriteString(policyName)
	s.WriteByte('.')
	for i := 0; i < len(key); i++ {
		if c := key[i]; kv.Holds(c) && c != '=' {
			s.WriteByte(c)
		} else {
			s.WriteByte('=')
			s.WriteByte(hexDigits[c>>4])
			s.WriteByte(hexDigits[c&15])
		}
	}
	return s.String(), nil
}

// parseOverrideName undoes overrideName, and accepts nothing else.
func parseOverrideName(name string) (policyName string, key job.Key, err error) {
	policyName, encoded, found := strings.Cut(name, ".")
	var form []byte
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		if c == '=' {
			if i+2 >= len(encoded) {
				return "", "", fmt.Errorf("%w: %q ends in the middle", job.ErrInvalidKey, name)
			}
			b, err := strconv.ParseUint(encoded[i+1:i+3], 16, 8)
			if err != nil {
				return "", "", fmt.Errorf("%w: %q has an escape that is none", job.ErrInvalidKey,
					name)
			}
			c = byte(b)
			i += 2
		}
		form = append(form, c)
	}
	if !found {
		return "", "", fmt.Errorf("%w: %q names no key", job.ErrInvalidKey, name)
	}
	if key, err = job.ParseKey(string(form)); err != nil {
		return "", "", err
	}
	if again, err := overrideName(policyName, key); err != nil || again != name {
		return "", "", fmt.Errorf("%w: %q is not how key %q is stored", job.ErrInvalidKey, name,
			key)
	}
	return policyName, key, nil
}
