package memstore

import "unsafe"

// prefetch begins to load the line of the cache that p points to, and does not wait for it. Neither
// Go nor its compiler has a name for that outside of the runtime.
//
//go:noescape
func prefetch(p unsafe.Pointer)
