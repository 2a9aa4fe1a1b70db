// Package follow notices that files have changed, and remembers which of them are bad.
package follow

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Every is how often files are looked at. What is seen changed is read when the next look sees the
// same, so that nobody reads a file that is half written; so within a second.
const Every = 500 * time.Millisecond

// Watch knows how files looked. It is for one goroutine.
type Watch struct {
	names     []string
	seen, now []fs.FileInfo
}

// Watching begins with the files as they are.
func Watching(names ...string) *Watch {
	w := &Watch{names: slices.DeleteFunc(names, func(name string) bool { return name == "" })}
	w.Seen()
	return w
}

// Seen takes the files as they are for known.
func (w *Watch) Seen() {
	w.seen = look(w.names)
	w.now = w.seen
}

// Changed looks once, and reports whether a file is another than the one that is known and has not
// changed since the look before: then it is known. Another is one with another time or size, or one
// that has taken the name, as Kubernetes does it.
func (w *Watch) Changed() bool {
	before := w.now
	w.now = look(w.names)
	if same(w.now, w.seen) || !same(w.now, before) {
		return false
	}
	w.seen = w.now
	return true
}

// Files returns a part of a process that calls reload when one of the files has changed, or what is
// in one of them that is a directory. When
// reload fails it says so, once for each change, and what was there stands. It ends with its
// context.
func Files(what string, names []string, reload func() error,
	log *slog.Logger) func(context.Context) error {

	w := Watching(names...)
	return func(ctx context.Context) error {
		if len(w.names) == 0 {
			<-ctx.Done()
			return nil
		}
		timer := time.NewTicker(Every)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return nil
			}
			if !w.Changed() {
				continue
			}
			if err := reload(); err != nil {
				log.Error("files have changed and are bad: the former ones stand", "files", what,
					"error", err)
			} else {
				log.Info("files have changed, and were read again", "files", what)
			}
		}
	}
}

// look returns what there is to know of files without reading them, and of directories what is in
// them; nil of what is not there.
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
		inside, _ := os.ReadDir(name) // what cannot be read looks as if it were not there
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
