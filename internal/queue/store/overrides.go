package store

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

type overrideRecord struct {
	V        int             `json:"v"`
	Override json.RawMessage `json:"override"`
}

// Override is the stored override of a key.
type Override struct {
	Key      queue.Key
	Override inforce.Override
	Revision uint64
}

// MaxOverrides bounds a policy's overrides; deleted ones count for an hour.
const MaxOverrides = 100_000

// ChangeOverride replaces an override by compare-and-set; a zero one deletes it. change gets the
// current one, with revision 0 if it is new, and is repeated after a conflict; the same one is not
// written. It does not validate
// (see [inforce.Override.Validate]), because the policy may change later. Errors:
// [queue.ErrInvalidKey], [ErrTooMany].
func (s *Store) ChangeOverride(
	ctx context.Context, policyName string, key queue.Key,
	change func(Override) (inforce.Override, error),
) (put Override, err error) {
	defer errs.Annotate(&err, "override of %s.%s", policyName, key)
	name, err := overrideName(policyName, key)
	if err != nil {
		return put, err
	}
	put.Key = key
	put.Revision, err = s.table.Update(ctx, name, nil, 0, func(stored kv.Record) ([]byte, error) {
		current := Override{Key: key}
		var err error
		if stored.Value != nil {
			_, current, err = readOverride(stored)
		}
		if err == nil {
			put.Override, err = change(current)
		}
		switch {
		case err != nil || put.Override.IsZero():
			return nil, err
		case put.Override == current.Override:
			return stored.Value, nil
		}
		if stored.Value == nil {
			if err := s.overrideRoom(ctx, policyName); err != nil {
				return nil, err
			}
		}
		content, err := json.Marshal(put.Override)
		if err != nil {
			return nil, err
		}
		return json.Marshal(overrideRecord{V: job.FormatVersion, Override: content})
	})
	return put, err
}

func (s *Store) overrideRoom(ctx context.Context, policyName string) error {
	n, err := s.table.Count(ctx, policyName+".>")
	if err == nil && n >= s.overrides {
		err = fmt.Errorf("%w: %d keys of the policy have limits of their own, or had them within "+
			"the last hour, which is the maximum", ErrTooMany, n)
	}
	return err
}

// Override returns a key's override, or ErrNotFound.
func (s *Store) Override(ctx context.Context, policyName string, key queue.Key) (o Override,
	err error) {

	defer errs.Annotate(&err, "override of %s.%s", policyName, key)
	name, err := overrideName(policyName, key)
	if err != nil {
		return o, err
	}
	r, err := s.table.Read(ctx, name)
	if err == nil {
		_, o, err = readOverride(r)
	}
	return o, err
}

// Overrides lists at most limit overrides after a key, by the bytes of stored keys. Unreadable ones
// are logged.
func (s *Store) Overrides(ctx context.Context, policyName string, after queue.Key,
	limit int) (overrides []Override, err error) {
	defer errs.Annotate(&err, "overrides of %s", policyName)
	names, err := s.table.Keys(ctx, policyName+".>")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if after != "" {
		last, err := overrideName(policyName, after)
		if err != nil {
			return nil, err
		}
		first, found := slices.BinarySearch(names, last)
		if found {
			first++
		}
		names = names[first:]
	}
	for len(names) > 0 && len(overrides) < limit {
		batch := names[:min(len(names), limit-len(overrides))]
		names = names[len(batch):]
		records, err := s.table.Records(ctx, batch)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if _, o, err := readOverride(r); err == nil {
				overrides = append(overrides, o)
			} else {
				s.log.Warn("override left out: its record cannot be understood", "record", r.Key,
					"error", err)
			}
		}
	}
	return overrides, nil
}

// WatchOverrides calls changed for each override of all policies, then synced once, then changed
// for each change, from one goroutine, until the context ends; it returns nil. A deleted or
// unreadable one does not exist: the key follows its policy.
func (s *Store) WatchOverrides(
	ctx context.Context, changed func(policy string, key queue.Key, o inforce.Override,
		exists bool),
	synced func(),
) error {
	if synced == nil {
		synced = func() {}
	}
	return s.table.Watch(ctx, "*.>", func(r kv.Record) {
		if strings.HasPrefix(r.Key, setPrefix) {
			return
		}
		name, o, err := readOverride(r)
		if o.Key != "" {
			changed(name, o.Key, o.Override, err == nil && !r.Deleted)
		}
		if err == nil {
			return
		}
		s.log.Warn("override left out: its record cannot be understood", "record", r.Key,
			"revision", r.Revision,
			"error", err)
	}, synced)
}

// readOverride returns no key if the record's name is unreadable.
func readOverride(r kv.Record) (policyName string, o Override, err error) {
	policyName, key, err := parseOverrideName(r.Key)
	o = Override{Key: key, Revision: r.Revision}
	if err == nil && !r.Deleted {
		o.Override, err = parseOverride(r.Value)
	}
	return policyName, o, err
}

func parseOverride(value []byte) (o inforce.Override, err error) {
	defer errs.Annotate(&err, "read record")
	var r overrideRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return o, err
	}
	if err := checkFormat(r.V); err != nil {
		return o, err
	}
	if o, err = inforce.ParseOverride(r.Override); err != nil {
		err = fmt.Errorf("%w: %v", job.ErrVersion, err)
	}
	return o, err
}

var escapes = strings.NewReplacer("%", "=", "~", "=7E")

// overrideName is the policy and the key's subject form, with bytes that names cannot hold as =XX.
func overrideName(policyName string, key queue.Key) (string, error) {
	if !policy.IsName(policyName) {
		return "", fmt.Errorf("%w: %q is not a policy's name", jet.ErrNotFound, policyName)
	}
	if _, err := queue.ParseKey(string(key)); err != nil {
		return "", err
	}
	return policyName + "." + escapes.Replace(url.QueryEscape(string(key))), nil
}

func parseOverrideName(name string) (policyName string, key queue.Key, err error) {
	policyName, encoded, _ := strings.Cut(name, ".")
	form, err := url.PathUnescape(strings.ReplaceAll(encoded, "=", "%"))
	if err != nil {
		return "", "", fmt.Errorf("%w: %q: %w", queue.ErrInvalidKey, name, err)
	}
	if key, err = queue.ParseKey(form); err != nil {
		return "", "", err
	}
	if again, err := overrideName(policyName, key); err != nil || again != name {
		return "", "", fmt.Errorf("%w: %q is not how key %q is stored", queue.ErrInvalidKey, name,
			key)
	}
	return policyName, key, nil
}
