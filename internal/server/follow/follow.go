// Package follow watches files for changes.
package follow

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/internal/server/health"
)

// Every is the polling interval. A change counts once two polls agree, because files may be
// half-written.
const Every = 500 * time.Millisecond

// Watch holds the last state of files. It is not safe for concurrent use.
type Watch struct {
	names     []string
	seen, now []fs.FileInfo
}

func Watching(names ...string) *Watch {
	w := &Watch{names: slices.DeleteFunc(names, func(name string) bool { return name == "" })}
	w.Seen()
	return w
}

func (w *Watch) Seen() {
	w.seen = look(w.names)
	w.now = w.seen
}

// Stale reports whether the files have changed since the last Seen.
func (w *Watch) Stale() bool { return !same(look(w.names), w.seen) }

// Changed polls, and accepts a changed state that has not changed since the last poll. A file
// differs by time, size or identity, since Kubernetes replaces files.
func (w *Watch) Changed() bool {
	before := w.now
	w.now = look(w.names)
	if same(w.now, w.seen) || !same(w.now, before) {
		return false
	}
	w.seen = w.now
	return true
}

// Files returns a part that calls reload when a file, or one in the directories, has changed. It
// logs a failed reload once per change.
func Files(what string, names []string, reload func() error,
	log *slog.Logger) func(context.Context) error {

	w := Watching(names...)
	if len(w.names) == 0 {
		return func(ctx context.Context) error { <-ctx.Done(); return nil }
	}
	return func(ctx context.Context) error {
		for {
			select {
			case <-time.After(Every):
			case <-ctx.Done():
				return nil
			}
			if !w.Changed() {
				continue
			}
			if err := reload(); err != nil {
				log.Error("changed files are invalid: the previous ones stay in force", "files",
					what, "error", err)
			} else {
				log.Info("changed files reloaded", "files", what)
			}
		}
	}
}

// Content is the parsed content of files. It is safe for concurrent use; a nil Content has no
// files.
type Content[T any] struct {
	kind    string
	names   []string
	load    func() (*T, error)
	status  *Status
	current atomic.Pointer[T]
}

func Open[T any](kind string, names []string, load func() (*T, error), status *Status) (
	*Content[T], error) {

	c := &Content[T]{kind: kind, names: names, load: load, status: status}
	return c, c.Reload()
}

// Current returns the last valid content.
func (c *Content[T]) Current() *T { return c.current.Load() }

// Reload reads the files again; invalid ones are ignored.
func (c *Content[T]) Reload() error {
	if c == nil {
		return nil
	}
	read, err := c.load()
	if err == nil {
		c.current.Store(read)
	}
	return c.status.Note(c.kind, err)
}

func (c *Content[T]) Follow(log *slog.Logger) func(context.Context) error {
	if c == nil {
		return Files("", nil, nil, log)
	}
	return Files(c.kind, c.names, c.Reload, log)
}

// look returns nil for missing files.
func look(names []string) []fs.FileInfo {
	infos := make([]fs.FileInfo, 0, len(names))
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			info = nil
		}
		if infos = append(infos, info); info == nil || !info.IsDir() {
			continue
		}
		inside, _ := os.ReadDir(name)
		for _, entry := range inside {
			info, err := os.Stat(filepath.Join(name, entry.Name()))
			if err == nil {
				infos = append(infos, info)
			}
		}
	}
	return infos
}

func same(before, now []fs.FileInfo) bool {
	if len(before) != len(now) {
		return false
	}
	for i := range before {
		a, b := before[i], now[i]
		if a == nil || b == nil {
			if a != b {
				return false
			}
			continue
		}
		if !a.ModTime().Equal(b.ModTime()) || a.Size() != b.Size() || !os.SameFile(a, b) {
			return false
		}
	}
	return true
}

// Status holds the result of the last read of each kind of file. It is safe for concurrent use.
type Status struct {
	// called by Note; may be nil
	Observe func(files string, err error)

	mu  sync.Mutex
	bad map[string]error
}

// Note records a read and returns err. On an error the former content stays in use.
func (s *Status) Note(files string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Observe != nil {
		s.Observe(files, err)
	}
	if err == nil {
		delete(s.bad, files)
		return nil
	}
	if s.bad == nil {
		s.bad = map[string]error{}
	}
	s.bad[files] = err
	return err
}

// Part reports on the files. Invalid ones do not affect readiness, because the process continues
// with the former ones.
func (s *Status) Part() health.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := health.Part{Name: "files", Status: "as they were read last"}
	if len(s.bad) > 0 {
		part.Status = "changed files are invalid: the previous ones stay in force"
	}
	for _, files := range slices.Sorted(maps.Keys(s.bad)) {
		part.Notes = append(part.Notes, fmt.Sprintf("%s: %v", files, s.bad[files]))
	}
	return part
}
