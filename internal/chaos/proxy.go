//go:build unix

package main

import (
	"net"
	"sync"
	"time"
)

type link struct {
	from, to string
	listener net.Listener

	mu      sync.Mutex
	mode    linkMode
	delay   time.Duration
	changed chan struct{}
	conns   map[net.Conn]bool
}

type linkMode int

const (
	open linkMode = iota
	cut
	// bytes wait, unnoticed by both sides
	stalled
)

type chunk struct {
	data []byte
	due  time.Time
}

// in transit per direction
const mostChunks = 64

func newLink(to string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{from: listener.Addr().String(), to: to, listener: listener,
		changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	go l.serve()
	return l, nil
}

func (l *link) serve() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.connect(near)
	}
}

func (l *link) connect(near net.Conn) {
	if !l.passes() || !l.keep(near) {
		near.Close()
		return
	}
	defer l.forget(near)
	far, err := net.DialTimeout("tcp", l.to, 5*time.Second)
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

func (l *link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mode == cut {
		return false
	}
	l.conns[c] = true
	return true
}

func (l *link) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	c.Close()
}

// carry forwards one direction. Data in transit outlive the sender.
func (l *link) carry(from, to net.Conn) {
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
func (l *link) passes() bool {
	for {
		l.mu.Lock()
		mode, changed := l.mode, l.changed
		l.mu.Unlock()
		if mode != stalled {
			return mode == open
		}
		<-changed
	}
}

func (l *link) latency() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

func (l *link) become(mode linkMode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = mode
	close(l.changed)
	l.changed = make(chan struct{})
	if mode == cut {
		for c := range l.conns {
			c.Close()
		}
	}
}

// for data sent after this call
func (l *link) slow(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

func (l *link) close() {
	l.listener.Close()
	l.become(cut)
}
