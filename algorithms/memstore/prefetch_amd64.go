package memstore

import "unsafe"

// prefetch loads the cache line at p without waiting for it. Go exposes no such intrinsic outside
// of the runtime.
//
//go:noescape
func prefetch(p unsafe.Pointer)
