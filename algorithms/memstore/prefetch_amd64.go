package memstore

import "unsafe"

// prefetch loads the cache line at p without waiting for it.
//
//go:noescape
func prefetch(p unsafe.Pointer)
