//go:build !linux

package embedded

import "errors"

// Not supported here: the server syncs its files.
func syncDisk(string) error { return errors.ErrUnsupported }
