package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

type screen struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	live     bool
	started  time.Time
	shown    time.Time
}

func newScreen(f *os.File) *screen {
	info, err := f.Stat()
	return &screen{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0,
		started: time.Now()}
}

func (s *screen) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	return s.w.Write(data)
}

func (s *screen) clear() {
	if s.live {
		fmt.Fprint(s.w, "\r\033[K")
		s.live = false
	}
}

func (s *screen) say(format string, args ...any) {
	fmt.Fprintln(s, s.stamp(), fmt.Sprintf(format, args...))
}

func (s *screen) stamp() string { return fmt.Sprintf("%5.1fs ", time.Since(s.started).Seconds()) }

// progress prints a line a second without a terminal.
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
