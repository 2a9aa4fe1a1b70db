// Package wiretest has links between processes that a test slows, holds and cuts below HTTP and
// NATS.
package wiretest

import (
	"net"
	"sync"
	"time"
)

// Link forwards connections from one address to another.
type Link struct {
	From, To string
	listener net.Listener

	mu      sync.Mutex
	mode    Mode
	delay   time.Duration
	changed chan struct{}
	conns   map[net.Conn]bool
}

// Mode is what a link does with connections.
type Mode int

const (
	Open Mode = iota
	// Cut closes connections, also new ones. What is in transit is lost.
	Cut
	// Stalled holds bytes, unnoticed by both sides, and passes them on when the link is open again.
	Stalled
)

type chunk struct {
	data []byte
	due  time.Time
}

// in transit per direction
const mostChunks = 64

// New returns an open link to an address; the caller must Close it.
func New(to string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{From: listener.Addr().String(), To: to, listener: listener,
		changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	go l.serve()
	return l, nil
}

func (l *Link) serve() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.connect(near)
	}
}

func (l *Link) connect(near net.Conn) {
	if !l.passes() || !l.keep(near) {
		near.Close()
		return
	}
	defer l.forget(near)
	far, err := net.DialTimeout("tcp", l.To, 5*time.Second)
	if err != nil || !l.keep(far) {
		near.Close()
		return
	}
	defer l.forget(far)
	var both sync.WaitGroup
	both.Go(func() { l.carry(near, far) })
	both.Go(func() { l.carry(far, near) })
	both.Wait()
}

func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mode == Cut {
		return false
	}
	l.conns[c] = true
	return true
}

func (l *Link) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	c.Close()
}

// carry forwards one direction. Data in transit outlive the sender.
func (l *Link) carry(from, to net.Conn) {
	chunks := make(chan chunk, mostChunks)
	go func() {
		defer close(chunks)
		for {
			data := make([]byte, 16<<10)
			n, err := from.Read(data)
			if n > 0 {
				chunks <- chunk{data[:n], time.Now().Add(l.latency())}
			}
			if err != nil {
				return
			}
		}
	}()
	broken := false
	for c := range chunks {
		if broken {
			continue
		}
		time.Sleep(time.Until(c.due))
		if !l.passes() {
			broken = true
		} else if _, err := to.Write(c.data); err != nil {
			broken = true
		}
		if broken {
			from.Close()
		}
	}
	if !broken && l.passes() {
		_ = to.(*net.TCPConn).CloseWrite()
		return
	}
	to.Close()
}

// passes waits while the link is stalled; false: cut.
func (l *Link) passes() bool {
	for {
		l.mu.Lock()
		mode, changed := l.mode, l.changed
		l.mu.Unlock()
		if mode != Stalled {
			return mode == Open
		}
		<-changed
	}
}

func (l *Link) latency() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

// Become changes the mode, of existing connections too.
func (l *Link) Become(mode Mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = mode
	close(l.changed)
	l.changed = make(chan struct{})
	if mode == Cut {
		for c := range l.conns {
			c.Close()
		}
	}
}

// Slow delays data, in both directions, that are sent after this call.
func (l *Link) Slow(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

// Close closes the link and its connections.
func (l *Link) Close() {
	l.listener.Close()
	l.Become(Cut)
}
