package waittest

import (
	"bytes"
	"strings"
	"sync"
)

// Log is a log for concurrent writing and reading. The zero value is empty.
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

// String returns the text so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns the number of occurrences of a text so far.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
