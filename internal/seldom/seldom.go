// Package seldom limits repeated log lines.
package seldom

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	every = 10 * time.Second
	most  = 1000
)

// Log writes a line about a subject once in ten seconds, with the number of lines left out. It is
// safe for concurrent use.
type Log struct {
	log *slog.Logger

	mu   sync.Mutex
	told map[string]*told // by subject
}

type told struct {
	at      time.Time
	leftOut int
}

func New(log *slog.Logger) *Log { return &Log{log: log, told: map[string]*told{}} }

func (l *Log) Log(about string, level slog.Level, message string, args ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.told[about]
	if t == nil {
		if len(l.told) >= most {
			clear(l.told)
		}
		t = &told{}
		l.told[about] = t
	}
	now := time.Now()
	if now.Sub(t.at) < every {
		t.leftOut++
		return
	}
	if t.leftOut > 0 {
		args = append(args, "left_out", t.leftOut)
	}
	l.log.Log(context.Background(), level, message, args...)
	t.at, t.leftOut = now, 0
}
