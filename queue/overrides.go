package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/policy"
)

// overrideRecord is the stored form of an override.
type overrideRecord struct {
	V        int             `json:"v"`
	Key      Key             `json:"key"`
	Override json.RawMessage `json:"override"`
}

// KeyOverride is one key's override.
type KeyOverride struct {
	Key      Key
	Override policy.Override
	Revision uint64 // of the record; a higher one is newer
}

// MaxOverrides is how many keys of one policy may have an override; those count for another hour that were deleted.
const MaxOverrides = 100_000

// PutOverride gives one key of a policy limits of its own, in place of those it may have had, and returns the record's
// revision. The zero override is as good as none and takes the record away. Whether the override suits the policy is
// not looked at (see [policy.Override.Validate]): a policy may change later, too, and what does not suit it then has no
// effect. It answers [ErrInvalidKey] for what is no key, and [ErrTooMany].
func (b *Broker) PutOverride(ctx context.Context, policyName string, key Key, o policy.Override) (uint64, error) {
	put, err := b.ChangeOverride(ctx, policyName, key, func(KeyOverride) (policy.Override, error) { return o, nil })
	if err != nil {
		return 0, fmt.Errorf("put override: %w", err)
	}
	return put.Revision, nil
}

// ChangeOverride replaces a key's override by what change makes of it, by compare-and-set: change gets the present one,
// with revision 0 when there is none, and is called again when somebody else was faster. Its error ends the attempt and
// is returned.
func (b *Broker) ChangeOverride(
	ctx context.Context, policyName string, key Key, change func(KeyOverride) (policy.Override, error),
) (KeyOverride, error) {
	name, err := overrideName(policyName, key)
	var put KeyOverride
	for written := false; err == nil && !written; {
		put, written, err = b.changeOverride(ctx, policyName, name, key, change)
	}
	if err != nil {
		return KeyOverride{}, fmt.Errorf("override of %s.%s: %w", policyName, key, err)
	}
	return put, nil
}

// changeOverride tries it once; false: somebody else was faster.
func (b *Broker) changeOverride(ctx context.Context, policyName, name string, key Key,
	change func(KeyOverride) (policy.Override, error)) (put KeyOverride, written bool, err error) {

	stored, err := b.policies.Read(ctx, name)
	current := KeyOverride{Key: key}
	switch {
	case err == nil:
		current.Revision = stored.Revision
		if current.Override, err = parseOverrideRecord(stored.Value, key); err != nil {
			return current, false, err
		}
	case !errors.Is(err, ErrNotFound):
		return current, false, err
	}
	next, err := change(current)
	if err != nil {
		return current, false, err
	}
	put = KeyOverride{Key: key, Override: next}
	if next.IsZero() {
		if current.Revision == 0 {
			return put, true, nil
		}
		err = b.policies.Delete(ctx, name, stored.Revision)
	} else {
		put.Revision, err = b.writeOverride(ctx, policyName, name, stored, put)
	}
	if errors.Is(err, ErrConflict) && ctx.Err() == nil {
		return put, false, nil
	}
	return put, err == nil, err
}

// writeOverride stores an override over what was read, unless it is the same.
func (b *Broker) writeOverride(
	ctx context.Context, policyName, name string, stored Record, put KeyOverride,
) (revision uint64, err error) {
	value, err := encodeOverride(put.Key, put.Override)
	if err != nil || bytes.Equal(value, stored.Value) {
		return stored.Revision, err
	}
	if stored.Value == nil {
		n, err := b.policies.count(ctx, policyName+".>")
		if err == nil && n >= MaxOverrides {
			err = fmt.Errorf("%w: %d keys of the policy have limits of their own, the most that can, or had them within "+
				"the last hour", ErrTooMany, n)
		}
		if err != nil {
			return 0, err
		}
	}
	return b.policies.Put(ctx, name, value, stored.Revision)
}

// Override is what one key of a policy obeys instead of the policy's numbers; [ErrNotFound] when it has no override.
func (b *Broker) Override(ctx context.Context, policyName string, key Key) (KeyOverride, error) {
	name, err := overrideName(policyName, key)
	var r Record
	if err == nil {
		r, err = b.policies.Read(ctx, name)
	}
	o := KeyOverride{Key: key, Revision: r.Revision}
	if err == nil {
		o.Override, err = parseOverrideRecord(r.Value, key)
	}
	if err != nil {
		return KeyOverride{}, fmt.Errorf("override of %s.%s: %w", policyName, key, err)
	}
	return o, nil
}

// DeleteOverride lets a key obey its policy again. A key without an override is no error.
func (b *Broker) DeleteOverride(ctx context.Context, policyName string, key Key) error {
	name, err := overrideName(policyName, key)
	if err == nil {
		err = b.policies.Delete(ctx, name, 0)
	}
	if err != nil {
		return fmt.Errorf("delete override of %s.%s: %w", policyName, key, err)
	}
	return nil
}

