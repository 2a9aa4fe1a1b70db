package natsconn

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// SilencePatience is how long JetStream may store nothing until its server counts as cut off.
	// DESIGN.md, "Silences", has the other periods, which must agree.
	SilencePatience = 3 * time.Second

	probeEvery = time.Second // and how long a probe waits

	// The pause between two moves of a connection doubles from moveAgain to moveLast, because all
	// servers are silent while a leader is elected.
	moveAgain = 2 * SilencePatience
	moveLast  = time.Minute

	// lookEvery is the interval of looks at the servers that a connection knows.
	lookEvery = 5 * time.Second
)

// Silence judges by the outcomes of JetStream calls whether a connection's server is cut off from
// the others. Such a server accepts everything and answers nothing, or that nobody is there.
//
// After a call without an answer it probes once a second, by a write, until any write is stored:
// only a majority can do that, while a leader that has been cut off answers reads, and refuses
// writes, for ten seconds. After [SilencePatience] it moves the connection to another server, if
// one is known.
//
// It is safe for concurrent use. A nil one does nothing.
type Silence struct {
	nc    *nats.Conn
	log   *slog.Logger
	probe func(context.Context)
	born  time.Time

	since    atomic.Pointer[time.Time] // nil: writes are stored
	answered atomic.Int64              // the last write, after born
	looked   atomic.Int64              // at the servers, after born

	// of the watch
	probed time.Time
	moves  moves

	mu      sync.Mutex
	watched bool
	servers []string // the last known ones that were several
}

// NewSilence does no I/O. probe makes a write, whose outcome comes like any other.
func NewSilence(nc *nats.Conn, log *slog.Logger, probe func(context.Context)) *Silence {
	s := &Silence{nc: nc, log: log, probe: probe, born: time.Now()}
	s.look()
	return s
}

// Answered takes note of a stored write.
func (s *Silence) Answered() {
	if s == nil {
		return
	}
	now := int64(time.Since(s.born))
	s.answered.Store(now)
	if s.since.Load() != nil {
		s.since.Store(nil)
		return
	}
	if looked := s.looked.Load(); (looked == 0 || now-looked > int64(lookEvery)) &&
		s.looked.CompareAndSwap(looked, now) {
		s.look()
	}
}

// A server that loses its peers no longer names them, and nats.go then forgets them.
func (s *Silence) look() {
	if servers := s.nc.Servers(); len(servers) > 1 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.servers = servers
	}
}

// Unanswered takes note of any call that was not answered.
func (s *Silence) Unanswered(sent time.Time) {
	if s == nil {
		return
	}
	if last := s.born.Add(time.Duration(s.answered.Load())); sent.Before(last) {
		sent = last
	}
	if !s.since.CompareAndSwap(nil, &sent) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.watched {
		s.watched = true
		go s.watch()
	}
}

// Lasts returns for how long nothing was stored, once that exceeds [SilencePatience]; or 0.
func (s *Silence) Lasts() time.Duration {
	if s == nil {
		return 0
	}
	if since := s.since.Load(); since != nil {
		if lasts := time.Since(*since); lasts >= SilencePatience {
			return lasts
		}
	}
	return 0
}

// watch accompanies silences, one after the other, until there is none.
func (s *Silence) watch() {
	closed := s.nc.StatusChanged(nats.CLOSED)
	defer s.nc.RemoveStatusListener(closed)
	for since := s.since.Load(); since != nil; since = s.next() {
		if !s.last(since, closed) {
			return
		}
	}
}

// next returns the silence that has begun meanwhile; nil: the watch ends.
func (s *Silence) next() *time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.since.Load()
	s.watched = since != nil
	return since
}

// last accompanies a silence until it ends; false: the connection was closed.
func (s *Silence) last(since *time.Time, closed <-chan nats.Status) bool {
	told := false
	here, reconnects := *since, s.nc.Stats().Reconnects
	for {
		select {
		case <-time.After(probeEvery - time.Since(s.probed)):
		case <-closed:
			return false
		}
		if s.since.Load() == since && s.nc.IsConnected() {
			s.probed = time.Now()
			s.ask()
		}
		switch n := s.nc.Stats().Reconnects; {
		case s.nc.IsClosed():
			return false
		case s.since.Load() != since:
			if told {
				s.log.Info("NATS answers again", "url", s.nc.ConnectedUrlRedacted(),
					"silent", time.Since(*since).Round(time.Millisecond))
			}
			return true
		case n != reconnects || !s.nc.IsConnected():
			here, reconnects = time.Now(), n
		case time.Since(here) >= SilencePatience:
			told = s.move(since, told) || told
		}
	}
}

func (s *Silence) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), probeEvery)
	defer cancel()
	s.probe(ctx)
}

// move moves the connection, if it may, and reports whether a line was logged.
func (s *Silence) move(since *time.Time, told bool) bool {
	url, lasts := s.nc.ConnectedUrlRedacted(), time.Since(*since).Round(time.Millisecond)
	if !s.elsewhere() {
		if !told {
			s.log.Warn("NATS stores nothing, and no other server is known", "url", url,
				"silent", lasts)
		}
		return true
	}
	if now := time.Now(); s.moves.may(now) {
		s.moves.made(now)
		s.log.Warn("NATS stores nothing: the connection moves to another server", "url", url,
			"silent", lasts, "not_again_for", s.moves.pause)
		_ = s.nc.ForceReconnect() // an error: it was closed
		return true
	}
	return false
}

// elsewhere reports whether another server is known. nats.go tries the present one last.
func (s *Silence) elsewhere() bool {
	if len(s.nc.Servers()) > 1 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.servers) == 0 {
		return false
	}
	var pool []string
	for _, server := range slices.Concat(s.nc.Opts.Servers, s.servers) {
		if !slices.ContainsFunc(pool, func(p string) bool { return host(p) == host(server) }) {
			pool = append(pool, server)
		}
	}
	return s.nc.SetServerPool(pool) == nil && len(pool) > 1
}

func host(server string) string {
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	return u.Host
}

// moves bounds how often a connection moves.
type moves struct {
	last  time.Time
	pause time.Duration // until the next one
}

func (m *moves) may(now time.Time) bool { return now.Sub(m.last) >= m.pause }

func (m *moves) made(now time.Time) {
	if m.pause == 0 || now.Sub(m.last) >= 2*moveLast {
		m.pause = moveAgain / 2
	}
	m.last, m.pause = now, min(2*m.pause, moveLast)
}
