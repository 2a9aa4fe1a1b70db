package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

const (
	parallel = 16
	// A server returns at most 1,024.
	pageKeys = 512
	// pageTries is the number of replicas asked before the leader is asked key by key.
	pageTries = 3
)

// List reads the records whose key matches a filter such as "stripe.3.*" or ">", sorted by key,
// without deleted ones, as of the leader's state at the call or later.
func (t *Table) List(ctx context.Context, filter string) (records []Record, err error) {
	defer errs.Annotate(&err, "list %s/%s", t.bucket, filter)
	keys, err := t.Keys(ctx, filter)
	if err == nil {
		records, err = t.Records(ctx, keys)
	}
	return records, err
}

// Keys returns the keys that match a filter, unordered; some may be deleted.
func (t *Table) Keys(ctx context.Context, filter string) ([]string, error) {
	info, err := t.js.StreamInfo(ctx, t.stream, t.prefix+filter)
	if err != nil {
		return nil, fmt.Errorf("keys %s/%s: %w", t.bucket, filter, err)
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(subject, t.prefix))
	}
	return keys, nil
}

// Count counts the keys that match a filter, recently deleted ones included.
func (t *Table) Count(ctx context.Context, filter string) (uint64, error) {
	read, end, err := t.js.DirectGet(ctx, t.stream,
		map[string]any{"seq": 1, "next_by_subj": t.prefix + filter, "batch": 1}, 1)
	rest := uint64(0)
	if err == nil && len(read) > 0 {
		rest, err = strconv.ParseUint(end.Get("Nats-Num-Pending"), 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("count %s/%s: %w", t.bucket, filter, jsapi.Translate(err))
	}
	return rest + uint64(len(read)), nil
}

// DeleteAll deletes each key that matches a filter; watches report it.
func (t *Table) DeleteAll(ctx context.Context, filter string) error {
	records, err := t.List(ctx, filter)
	if err != nil {
		return err
	}
	return inParallel(records, func(r Record) error { return t.Delete(ctx, r.Key, 0) })
}

func inParallel[T any](items []T, do func(T) error) error {
	var failed atomic.Pointer[error]
	var doing sync.WaitGroup
	places := make(chan struct{}, parallel)
	for _, item := range items {
		places <- struct{}{}
		if failed.Load() != nil {
			break
		}
		doing.Go(func() {
			if err := do(item); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
			<-places
		})
	}
	doing.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Records is List for the given keys.
func (t *Table) Records(ctx context.Context, keys []string) ([]Record, error) {
	size, last := 1, uint64(0)
	if len(keys) > parallel {
		info, err := t.js.StreamInfo(ctx, t.stream, "")
		if err != nil {
			return nil, err
		}
		size, last = pageKeys, info.State.LastSeq
	}
	var mu sync.Mutex
	var records []Record
	err := inParallel(slices.Collect(slices.Chunk(keys, size)), func(page []string) error {
		found, err := t.readPage(ctx, page, last)
		mu.Lock()
		defer mu.Unlock()
		records = append(records, found...)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
	return records, nil
}

// readPage asks the leader for records that no replica at or beyond last returns.
func (t *Table) readPage(ctx context.Context, keys []string,
	last uint64) (records []Record, err error) {
	var found map[string]Record
	for try := 0; len(keys) > 1 && found == nil && try < pageTries; try++ {
		found = t.readReplica(ctx, keys, last)
	}
	for _, key := range keys {
		r, ok := found[key]
		if !ok {
			if r, err = t.read(ctx, key); errors.Is(err, ErrNotFound) {
				continue
			} else if err != nil {
				return nil, err
			}
		}
		if !r.Deleted {
			records = append(records, r)
		}
	}
	return records, nil
}

// readReplica asks any replica, and returns nil without an answer or if the replica is behind last.
func (t *Table) readReplica(ctx context.Context, keys []string, last uint64) map[string]Record {
	var subjects []string
	for _, key := range keys {
		if ValidKey(key) {
			subjects = append(subjects, t.prefix+key)
		}
	}
	read, end, err := t.js.DirectGet(ctx, t.stream, map[string]any{"multi_last": subjects},
		len(keys))
	upTo, notEnd := strconv.ParseUint(end.Get("Nats-UpTo-Sequence"), 10, 64)
	if err != nil || notEnd != nil || upTo < last {
		return nil
	}
	found := make(map[string]Record, len(keys))
	for _, m := range read {
		r := t.record(m)
		found[r.Key] = r
	}
	return found
}