// Overrides lists a policy's overrides in the order of the keys' bytes as they are stored, at most limit of those that
// come after a key; the empty Key means from the beginning. A record that cannot be understood is left out and logged.
func (b *Broker) Overrides(ctx context.Context, policyName string, after Key, limit int) ([]KeyOverride, error) {
	names, err := b.policies.keys(ctx, policyName+".>")
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
	var overrides []KeyOverride
	for len(names) > 0 && len(overrides) < limit {
		batch := names[:min(len(names), limit-len(overrides))]
		names = names[len(batch):]
		records, err := b.policies.readAll(ctx, batch)
		if err != nil {
			return nil, fmt.Errorf("overrides of %s: %w", policyName, err)
		}
		for _, r := range records {
			if _, key, o, err := readOverride(r); err == nil {
				overrides = append(overrides, KeyOverride{key, o, r.Revision})
			} else {
				b.log.Warn("override left out: its record cannot be understood", "record", r.Key, "error", err)
			}
		}
	}
	return overrides, nil
}

// WatchOverrides calls changed for every override of every policy, then synced once, then changed for every change, all
// from one goroutine, until the context ends; then it returns nil. exists is false, and the override zero, for one that
// was deleted, or that cannot be understood, which is also logged: its key obeys the policy then. It survives
// reconnects.
func (b *Broker) WatchOverrides(
	ctx context.Context, changed func(policy string, key Key, o policy.Override, exists bool), synced func(),
) error {
	if synced == nil {
		synced = func() {}
	}
	return b.policies.Watch(ctx, "*.>", func(r Record) {
		name, key, o, err := readOverride(r)
		switch {
		case err == nil:
			changed(name, key, o, !r.Deleted)
			return
		case key != "":
			changed(name, key, policy.Override{}, false)
		}
		b.log.Warn("override left out: its record cannot be understood", "record", r.Key, "revision", r.Revision,
			"error", err)
	}, synced)
}

func encodeOverride(key Key, o policy.Override) ([]byte, error) {
	content, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	value, err := json.Marshal(overrideRecord{V: formatVersion, Key: key, Override: content})
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return value, nil
}

// readOverride reads what a record's name says, and its value unless it is deleted. The key is empty when even the name
// cannot be understood.
func readOverride(r Record) (policyName string, key Key, o policy.Override, err error) {
	if policyName, key, err = parseOverrideName(r.Key); err != nil || r.Deleted {
		return policyName, key, policy.Override{}, err
	}
	o, err = parseOverrideRecord(r.Value, key)
	return policyName, key, o, err
}

func parseOverrideRecord(value []byte, key Key) (policy.Override, error) {
	var r overrideRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return policy.Override{}, fmt.Errorf("read record: %w", err)
	}
	if r.V != formatVersion {
		return policy.Override{}, fmt.Errorf("read record: %w: format %d", ErrVersion, r.V)
	}
	if r.Key != key {
		return policy.Override{}, fmt.Errorf("read record: it is of key %q, under the name of %q", r.Key, key)
	}
	o, err := policy.ParseOverride(r.Override)
	if err != nil {
		// Only what is sound was written, by somebody who knows more fields than we do.
		return policy.Override{}, fmt.Errorf("read record: %w: %v", ErrVersion, err) // no caller gave it: not his mistake
	}
	return o, nil
}

// overrideName is the name of an override's record: the policy, and the key's subject form with what the names of
// records cannot hold, "=" included, as =XX.
func overrideName(policyName string, key Key) (string, error) {
	if policyName == "" || strings.Contains(policyName, ".") || !validRecordKey(policyName) {
		return "", fmt.Errorf("%w: %q is not a policy's name", ErrNotFound, policyName)
	}
	if _, err := ParseKey(string(key)); err != nil {
		return "", err
	}
	const hexDigits = "0123456789ABCDEF"
	var s strings.Builder
	s.WriteString(policyName)
	s.WriteByte('.')
	for i := 0; i < len(key); i++ {
		if c := key[i]; standsInRecordKey(c) && c != '=' {
			s.WriteByte(c)
		} else {
			s.WriteByte('=')
			s.WriteByte(hexDigits[c>>4])
			s.WriteByte(hexDigits[c&15])
		}
	}
	return s.String(), nil
}

// parseOverrideName undoes overrideName, and takes only what it produces.
func parseOverrideName(name string) (policyName string, key Key, err error) {
	policyName, encoded, found := strings.Cut(name, ".")
	var form []byte
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		if c == '=' {
			if i+2 >= len(encoded) {
				return "", "", fmt.Errorf("%w: %q ends in the middle", ErrInvalidKey, name)
			}
			high, low := unhex(encoded[i+1]), unhex(encoded[i+2])
			if high < 0 || low < 0 {
				return "", "", fmt.Errorf("%w: %q has an escape that is none", ErrInvalidKey, name)
			}
			c = byte(high<<4 | low)
			i += 2
		}
		form = append(form, c)
	}
	if !found {
		return "", "", fmt.Errorf("%w: %q names no key", ErrInvalidKey, name)
	}
	if key, err = ParseKey(string(form)); err != nil {
		return "", "", err
	}
	if again, err := overrideName(policyName, key); err != nil || again != name {
		return "", "", fmt.Errorf("%w: %q is not how key %q is stored", ErrInvalidKey, name, key)
	}
	return policyName, key, nil
}
