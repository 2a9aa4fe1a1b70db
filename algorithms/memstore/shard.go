package memstore

import (
	"hash/maphash"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/penstock-mq/penstock/algorithms"
)

const shardBits = 7

const (
	fewPlaces  = 8
	somePlaces = 64
)

// shard has a part of the keys in a hash table with linear probing. A map would separate keys of
// different length, cannot be swept in steps, and never shrinks.
type shard[S any] struct {
	mu      sync.Mutex
	calls   uint
	marks   []mark
	entries []entry[S]
	used    int
	hand    int
	bytes   int64
	told    int64    // part of bytes in the store's total
	_       [32]byte // against false sharing
}

type entry[S any] struct {
	name  name
	state S
}

// mark is 0 for a free place. Its high byte is the hash's tag, which skips most other keys, its low
// byte the distance from home, at most far.
type mark uint16

const far = 255

func newMark(hash uint64, away int) mark { return tag(hash) | mark(min(away, far)) }

// tag is the lowest bits; the highest select the shard, the next 32 the home.
func tag(hash uint64) mark { return mark(hash)<<8 | 1<<15 }

func (m mark) tag() mark { return m &^ far }
func (m mark) away() int { return int(m & far) }

// home is where a search begins. Homes are in hash order at any size, which makes resize almost
// sequential.
func (s *shard[S]) home(hash uint64) int {
	return int((hash << shardBits >> 32) * uint64(len(s.marks)) >> 32)
}

func (s *shard[S]) next(place int) int {
	if place++; place < len(s.marks) {
		return place
	}
	return 0
}

func (s *shard[S]) distance(from, to int) int {
	if from <= to {
		return to - from
	}
	return to - from + len(s.marks)
}

// fetch prefetches the entry that find will most likely return, which takes most of a decision's
// time and overlaps with reading the clock.
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

// find returns a key's state, valid until the shard is unlocked, or nil.
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

func (s *shard[S]) add(seed maphash.Seed, hash uint64, name name) *S {
	if s.crowded() {
		s.resize(seed, s.larger())
	}
	s.bytes += name.memory()
	return s.insert(hash, name)
}

func (s *shard[S]) crowded() bool { return s.used >= len(s.marks)*7/8 }

func (s *shard[S]) larger() int { return max(fewPlaces, len(s.marks)*5/4) }

// growth is the memory of another key, without its name.
func (s *shard[S]) growth() int64 {
	if !s.crowded() {
		return 0
	}
	return s.table(s.larger()) - s.table(len(s.marks))
}

func (s *shard[S]) table(places int) int64 {
	return int64(places) * int64(reflect.TypeFor[entry[S]]().Size()+reflect.TypeFor[mark]().Size())
}

func stateSize[S any](state *S) int64 {
	if log, ok := any(state).(*algorithms.SlidingLogState); ok {
		return log.Size()
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

// remove moves later entries up, but not before their home.
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
	s.hand = s.hand * places / max(len(marks), 1)
}

// sweep removes keys of the next places that were back in their initial state at an instant.
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
		s.remove(seed, s.hand) // another may have moved up
		removed++
	}
	if removed > 0 && len(s.marks) > somePlaces && s.used < len(s.marks)/4 {
		s.resize(seed, len(s.marks)/2)
	}
	return removed
}

// evict removes the coldest of the next keys: the first to be back in its initial state, and among
// equals the key with most units left.
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
