package memstore

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/penstock-mq/penstock/algorithms"
)

func TestShardIsAMap(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		hashes := maphash.MakeSeed()
		var s shard[algorithms.FixedWindowState]
		want := make(map[string]int64)
		keys := 1 + random.IntN(600)
		for step := range 5000 {
			n := random.IntN(keys)
			key := strings.Repeat("\x00", n%3) + fmt.Sprint(n) + strings.Repeat("x", n%50)
			if n == 0 {
				key = ""
			}
			hash := maphash.String(hashes, key)
			state := s.find(hash, key)
			used, known := want[key]
			if known != (state != nil) || known && state.Used != used {
				t.Fatalf("seed %d, step %d: %q: %+v, want %d (known: %t)", seed, step, key, state,
					used, known)
			}
			switch {
			case !known:
				s.add(hashes, hash, newName(key, hash)).Used = int64(step)
				want[key] = int64(step)
			case random.IntN(3) > 0:
				s.remove(hashes, placeOf(&s, state))
				delete(want, key)
			}
			if s.used != len(want) {
				t.Fatalf("seed %d, step %d: %d places are used by %d keys", seed, step, s.used,
					len(want))
			}
			if random.IntN(500) == 0 {
				s.resize(hashes, s.used*8/7+1+random.IntN(100))
			}
		}
	}
}

func placeOf[S any](s *shard[S], state *S) int {
	for i := range s.entries {
		if &s.entries[i].state == state {
			return i
		}
	}
	return -1
}

func TestNamesOfDifferentKeysDiffer(t *testing.T) {
	seed := maphash.MakeSeed()
	keys := []string{"", "\x00", "\x00\x00", "a", "a\x00", strings.Repeat("a", 39),
		strings.Repeat("a", 40),
		strings.Repeat("a", 39) + "\x00", strings.Repeat("a", 39) + "b", strings.Repeat("a", 255),
		strings.Repeat("a", 256)}
	for _, a := range keys {
		n := newName(a, maphash.String(seed, a))
		if n.hash(seed) != maphash.String(seed, a) {
			t.Errorf("the name of %q has another hash", a)
		}
		for _, b := range keys {
			if n.is(b) != (a == b) {
				t.Errorf("%q is %q: %t", a, b, n.is(b))
			}
		}
	}
}

func TestNamesRetainNoLargerString(t *testing.T) {
	key := strings.Repeat("long", 20)
	if n := newName(key, 1); unsafe.StringData(*n.long) == unsafe.StringData(key) {
		t.Error("a name shares the memory of its caller's key")
	}
}
