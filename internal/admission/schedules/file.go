package schedules

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
)

// File is a loaded set of policies with its schedules.
type File struct {
	Set      string
	Policies []policy.Policy
	// nil: the file has no list
	Entries []Entry
}

// in spite of concurrent changes
const applyTries = 20

// Apply writes the entries whose text has changed since a file of the set last wrote them, and
// removes those that left the file. So rereading a file does not shift an @every, or undo an
// operator's change. Errors: [*policy.InvalidError], [jet.ErrStreamFull], [jet.ErrUnavailable].
func (s *Service) Apply(ctx context.Context, f File) error {
	var err error
	for range applyTries {
		if err = s.apply(ctx, f); !errors.Is(err, jet.ErrConflict) {
			break
		}
	}
	switch {
	case errors.Is(err, jet.ErrConflict): // or a stale replica
		return fmt.Errorf("%w: write the file's schedules: %w", jet.ErrUnavailable, err)
	case err != nil:
		return fmt.Errorf("write the file's schedules: %w", err)
	}
	return nil
}

func (s *Service) apply(ctx context.Context, f File) error {
	before, err := s.schedules.AppliedFile(ctx, f.Set)
	if err != nil {
		return err
	}
	if f.Entries == nil {
		if n := len(before.Texts); n > 0 {
			s.options.Logger.Warn("the file has no list of schedules any more: those that it had "+
				"go on; schedules: [] ends them", "set", f.Set, "schedules", n)
		}
		return nil
	}
	var texts []string
	for _, e := range f.Entries {
		texts = append(texts, brief(e))
	}
	slices.Sort(texts)
	if slices.Equal(texts, before.Texts) {
		return nil
	}
	if err := s.schedules.SetUp(ctx); err != nil {
		return err
	}
	stored, err := s.stored(ctx)
	if err != nil {
		return err
	}
	gone, err := s.write(ctx, f, before.Texts, stored)
	if err != nil {
		return err
	}
	for _, left := range gone {
		if err := s.leave(ctx, f.Set, left); err != nil {
			return err
		}
	}
	return s.schedules.SetAppliedFile(ctx, f.Set, before, texts)
}

// write returns the stored schedules that no entry names.
func (s *Service) write(ctx context.Context, f File, written []string,
	stored map[string]jet.Schedule) (others map[string]jet.Schedule, err error) {
	others = maps.Clone(stored)
	total := len(stored)
	var problems []policy.Problem
	for i, e := range f.Entries {
		wanted, err := e.schedule(f.Set, among(f.Policies))
		if err == nil {
			was, there := stored[wanted.ID()]
			delete(others, wanted.ID())
			if slices.Contains(written, brief(e)) {
				continue
			}
			if !there {
				total++
			}
			err = s.file(ctx, e, was, wanted, total)
		}
		if errors.Is(err, jet.ErrUnavailable) || errors.Is(err, jet.ErrConflict) {
			return nil, err
		} else if err != nil {
			p := e.problem(err)
			p.Field = fmt.Sprintf("schedules[%d].%s", i, p.Field)
			problems = append(problems, p)
		}
	}
	return others, policy.Invalid(problems)
}

func brief(e Entry) string {
	sum := sha256.Sum256([]byte(e.id()))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func (s *Service) stored(ctx context.Context) (map[string]jet.Schedule, error) {
	all, err := s.schedules.List(ctx, "*")
	stored := map[string]jet.Schedule{}
	for _, one := range all {
		stored[one.ID()] = one
	}
	return stored, err
}

func (s *Service) file(ctx context.Context, e Entry, was, wanted jet.Schedule,
	total int) error {
	if e.Paused == nil {
		wanted.Paused = was.Paused
	}
	log := s.options.Logger.With("policy", wanted.Policy, "key", e.Key, "schedule", wanted.Name,
		"set", wanted.Set)
	switch {
	case same(was, wanted):
		return nil
	case over(wanted.When):
		log.Warn("a schedule of the file is for an instant that has passed: it makes no job",
			"when", wanted.When)
		return nil
	case total > jet.MaxSchedules:
		return fmt.Errorf("%w: there are %d schedules", jet.ErrStreamFull, jet.MaxSchedules)
	}
	err := s.schedules.Replace(ctx, was, wanted)
	if errors.Is(err, jet.ErrSchedule) {
		return translate(err)
	}
	if err != nil {
		return err
	}
	log.Info("schedule written by the file", "when", wanted.When, "zone", wanted.Zone, "paused",
		wanted.Paused, "new", was.When == "")
	return nil
}

func (s *Service) leave(ctx context.Context, set string, left jet.Schedule) error {
	if left.Set != set {
		return nil
	}
	err := s.schedules.Remove(ctx, left.Policy, left.Key, left.Name)
	if err != nil && !errors.Is(err, jet.ErrNotFound) {
		return err
	}
	s.options.Logger.Info("schedule removed: it is no longer in the file", "policy",
		left.Policy, "key", left.Key.Raw(), "schedule", left.Name, "set", set)
	return nil
}

func same(a, b jet.Schedule) bool {
	return a.When == b.When && a.Zone == b.Zone && a.Paused == b.Paused && a.Set == b.Set &&
		sameJobs(a, b)
}

func sameJobs(a, b jet.Schedule) bool {
	return bytes.Equal(a.Body, b.Body) &&
		maps.EqualFunc(a.Header, b.Header, slices.Equal[[]string])
}

func over(when string) bool {
	instant, ok := strings.CutPrefix(when, at)
	t, err := time.Parse(time.RFC3339, instant)
	return ok && err == nil && t.Before(time.Now())
}
