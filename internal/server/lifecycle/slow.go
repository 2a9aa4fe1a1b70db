package lifecycle

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// of a body in bytes per second, after its grace
const leastRate = 16 << 10

// A total limit would cut off long bodies of slow clients, and a limit between reads would let a
// trickle hold a connection for days.
func paced(next http.Handler, grace time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			now := time.Now()
			// a copy, because net/http checks its own body's rest
			slow := &struct {
				r    http.Request
				body pacedBody
			}{*r, pacedBody{ReadCloser: r.Body, conn: http.NewResponseController(w), grace: grace,
				began: now, until: now.Add(grace)}}
			// Connections without deadlines cannot be slow. The deadline also ends net/http's own
			// reading of unread bodies.
			if slow.body.conn.SetReadDeadline(slow.body.until) == nil {
				r = &slow.r
				r.Body = &slow.body
			}
		}
		next.ServeHTTP(w, r)
	})
}

// pacedBody extends its connection's deadline in proportion to the bytes received.
type pacedBody struct {
	io.ReadCloser
	conn  *http.ResponseController
	grace time.Duration
	began time.Time // reset when the answer gets its full time
	until time.Time
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	now := time.Now()
	b.until = b.until.Add(time.Duration(n) * time.Second / leastRate)
	if latest := now.Add(b.grace); b.until.After(latest) {
		b.until = latest
	}
	deadline := b.until
	if err == io.EOF { // further reads wait for the client to disconnect
		deadline = time.Time{}
	}
	// If the deadline cannot be set the connection is closed, and the next read fails.
	_ = b.conn.SetReadDeadline(deadline)
	if now.Sub(b.began) > time.Second {
		b.began = now
		_ = b.conn.SetWriteDeadline(now.Add(writeTimeout))
	}
	return n, err
}

// crowd limits the open connections of a listener.
type crowd struct {
	net.Listener
	options HTTPOptions
	refuse  func(conn net.Conn, why string)

	mu      sync.Mutex
	all     int
	clients map[netip.Addr]int
}

// Limited limits the connections of servers of other protocols.
func Limited(listener net.Listener, o HTTPOptions) net.Listener {
	return newCrowd(listener, o, func(net.Conn, string) {})
}

func newCrowd(listener net.Listener, o HTTPOptions, refuse func(net.Conn, string)) *crowd {
	o.MaxConnections = cmp.Or(o.MaxConnections, DefaultMaxConnections)
	o.MaxPerClient = cmp.Or(o.MaxPerClient, DefaultMaxPerClient)
	return &crowd{Listener: listener, options: o, refuse: refuse,
		clients: map[netip.Addr]int{}}
}

func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		entered := &member{Conn: conn, stall: c.options.Stall,
			leave: sync.OnceFunc(func() { c.leave(conn) })}
		why := c.enter(conn)
		if why == "" {
			return entered, nil
		}
		c.refuse(conn, why)
		_ = entered.Close()
	}
}

// enter returns why the connection must be closed, or "".
func (c *crowd) enter(conn net.Conn) (why string) {
	client, bounded := c.client(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	if bounded {
		c.clients[client]++
	}
	switch {
	case c.all > c.options.MaxConnections:
		return "too many connections are open"
	case c.clients[client] > c.options.MaxPerClient:
		return "too many connections of this address are open"
	}
	return ""
}

func (c *crowd) leave(conn net.Conn) {
	client, bounded := c.client(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if !bounded {
		return
	}
	if c.clients[client]--; c.clients[client] == 0 {
		delete(c.clients, client)
	}
}

type member struct {
	net.Conn
	leave func()
	stall time.Duration // of each write; 0: net/http's deadline
}

func (m *member) Write(p []byte) (int, error) {
	if m.stall > 0 {
		_ = m.SetWriteDeadline(time.Now().Add(m.stall)) // Write reports its error
	}
	return m.Conn.Write(p)
}

func (m *member) Close() error {
	defer m.leave()
	return m.Conn.Close()
}

// CloseWrite lets net/http flush an answer before closing the connection.
func (m *member) CloseWrite() error { return closeWrite(m.Conn) }

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *crowd) client(conn net.Conn) (netip.Addr, bool) {
	return c.options.Client(conn.RemoteAddr())
}

// Client returns the address that MaxPerClient counts by, and whether it applies.
func (o HTTPOptions) Client(at net.Addr) (netip.Addr, bool) {
	var address netip.Addr
	if tcp, ok := at.(*net.TCPAddr); ok {
		address = tcp.AddrPort().Addr()
	} else if from, err := netip.ParseAddrPort(at.String()); err == nil {
		address = from.Addr()
	} else {
		return netip.Addr{}, true
	}
	address = address.Unmap().WithZone("")
	for _, network := range o.Unbounded {
		if network.Contains(address) {
			return address, false
		}
	}
	if address.Is6() { // the least network of a client
		network, _ := address.Prefix(64)
		address = network.Addr()
	}
	return address, true
}

// A new connection's buffers have room for the answer.
func refuse(conn net.Conn, why string) {
	document := fmt.Sprintf(`{"type":%q,"title":"Temporarily reduced capacity","status":503,`+
		`"detail":%q,"reason":"busy"}`,
		"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", why)
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"+
		"Content-Type: application/problem+json\r\nContent-Length: %d\r\n"+
		"Connection: close\r\n\r\n%s", len(document), document)
}
