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

// Log writes a line about a subject once in ten seconds, with the number of lines left out since.
// It is safe for concurrent use.
type Log struct {
	log *slog.Logger

	mu   sync.Mutex
	told map[string]*told
}

type told struct {
	at      time.Time
	leftOut int
	last    line
}

type line struct {
	level   slog.Level
	message string
	args    []any
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
	if t.last = (line{level, message, args}); time.Since(t.at) < every {
		t.leftOut++
		return
	}
	l.write(t)
}

func (l *Log) write(t *told) {
	if t.leftOut > 0 {
		t.last.args = append(t.last.args, "left_out", t.leftOut)
	}
	l.log.Log(context.Background(), t.last.level, t.last.message, t.last.args...)
	*t = told{at: time.Now()}
}

// Flush writes the last line that was left out of each subject whose ten seconds are over, or at
// the end of all.
func (l *Log) Flush(end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.told {
		if t.leftOut > 0 && (end || time.Since(t.at) >= every) {
			t.leftOut--
			l.write(t)
		}
	}
}
