//go:build unix

package config

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Opening a pipe without a writer would wait.
func TestAConfigurationIsNoPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadNamed(t, pipe); err == nil ||
		!strings.HasSuffix(err.Error(), "pipe is not a regular file") {
		t.Error(err)
	}
}
