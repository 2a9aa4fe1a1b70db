package embedded

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncDisk forces everything written to the file system of a directory to disk.
func syncDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Syncfs(int(f.Fd())), f.Close()); err != nil {
		return fmt.Errorf("sync the file system of %s: %w", dir, err)
	}
	return nil
}
