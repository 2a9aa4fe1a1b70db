package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

const (
	// readers is how many reads of one List are in flight.
	readers = 16
	// pageKeys is how many records one of them asks for. A server gives 1,024 at most, and the longest
	// keys, of overrides, must fit a request.
	pageKeys = 512
	// pageTries is how many replicas are asked for a page before the leader is for each of its keys.
	pageTries = 3
)

// readAll reads the records of some keys, sorted by key, without deleted ones; many of them by pages.
func (t *Table) readAll(ctx context.Context, keys []string) ([]Record, error) {
	size, last := 1, uint64(0)
	if len(keys) > readers {
		info, err := t.b.streamInfo(ctx, t.stream, "")
		if err != nil {
			return nil, translate(err)
		}
		size, last = pageKeys, info.State.LastSeq
	}
	pages := make(chan []string, len(keys))
	for page := range slices.Chunk(keys, size) {
		pages <- page
	}
	close(pages)

	var (
		mu      sync.Mutex
		records []Record
		failed  error
		wg      sync.WaitGroup
	)
	for range min(readers, len(pages)) {
		wg.Go(func() {
			for page := range pages {
				read, err := t.readPage(ctx, page, last)
				mu.Lock()
				records = append(records, read...)
				failed = cmp.Or(failed, err)
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return nil, failed
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
	return records, nil
}

// readPage reads the records of some keys, deleted ones left out. What no replica gives that has come
// as far as last, the leader is asked for.
func (t *Table) readPage(ctx context.Context, keys []string, last uint64) (read []Record, err error) {
	var found map[string]Record
	for try := 0; len(keys) > 1 && found == nil && try < pageTries; try++ {
		found = t.readDirect(ctx, keys, last)
	}
	for _, key := range keys {
		r, ok := found[key]
		if !ok {
			if r, err = t.read(ctx, key); errors.Is(err, ErrNotFound) {
				continue // deleted since
			} else if err != nil {
				return nil, err
			}
		}
		if !r.Deleted {
			read = append(read, r)
		}
	}
	return read, nil
}

// readDirect asks any replica for the records of some keys, and returns nil when it does not answer or
// is behind last.
func (t *Table) readDirect(ctx context.Context, keys []string, last uint64) map[string]Record {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nc := t.b.nc
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil
	}
	defer func() { _ = answers.Unsubscribe() }()
	var subjects []string
	for _, key := range keys {
		if validRecordKey(key) {
			subjects = append(subjects, t.prefix+key)
		}
	}
	request, err := json.Marshal(map[string][]string{"multi_last": subjects})
	if err == nil {
		err = nc.PublishRequest("$JS.API.DIRECT.GET."+t.stream, answers.Subject, request)
	}
	found := make(map[string]Record, len(keys))
	for err == nil {
		var m *nats.Msg
		if m, err = answers.NextMsgWithContext(ctx); err != nil {
			break
		}
		if d, ok := readDirect(m); ok {
			r := t.record(d.Subject, d.Header, d.Data, d.Seq, d.Time)
			found[r.Key] = r
			continue
		}
		// The end, which says how far the server has come, or a refusal, which does not.
		upTo, notEnd := strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64)
		if m.Header.Get("Status") != "" && (notEnd != nil || upTo < last) {
			return nil
		}
		if notEnd == nil {
			return found
		}
	}
	return nil
}
