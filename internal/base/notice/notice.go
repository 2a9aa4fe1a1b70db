// Package notice logs conditions: one line when a condition begins, and one when it ends.
package notice

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// Kind of condition, of any number of subjects.
type Kind struct {
	Level slog.Level
	// attribute with the subject; empty: there is only one
	Of         string
	Begin, End string // the lines; without End, the end is not logged
	Note       string // format of the subject and state, for [Log.Notes]
}

// Log is safe for concurrent use.
type Log struct {
	log *slog.Logger

	mu   sync.Mutex
	open map[*Kind]map[string]string
}

func New(log *slog.Logger) *Log { return &Log{log: log, open: map[*Kind]map[string]string{}} }

func If(holds bool) string {
	if holds {
		return "holds"
	}
	return ""
}

func Error(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// Tell takes a condition's state, empty when it does not hold, and reports whether it began, ended
// or changed.
func (l *Log) Tell(k *Kind, subject, state string, args ...any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[k][subject] == state {
		return false
	}
	l.set(k, subject, state, args)
	return true
}

func (l *Log) set(k *Kind, subject, state string, args []any) {
	level, line := slog.LevelInfo, k.End
	if state == "" {
		delete(l.open[k], subject)
	} else {
		if l.open[k] == nil {
			l.open[k] = map[string]string{}
		}
		level, line, l.open[k][subject] = k.Level, k.Begin, state
	}
	if k.Of != "" {
		args = append([]any{k.Of, subject}, args...)
	}
	if line != "" {
		l.log.Log(context.Background(), level, line, args...)
	}
}

// Only ends all conditions of a kind but these.
func (l *Log) Only(k *Kind, still func(subject string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, subject := range slices.Sorted(maps.Keys(l.open[k])) {
		if !still(subject) {
			l.set(k, subject, "", nil)
		}
	}
}

// Forget is [Log.Only] without log lines.
func (l *Log) Forget(k *Kind, still func(subject string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.open[k], func(subject, _ string) bool { return !still(subject) })
}

// Notes tells the conditions of some kinds that hold.
func (l *Log) Notes(kinds ...*Kind) (notes []string) {
	for _, k := range kinds {
		open := l.Open(k)
		for _, subject := range slices.Sorted(maps.Keys(open)) {
			notes = append(notes, fmt.Sprintf(k.Note, subject, open[subject]))
		}
	}
	return notes
}

func (l *Log) Open(k *Kind) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.open[k])
}
