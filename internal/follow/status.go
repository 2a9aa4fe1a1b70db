package follow

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/penstock-mq/penstock/internal/health"
)

// Status remembers how each kind of a process's files was read last. The zero value knows of none.
// It is safe for concurrent use.
type Status struct {
	// Observe gets what is noted; nil: it is not called. It is set before the first note.
	Observe func(files string, err error)

	mu  sync.Mutex
	bad map[string]error // by the kind of files
}

// Note takes how files were read, and returns it. An error means that the former ones stand.
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

// Part reports on the files, with a note for each kind that is bad. They are no reason to take a
// process out of service: it goes on with the former ones.
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
