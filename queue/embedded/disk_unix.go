//go:build unix && !solaris && !illumos && !aix

package embedded

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func halfOfTheDisk(dir string) (int64, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return 0, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return 0, fmt.Errorf("ask for the free space of %s: %w", dir, err)
	}
	free := int64(disk.Bavail) * int64(disk.Bsize)
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		free += info.Size()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	return max(free/2, 1), nil
}
