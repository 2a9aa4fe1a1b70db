package store

import (
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

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
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
	Written    []SetChange
	Left       []SetChange // no longer in the set
	OfAPI      []string    // policies of the API, which the file has too, in vain
	Unreadable []error     // records of policies that are not in the file; they stay
	// shared limits that differ from other files': the last one stored applies
	Differing []error
}

// SetChange is a change of a policy by its file.
type SetChange struct {
	After    policy.Policy
	Before   *policy.Policy // nil: new, or unreadable
	Revision uint64
}

// Replace makes a file's policies those of its set: new and changed ones are written, and those
// that left it become the API's or drain. All are checked before any is written; the error joins
// all problems: errors of [Store.Put], policies of another set, records of a newer format, and a
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
	c, err := s.compare(ctx, f)
	if err != nil {
		return result, err
	}
	result = c.result
	if newest, err := s.bring(ctx, f, false); err != nil || !newest {
		return Replaced{Superseded: err == nil}, err
	}
	return result, s.carryOut(ctx, f, c, &result)
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
	result   Replaced
	inFile   map[string]bool
	stored   map[string]kv.Record // of policies in the file
	current  map[string]*record
	members  int // policies that are of the set now
	changed  []policy.Policy
	left     []string
	problems []error
}

func (c *comparison) problem(name string, err error) {
	if err != nil {
		c.problems = append(c.problems, fmt.Errorf("policy %s: %w", name, err))
	}
}

func (s *Store) compare(ctx context.Context, f Set) (*comparison, error) {
	records, err := s.table.List(ctx, "*")
	if err != nil {
		return nil, err
	}
	c := &comparison{inFile: map[string]bool{}, stored: map[string]kv.Record{},
		current: map[string]*record{}}
	for _, p := range f.Policies {
		c.inFile[p.Name] = true
	}
	for _, r := range records {
		c.add(f.Name, r)
	}
	added := 0
	for i, p := range f.Policies {
		next, err := s.fromFile(ctx, f.Name, c.current[p.Name], p)
		if errors.Is(err, errOfAPI) {
			c.result.OfAPI = append(c.result.OfAPI, p.Name)
			continue
		}
		c.problem(p.Name, err)
		if next != c.current[p.Name] {
			if c.changed = append(c.changed, p); c.current[p.Name] == nil {
				added++
			}
		}
		if len(p.SharedLimits()) > 0 {
			for _, other := range f.Policies[:i] {
				c.problem(p.Name, p.CheckShared(other))
			}
			c.problem(p.Name, c.sharedBeside(p))
		}
	}
	if n := len(c.left); !f.Shrink && n > 0 && (2*n > c.members || len(f.Policies) == 0) {
		c.problems = append(c.problems, policy.Invalid([]policy.Problem{{Field: "policies",
			Reason: fmt.Sprintf("set %s loses %d of its %d policies (%s): the file may be "+
				"truncated; if not, set allow_shrink: true", f.Name, n, c.members,
				strings.Join(c.left[:min(n, 10)], ", "))}}))
	}
	if len(c.problems) == 0 && added > 0 {
		c.problems = append(c.problems, s.room(ctx, added))
	}
	return c, errors.Join(c.problems...)
}

// add takes a stored policy.
func (c *comparison) add(set string, r kv.Record) {
	found, err := currentRecord(r)
	switch {
	case c.inFile[r.Key]:
		c.stored[r.Key] = r
		c.problem(r.Key, err)
	case err != nil || len(found.Policy) == 0:
		_, err := parseRecord(r.Value)
		c.result.Unreadable = append(c.result.Unreadable, fmt.Errorf("policy %s: %w", r.Key, err))
		return
	}
	c.current[r.Key] = found
	if found != nil && found.Source == policy.SourceFile && found.Set == set {
		if c.members++; !c.inFile[r.Key] {
			c.left = append(c.left, r.Key) // in the order of names
		}
	}
}

