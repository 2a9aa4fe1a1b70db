package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// dirLock prevents a second server from overwriting the files.
type dirLock struct{ file *os.File }

// ErrInUse means that another server uses the data directory.
var ErrInUse = errors.New("another server uses it")

func lockDir(dir string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "penstock.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write to the data directory: %w", err)
	}
	if err := tryLock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return &dirLock{f}, nil
}

func (l *dirLock) gone() bool {
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.file.Name())
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(ours, there)
}

func (l *dirLock) unlock() {
	if l != nil {
		_ = l.file.Close()
	}
}
