//go:build !linux

package embedded

import "errors"

// syncDisk is not supported here: the server syncs its files itself.
func syncDisk(string) error { return errors.ErrUnsupported }
