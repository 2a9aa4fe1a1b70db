package memstore

import (
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"strings"
)

// name is a key as it is kept. All but long ones lie beside their state, which spares a look into
// other memory, and most of the time goes into such looks. With a state of two integers an entry is
// 64 bytes, one line of the cache.
type name struct {
	short [39]byte // the key (an IPv6 address and a UUID fit), or the hash of a long one
	size  uint8    // of the key, or isLong
	long  *string  // a key that does not fit into short
}

const isLong = 255

// newName returns the name of a key. It keeps nothing else alive: the key may be a piece of
// something larger.
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

// memory is the memory that n takes beside itself, in bytes.
func (n *name) memory() int64 {
	if n.size != isLong {
		return 0
	}
	return int64(len(*n.long)) + int64(reflect.TypeFor[string]().Size())
}

// is reports whether n is the name of a key.
func (n *name) is(key string) bool {
	if n.size == isLong {
		return *n.long == key
	}
	return string(n.short[:n.size]) == key
}

// hash is that of the key.
func (n *name) hash(seed maphash.Seed) uint64 {
	if n.size == isLong {
		return binary.NativeEndian.Uint64(n.short[:])
	}
	return maphash.Bytes(seed, n.short[:n.size])
}
