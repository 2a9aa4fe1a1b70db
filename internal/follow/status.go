package follow

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/penstock-mq/penstock/internal/health"
)

// Status remembers the last read of each kind of file. It is safe for concurrent use.
type Status struct {
	// called by Note; may be nil
	Observe func(files string, err error)

	mu  sync.Mutex
	bad map[string]error // by kind
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
		part.Status = "some have changed and are bad: the former ones stand"
	}
	for _, files := range slices.Sorted(maps.Keys(s.bad)) {
		part.Notes = append(part.Notes, fmt.Sprintf("%s: %v", files, s.bad[files]))
	}
	return part
}
