package store

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Inventory is the state of all records of policies.
type Inventory struct {
	OK, Draining int
	// by policy
	Unreadable map[string]error
	// streams without a record, whose jobs never start
	Orphaned map[string]queue.Stream
}

// Inventory compares records and streams. It deletes the records of deleted policies' partitions,
// unless they changed within age, because former owners still write.
func (s *Store) Inventory(ctx context.Context, age time.Duration) (found Inventory, err error) {
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
	known := map[string]bool{}
	for _, r := range records {
		known[r.Key] = true
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
		if known[name] {
			continue
		}
		stream, err := s.broker.Stream(ctx, name)
		switch {
		case err == nil:
			found.Orphaned[name], known[name] = stream, true
		case !errors.Is(err, queue.ErrNoStream):
			return found, err
		}
	}
	return found, s.sweep(ctx, known, time.Now().Add(-age))
}

func (s *Store) sweep(ctx context.Context, known map[string]bool, before time.Time) error {
	table := s.broker.Tables().Partitions
	keys, err := table.Keys(ctx, ">")
	if err != nil {
		return err
	}
	left, err := table.Records(ctx, slices.DeleteFunc(keys, func(key string) bool {
		name, rest, _ := strings.Cut(key, ".")
		number, _, _ := strings.Cut(rest, ".")
		_, err := strconv.Atoi(number)
		// others are of a shared limit, or damaged
		return err != nil || !policy.IsName(name) || known[name]
	}))
	for _, r := range left {
		if err == nil && r.Stored.Before(before) {
			err = table.Delete(ctx, r.Key, r.Revision)
		}
		if errors.Is(err, queue.ErrConflict) {
			err = nil
		}
	}
	return err
}
