package memstore

import (
	"sync"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// shardCount is how many locks there are: enough that callers on many cores seldom meet.
const shardCount = 128

// How many keys a call examines for being as good as new: always, before it adds a key, and before it gives up for
// want of room.
const (
	looks         = 1
	looksWhenNew  = 2
	looksWhenFull = 64
)

// helpEvery is every how many calls a shard sweeps as many keys of another one.
const helpEvery = 16

// smallest is the number of keys below which a shard's memory is not worth giving back.
const smallest = 64

// shard is a share of the keys. Entries lie in a slice, in no order, through which a hand goes round in small steps,
// which a map does not allow.
type shard[S any] struct {
	mu      sync.Mutex
	index   map[string]int // into entries
	entries []entry[S]
	hand    int
	calls   uint
	peak    int      // most entries since memory was last given back
	_       [64]byte // keeps neighbours from sharing a cache line
}

type entry[S any] struct {
	key   string
	state S
}

func (s *shard[S]) add(key string) *S {
	if s.index == nil {
		s.index = make(map[string]int)
	}
	s.index[key] = len(s.entries)
	s.entries = append(s.entries, entry[S]{key: key})
	s.peak = max(s.peak, len(s.entries))
	return &s.entries[len(s.entries)-1].state
}

// sweep examines the next few entries, removes those that were as good as new at the instant then, and returns how
// many.
func (s *shard[S]) sweep(rule algorithms.Rule[S], then time.Time, looks int) (removed int64) {
	for range min(looks, len(s.entries)) {
		if s.hand >= len(s.entries) {
			s.hand = 0
		}
		if rule.Peek(s.entries[s.hand].state, then, 1).ResetAfter > 0 {
			s.hand++
			continue
		}
		s.remove(s.hand)
		removed++
	}
	if removed > 0 && s.peak > smallest && len(s.entries) < s.peak/4 {
		s.shrink()
	}
	return removed
}

func (s *shard[S]) remove(i int) {
	last := len(s.entries) - 1
	delete(s.index, s.entries[i].key)
	if i != last {
		s.entries[i] = s.entries[last]
		s.index[s.entries[i].key] = i
	}
	s.entries[last] = entry[S]{}
	s.entries = s.entries[:last]
}

// shrink gives memory back, which neither a map nor a slice does by itself. It runs once for every 3/4 of the entries
// removed, so its work is spread over theirs.
func (s *shard[S]) shrink() {
	entries, index := make([]entry[S], len(s.entries), 2*len(s.entries)), make(map[string]int, len(s.entries))
	copy(entries, s.entries)
	for i := range entries {
		index[entries[i].key] = i
	}
	s.entries, s.index, s.peak = entries, index, len(entries)
}
