package memstore

import (
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"strings"
)

// name is a stored key. Short ones lie next to their state, which avoids a cache miss, the main
// cost of a call. With a state of two integers an entry is 64 bytes, a cache line.
type name struct {
	short [39]byte // key (an IPv6 address and a UUID fit), or hash of a long one
	size  uint8    // or isLong
	long  *string
}

const isLong = 255

func newName(key string, hash uint64) (n name) {
	if len(key) <= len(n.short) {
		copy(n.short[:], key)
		n.size = uint8(len(key))
		return n
	}
	long := strings.Clone(key)
	binary.NativeEndian.PutUint64(n.short[:], hash)
	n.size, n.long = isLong, &long
	return n
}

func (n *name) memory() int64 {
	if n.size != isLong {
		return 0
	}
	return int64(len(*n.long)) + int64(reflect.TypeFor[string]().Size())
}

func (n *name) is(key string) bool {
	if n.size == isLong {
		return *n.long == key
	}
	return string(n.short[:n.size]) == key
}

func (n *name) hash(seed maphash.Seed) uint64 {
	if n.size == isLong {
		return binary.NativeEndian.Uint64(n.short[:])
	}
	return maphash.Bytes(seed, n.short[:n.size])
}
