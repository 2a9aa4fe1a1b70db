package waittest

import (
	"bytes"
	"strings"
	"sync"
)

// Log is a log that a test reads while others write to it. The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how many times a text was written so far.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
