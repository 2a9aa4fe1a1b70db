package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/policy"
)

// Set has the policies of a configuration file or program. A policy belongs to at most one set.
type Set struct {
	Name     string // default [policy.DefaultSet]
	Policies []policy.Policy
	Prune    bool // policies that leave the set drain and go; otherwise they become the API's
	Shrink   bool // the set may become empty or lose more than half of its policies
	// Again lets a text replace a newer one that replaced it; see [Store.Replace].
	Again bool
}

// Text identifies what the set says of its policies.
func (f Set) Text() string {
	var texts []string
	for _, p := range f.Policies {
		text, _ := json.Marshal(p) // if it cannot be encoded, Replace says so
		texts = append(texts, string(text))
	}
	slices.Sort(texts)
	sum := sha256.Sum256(fmt.Appendf(nil, "%t %q", f.Prune, texts))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Replaced is what [Store.Replace] did.
type Replaced struct {
	Superseded bool // nothing, because the text had been replaced before
	Changes    []SetChange
	OfAPI      []string // policies of the API, which the file has too, in vain
	Unreadable []error  // records of policies that are not in the file; they stay
	// shared limits that differ from other files': the last one stored applies
	Differing []error
}

// SetChange is a change of a policy by its file. If it left the file, its source is the API.
type SetChange struct{ Before, After inforce.Entry }

// Replace makes a file's policies those of its set: new and changed ones are written, and those
// that left it become the API's or drain. All are checked before any is written; the error joins
// all problems: errors of [Store.Change], policies of another set, records of a newer format, and a
// set that shrinks too much. An unreadable record is replaced if the policy fits its stream. A
// repetition after a crash does the rest.
//
// A text that another one has replaced in the set changes nothing without Again: so a process that
// restarts with an old file does not undo a newer one.
func (s *Store) Replace(ctx context.Context, f Set) (result Replaced, err error) {
	defer errs.Annotate(&err, "put the file's policies")
	f.Name = cmp.Or(f.Name, policy.DefaultSet)
	if newest, err := s.bring(ctx, f, true); err != nil || !newest {
		return Replaced{Superseded: err == nil}, err
	}
	c := comparison{set: f, records: map[string]kv.Record{}, stored: inforce.Entries{}}
	if err := s.compare(ctx, &c); err != nil {
		return Replaced{}, err
	}
	if newest, err := s.bring(ctx, f, false); err != nil || !newest {
		return Replaced{Superseded: err == nil}, err
	}
	return s.carryOut(ctx, &c)
}

type appearances struct {
	V     int      `json:"v"`
	Texts []string `json:"texts"` // of a set, the newest first
}

const (
	setPrefix = "=set."
	mostTexts = 100 // of a set that are remembered
)

// bring makes a text the newest of its set, and reports whether it is. dry only reports it.
func (s *Store) bring(ctx context.Context, f Set, dry bool) (newest bool, err error) {
	text := f.Text()
	_, err = s.table.Update(ctx, setPrefix+f.Name, nil, 0, func(r kv.Record) ([]byte, error) {
		known := appearances{V: job.FormatVersion}
		if err := json.Unmarshal(r.Value, &known); r.Value != nil && err != nil {
			known.Texts = nil // damaged: written again
		}
		at := slices.Index(known.Texts, text)
		if newest = at <= 0 || f.Again; !newest || dry || at == 0 {
			return r.Value, nil
		}
		texts := slices.DeleteFunc(known.Texts, func(t string) bool { return t == text })
		texts = append([]string{text}, texts...)
		return json.Marshal(appearances{job.FormatVersion, texts[:min(len(texts), mostTexts)]})
	})
	return newest, err
}

// comparison is of a set with the stored policies.
type comparison struct {
	set      Set
	records  map[string]kv.Record
	stored   inforce.Entries // readable ones
	changes  []setChange
	result   Replaced
	problems []error
}

// setChange is to be made, or done.
type setChange struct {
	name string
	Change
	SetChange
	err error
}

func (c *comparison) problem(name string, err error) {
	if err != nil {
		c.problems = append(c.problems, fmt.Errorf("policy %s: %w", name, err))
	}
}

func (s *Store) compare(ctx context.Context, c *comparison) error {
	records, err := s.table.List(ctx, "*")
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	for _, p := range c.set.Policies {
		listed[p.Name] = true
	}
	for _, r := range records {
		c.records[r.Key] = r
		if entry, err := read(r); err == nil {
			c.stored[r.Key] = &entry
		} else if !listed[r.Key] {
			c.result.Unreadable = append(c.result.Unreadable,
				fmt.Errorf("policy %s: %w", r.Key, err))
		}
	}
	added := 0
	for i, p := range c.set.Policies {
		r, known := c.records[p.Name]
		change := setChange{name: p.Name, Change: Change{Act: inFile, Set: c.set.Name,
			Edit: func(_ inforce.Entry, after *inforce.Entry) error {
				after.Written = p
				return nil
			}}}
		_, _, value, err := s.turn(ctx, p.Name, r, change.Change)
		switch {
		case errors.Is(err, errOfAPI):
			c.result.OfAPI = append(c.result.OfAPI, p.Name)
			continue
		case !bytes.Equal(value, r.Value):
			c.changes = append(c.changes, change)
		}
		if c.problem(p.Name, err); !known {
			added++
		}
		if len(p.SharedLimits()) > 0 {
			for _, other := range c.set.Policies[:i] {
				c.problem(p.Name, p.CheckShared(other))
			}
			c.beside(p, listed)
		}
	}
	c.leave(listed)
	if len(c.problems) == 0 && added > 0 {
		c.problems = append(c.problems, s.room(ctx, added))
	}
	return errors.Join(c.problems...)
}

// leave adds the policies that are no longer in the file, in the order of names.
func (c *comparison) leave(listed map[string]bool) {
	a, members, left := leftFile, 0, []string{}
	if c.set.Prune {
		a = pruned
	}
	for _, name := range slices.Sorted(maps.Keys(c.stored)) {
		if e := c.stored[name]; e.Source == inforce.SourceFile && e.Set == c.set.Name {
			if members++; !listed[name] {
				left = append(left, name)
				c.changes = append(c.changes, setChange{name: name,
					Change: Change{Act: a, Set: c.set.Name}})
			}
		}
	}
	if n := len(left); !c.set.Shrink && n > 0 && (2*n > members || len(c.set.Policies) == 0) {
		c.problems = append(c.problems, policy.Invalid([]policy.Problem{{Field: "policies",
			Reason: fmt.Sprintf("set %s loses %d of its %d policies (%s): the file may be "+
				"truncated; if not, set allow_shrink: true", c.set.Name, n, members,
				strings.Join(left[:min(n, 10)], ", "))}}))
	}
}

// beside compares a policy's shared limits with policies outside the file. A policy that already
// shares them may change them, and differences are only reported, because files do not change
// together. A policy new to a limit must match.
func (c *comparison) beside(p policy.Policy, listed map[string]bool) {
	was := c.stored[p.Name]
	shares := was != nil && !slices.ContainsFunc(p.SharedLimits(), func(l policy.Limit) bool {
		return !slices.ContainsFunc(was.Written.SharedLimits(),
			func(before policy.Limit) bool { return before.Shared == l.Shared })
	})
	for _, err := range differing(p, c.stored, listed) {
		if !shares {
			c.problem(p.Name, err)
			return
		}
		c.result.Differing = append(c.result.Differing, fmt.Errorf("policy %s: %w", p.Name, err))
	}
}

const putAtOnce = 64

// carryOut makes the changes of a comparison.
func (s *Store) carryOut(ctx context.Context, c *comparison) (Replaced, error) {
	var writing sync.WaitGroup
	places := make(chan struct{}, putAtOnce)
	for i := range c.changes {
		places <- struct{}{}
		writing.Go(func() {
			one := &c.changes[i]
			r := c.records[one.name]
			one.Before, one.After, one.err = s.change(ctx, one.name, &r, one.Change)
			<-places
		})
	}
	writing.Wait()
	for _, one := range c.changes {
		if one.err == nil && one.After.Revision != one.Before.Revision {
			c.result.Changes = append(c.result.Changes, one.SetChange)
		}
		c.problem(one.name, one.err)
	}
	return c.result, errors.Join(c.problems...)
}
