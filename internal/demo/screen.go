package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// screen prints permanent lines and, on a terminal, one changing line.
type screen struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	live     bool // the last line is the one that changes
	started  time.Time
	shown    time.Time
}

func newScreen(f *os.File) *screen {
	info, err := f.Stat()
	return &screen{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0,
		started: time.Now()}
}

// Write implements [io.Writer] for lines that stay.
func (s *screen) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	return s.w.Write(data)
}

// clear removes the changing line.
func (s *screen) clear() {
	if s.live {
		fmt.Fprint(s.w, "\r\033[K")
		s.live = false
	}
}

// say prints a line with the time in front.
func (s *screen) say(format string, args ...any) {
	fmt.Fprintln(s, s.stamp(), fmt.Sprintf(format, args...))
}

func (s *screen) stamp() string { return fmt.Sprintf("%5.1fs ", time.Since(s.started).Seconds()) }

// progress updates the changing line; without a terminal it prints a line every second.
func (s *screen) progress(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.stamp() + " " + fmt.Sprintf(format, args...)
	if s.terminal {
		s.clear()
		fmt.Fprint(s.w, line)
		s.live = true
		return
	}
	if now := time.Now(); now.Sub(s.shown) >= time.Second-look/2 {
		s.shown = now
		fmt.Fprintln(s.w, line)
	}
}
