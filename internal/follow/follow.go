// Package follow notices that files have changed.
package follow

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

// every is how often it looks.
const every = time.Second

// Files returns a part of a process that calls reload when one of the files has changed: by its
// time, its size, or because another file has taken its name, as Kubernetes does it. When reload
// fails it says so, once for each change, and what was there stands. It ends with its context.
func Files(what string, names []string, reload func() error,
	log *slog.Logger) func(context.Context) error {

	seen := look(names)
	return func(ctx context.Context) error {
		if len(names) == 0 {
			<-ctx.Done()
			return nil
		}
		timer := time.NewTicker(every)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return nil
			}
			now := look(names)
			if same(seen, now) {
				continue
			}
			seen = now
			if err := reload(); err != nil {
				log.Error(what+" have changed and are bad: the former ones stand", "error", err)
			} else {
				log.Info(what + " have changed, and were read again")
			}
		}
	}
}

// look returns what there is to know of files without reading them; nil of one that is not there.
func look(names []string) []fs.FileInfo {
	infos := make([]fs.FileInfo, len(names))
	for i, name := range names {
		if info, err := os.Stat(name); err == nil {
			infos[i] = info
		}
	}
	return infos
}

func same(before, now []fs.FileInfo) bool {
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
