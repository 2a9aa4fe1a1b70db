package store

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

type Inventory struct {
	OK, Draining int
	// by policy
	Unreadable map[string]error
	// streams without a record, whose jobs never start
	Orphaned map[string]queue.Stream
}

// Inventory compares records and streams.
func (s *Store) Inventory(ctx context.Context) (found Inventory, err error) {
	defer errs.Annotate(&err, "look at what is stored of policies")
	found = Inventory{Unreadable: map[string]error{}, Orphaned: map[string]queue.Stream{}}
	// Streams are read first, because a record is older than its stream.
	streams, err := s.broker.Streams(ctx)
	if err != nil {
		return found, err
	}
	records, err := s.table.List(ctx, "*")
	if err != nil {
		return found, err
	}
	recorded := map[string]bool{}
	for _, r := range records {
		recorded[r.Key] = true
		switch entry, err := read(r); {
		case err != nil:
			found.Unreadable[r.Key] = err
		case entry.Draining:
			found.Draining++
		default:
			found.OK++
		}
	}
	for _, name := range streams {
		if recorded[name] {
			continue
		}
		stream, err := s.broker.Stream(ctx, name)
		switch {
		case err == nil:
			found.Orphaned[name] = stream
		case !errors.Is(err, queue.ErrNoStream):
			return found, err
		}
	}
	return found, nil
}

// Sweep deletes the records of deleted policies' partitions, unless they changed within age,
// because former owners still write.
func (s *Store) Sweep(ctx context.Context, age time.Duration) (err error) {
	defer errs.Annotate(&err, "sweep the records of partitions")
	before := time.Now().Add(-age)
	table := s.broker.Tables().Partitions
	keys, err := table.Keys(ctx, ">")
	if err != nil {
		return err
	}
	streams, err := s.broker.Streams(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, name := range streams {
		there[name] = true
	}
	left, err := table.Records(ctx, slices.DeleteFunc(keys, func(key string) bool {
		name, rest, _ := strings.Cut(key, ".")
		number, _, _ := strings.Cut(rest, ".")
		_, err := strconv.Atoi(number)
		// others are of a shared limit, or damaged
		return err != nil || !policy.IsName(name) || there[name]
	}))
	if err != nil {
		return err
	}
	for _, r := range left {
		if r.Stored.After(before) {
			continue
		}
		name, _, _ := strings.Cut(r.Key, ".")
		_, err := s.table.Read(ctx, name)
		if errors.Is(err, queue.ErrNotFound) {
			err = table.Delete(ctx, r.Key, r.Revision)
		}
		if err != nil && !errors.Is(err, queue.ErrConflict) {
			return err
		}
	}
	return nil
}
