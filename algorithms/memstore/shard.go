package memstore

import (
	"hash/maphash"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/penstock-mq/penstock/algorithms"
)

// shardBits is the binary logarithm of how many locks there are: enough that callers on many cores
// seldom meet.
const shardBits = 7

// A shard has fewPlaces to begin with. Memory for no more than somePlaces is not worth giving back.
const (
	fewPlaces  = 8
	somePlaces = 64
)

// shard is a share of the keys: a hash table with open addressing and linear probing. A map would
// have the keys' text in other memory, cannot be gone round in small steps, and gives no memory
// back.
type shard[S any] struct {
	mu      sync.Mutex
	calls   uint
	marks   []mark // by place
	entries []entry[S]
	used    int      // places that are not free
	hand    int      // the place that sweep looks at next
	bytes   int64    // of all memory of the shard
	told    int64    // of these, what the store knows of
	_       [32]byte // keeps neighbours from sharing a line of the cache
}

type entry[S any] struct {
	name  name
	state S
}

// mark is 0 for a free place. Otherwise its high byte is the tag of the key's hash, by which a
// search passes nearly all other keys without a look at them. Its low byte is how far the place is
// from the entry's home; from far on it does not tell.
type mark uint16

const far = 255

func newMark(hash uint64, away int) mark { return tag(hash) | mark(min(away, far)) }

// tag is the hash's lowest bits; its highest ones choose the shard, the next 32 the home.
func tag(hash uint64) mark { return mark(hash)<<8 | 1<<15 }

func (m mark) tag() mark { return m &^ far }
func (m mark) away() int { return int(m & far) }

// home is the place where a search begins. Homes come in the order of the hashes, whatever the
// number of places, so resize moves entries almost in sequence.
func (s *shard[S]) home(hash uint64) int {
	return int((hash << shardBits >> 32) * uint64(len(s.marks)) >> 32)
}

// next is the place after another one, the first after the last.
func (s *shard[S]) next(place int) int {
	if place++; place < len(s.marks) {
		return place
	}
	return 0
}

// distance is how many steps lead from one place to another.
func (s *shard[S]) distance(from, to int) int {
	if from <= to {
		return to - from
	}
	return to - from + len(s.marks)
}

// fetch begins to load the entry that find most likely finds. Most of a decision's time goes into
// waiting for it, and meanwhile the clock can be read, which waits for all loads that are not such.
func (s *shard[S]) fetch(hash uint64) {
	if len(s.marks) == 0 {
		return
	}
	i := s.home(hash)
	for s.marks[i] != 0 && s.marks[i].tag() != tag(hash) {
		i = s.next(i)
	}
	prefetch(unsafe.Pointer(&s.entries[i]))
}

// find returns the state of a key, or nil. It is valid until the shard is unlocked.
func (s *shard[S]) find(hash uint64, key string) *S {
	if len(s.marks) == 0 {
		return nil
	}
	for i := s.home(hash); s.marks[i] != 0; i = s.next(i) {
		if s.marks[i].tag() == tag(hash) && s.entries[i].name.is(key) {
			return &s.entries[i].state
		}
	}
	return nil
}

// add returns a state for a key that has none.
func (s *shard[S]) add(seed maphash.Seed, hash uint64, name name) *S {
	if s.crowded() {
		s.resize(seed, s.larger())
	}
	s.bytes += name.memory()
	return s.insert(hash, name)
}

// crowded reports whether the table grows for one more key: fuller, searches would be long.
func (s *shard[S]) crowded() bool { return s.used >= len(s.marks)*7/8 }

func (s *shard[S]) larger() int { return max(fewPlaces, len(s.marks)*5/4) }

// growth is the memory that one more key takes, but for its name's own.
func (s *shard[S]) growth() int64 {
	if !s.crowded() {
		return 0
	}
	return s.table(s.larger()) - s.table(len(s.marks))
}

// table is the memory of so many places.
func (s *shard[S]) table(places int) int64 {
	return int64(places) * int64(reflect.TypeFor[entry[S]]().Size()+reflect.TypeFor[mark]().Size())
}

// stateSize is the memory that a state takes beside itself, in bytes.
func stateSize[S any](state *S) int64 {
	if log, ok := any(state).(*algorithms.SlidingLogState); ok {
		return 8 * int64(cap(log.Times))
	}
	return 0
}

func (s *shard[S]) insert(hash uint64, name name) *S {
	home := s.home(hash)
	i := home
	for s.marks[i] != 0 {
		i = s.next(i)
	}
	s.used++
	s.marks[i] = newMark(hash, s.distance(home, i))
	s.entries[i].name = name
	return &s.entries[i].state
}

// remove frees a place. Entries behind it move up, but none to before its home, so that every
// search still comes by.
func (s *shard[S]) remove(seed maphash.Seed, place int) {
	s.bytes -= s.entries[place].name.memory() + stateSize(&s.entries[place].state)
	for i := s.next(place); s.marks[i] != 0; i = s.next(i) {
		gap, away := s.distance(place, i), s.marks[i].away()
		if away == far {
			away = s.distance(s.home(s.entries[i].name.hash(seed)), i)
		}
		if away >= gap {
			s.marks[place] = s.marks[i].tag() | mark(min(away-gap, far))
			s.entries[place] = s.entries[i]
			place = i
		}
	}
	s.marks[place], s.entries[place] = 0, entry[S]{}
	s.used--
}

// resize moves the entries to a table of so many places.
func (s *shard[S]) resize(seed maphash.Seed, places int) {
	marks, entries := s.marks, s.entries
	s.bytes += s.table(places) - s.table(len(marks))
	s.marks, s.entries, s.used = make([]mark, places), make([]entry[S], places), 0
	for i := range marks {
		if marks[i] != 0 {
			e := &entries[i]
			*s.insert(e.name.hash(seed), e.name) = e.state
		}
	}
	s.hand = s.hand * places / max(len(marks), 1) // before the same entry as it was
}

// sweep examines the next few places, removes keys that were as good as new at the instant then,
// and returns how many.
func (s *shard[S]) sweep(rule algorithms.Rule[S], seed maphash.Seed, then time.Time,
	looks int) (removed int64) {
	for range min(looks, len(s.marks)) {
		if s.hand >= len(s.marks) {
			s.hand = 0
		}
		if s.marks[s.hand] == 0 || rule.Peek(s.entries[s.hand].state, then, 1).ResetAfter > 0 {
			s.hand++
			continue
		}
		s.remove(seed, s.hand) // the hand stays: another entry may have moved up
		removed++
	}
	if removed > 0 && len(s.marks) > somePlaces && s.used < len(s.marks)/4 {
		s.resize(seed, len(s.marks)/2)
	}
	return removed
}

// evict removes the coldest of the next few keys, and reports whether there was one: the key that
// would be as good as new first, and of those that would be at the same time the one that has used
// least.
func (s *shard[S]) evict(rule algorithms.Rule[S], seed maphash.Seed, now time.Time,
	sample int) bool {
	coldest := -1
	var least algorithms.Decision
	for range s.marks {
		if s.hand >= len(s.marks) {
			s.hand = 0
		}
		place := s.hand
		s.hand++
		if s.marks[place] == 0 {
			continue
		}
		d := rule.Peek(s.entries[place].state, now, 1)
		if coldest < 0 || d.ResetAfter < least.ResetAfter ||
			d.ResetAfter == least.ResetAfter && d.Remaining > least.Remaining {
			coldest, least = place, d
		}
		if sample--; sample == 0 {
			break
		}
	}
	if coldest < 0 {
		return false
	}
	s.remove(seed, coldest)
	return true
}