// sharedBeside compares a policy's shared limits with policies outside the file. A policy that
// already shares them may change them, and differences are only reported, because files do not
// change together. A policy new to a limit must match.
func (c *comparison) sharedBeside(p policy.Policy) (refused error) {
	was, err := c.current[p.Name].entry(0)
	shares := err == nil
	for _, l := range p.SharedLimits() {
		shares = shares && slices.ContainsFunc(was.Written.SharedLimits(),
			func(before policy.Limit) bool { return before.Shared == l.Shared })
	}
	for _, name := range slices.Sorted(maps.Keys(c.current)) {
		other, err := c.current[name].entry(0)
		if err != nil || c.inFile[name] || other.Draining {
			continue
		}
		switch err := p.CheckShared(other.Written); {
		case err != nil && shares:
			c.result.Differing = append(c.result.Differing, fmt.Errorf(
				"policy %s: %w; policy %s is of the set %q", p.Name, err, name, other.Set))
		case err != nil:
			refused = cmp.Or(refused, err)
		}
	}
	return refused
}

const putAtOnce = 64

// carryOut writes the changes of a comparison.
func (s *Store) carryOut(ctx context.Context, f Set, c *comparison, result *Replaced) error {
	a := leftFile
	if f.Prune {
		a = pruned
	}
	n := len(c.changed)
	changes, errs := make([]*SetChange, n+len(c.left)), make([]error, n+len(c.left))
	var writing sync.WaitGroup
	places := make(chan struct{}, putAtOnce)
	for i := range changes {
		places <- struct{}{}
		writing.Go(func() {
			if i < n {
				p := c.changed[i]
				changes[i], errs[i] = s.putFromFile(ctx, f.Name, p, c.stored[p.Name])
			} else {
				changes[i], errs[i] = s.leave(ctx, c.left[i-n], a, f.Name)
			}
			<-places
		})
	}
	writing.Wait()
	for i, change := range changes {
		switch {
		case change == nil:
		case i < n:
			result.Written = append(result.Written, *change)
		default:
			result.Left = append(result.Left, *change)
		}
	}
	return errors.Join(errs...)
}

func (s *Store) leave(ctx context.Context, name string, a act, set string) (change *SetChange,
	err error) {
	revision, err := s.change(ctx, name, func(current *record) (*record, error) {
		change = nil
		next, err := current.next(name, a, set)
		if err == nil && next != current {
			entry, _ := next.entry(0)
			change = &SetChange{After: entry.Written}
		}
		return next, err
	})
	if change != nil {
		change.Revision = revision
	}
	return change, wrap(err, "policy %s", name)
}

// putFromFile returns nil for an unchanged policy.
func (s *Store) putFromFile(ctx context.Context, set string, p policy.Policy,
	stored kv.Record) (change *SetChange, err error) {
	revision, err := s.replace(ctx, p.Name, &stored, func(current *record) (*record, error) {
		change = nil
		next, err := s.fromFile(ctx, set, current, p)
		if next == current || err != nil {
			return current, err
		}
		change = &SetChange{}
		if change.After, err = policy.Read(next.Policy); err != nil {
			return nil, err
		}
		if before, err := current.entry(0); err == nil {
			change.Before = &before.Written
		}
		return next, nil
	})
	if change != nil {
		change.Revision = revision
	}
	return change, wrap(err, "policy %s", p.Name)
}

// fromFile returns the record of a file's policy; current: unchanged.
func (s *Store) fromFile(ctx context.Context, set string, current *record, p policy.Policy) (
	*record, error) {

	next, err := current.next(p.Name, inFile, set)
	if err != nil {
		return nil, err
	}
	next.TargetSource = policy.SourceFile
	if err := s.fill(ctx, next, current, p); err != nil {
		return nil, err
	}
	if next.same(current) {
		return current, nil
	}
	return next, nil
}
