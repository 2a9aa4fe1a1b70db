package lifecycle

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// briefRoom is for a request that is answered here, with its body.
const briefRoom = 4 << 10

// front serves connections while each request arrives in one piece and is brief. At the first other
// request it passes the connection, with the bytes read, to net/http. net/http spends half of its
// time on work that brief requests do not need: detecting that the client leaves, a deadline for
// each part, and bodies of any length.
type front struct {
	net.Listener
	brief   func(*http.Request) bool
	handler http.Handler
	server  *http.Server

	mu       sync.Mutex
	conns    map[net.Conn]bool // whether their first answer is still due
	stopping atomic.Bool
}

// Accept returns the connections that are net/http's from the beginning.
func (f *front) Accept() (net.Conn, error) {
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if secure, ok := conn.(*tls.Conn); ok {
			return hidden{secure}, nil
		}
		if f.brief == nil {
			return conn, nil
		}
		go f.serve(conn)
	}
}

func (f *front) serve(conn net.Conn) {
	f.mu.Lock()
	f.conns[conn] = true
	f.mu.Unlock()
	c := &briefConn{front: f, conn: conn, from: conn.RemoteAddr().String(),
		buf: make([]byte, briefRoom), header: http.Header{}}
	c.in = bufio.NewReaderSize(&c.source, briefRoom)
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			f.server.ErrorLog.Printf("panic serving %s: %v\n%s", c.from, v, debug.Stack())
		}
		f.mu.Lock()
		delete(f.conns, conn)
		f.mu.Unlock()
		if !c.left {
			_ = conn.Close()
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(headerTimeout)) // Read reports its error
	for c.next() {
	}
	if c.left {
		_ = conn.SetDeadline(time.Time{})
		// It returns when the connection has its own goroutine, or the server shuts down.
		only := make(onlyConn, 1)
		only <- &resumedConn{conn, c.buf[:c.read]}
		_ = f.server.Serve(only)
	}
}

// stop ends idle connections; the others end with their answer. The first request of a new one may
// be on its way.
func (f *front) stop() {
	f.stopping.Store(true)
	f.each(func(conn net.Conn, fresh bool) {
		by := time.Unix(1, 0)
		if fresh {
			by = time.Now().Add(firstTimeout)
		}
		_ = conn.SetReadDeadline(by)
	})
}

func (f *front) each(do func(conn net.Conn, fresh bool)) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn, fresh := range f.conns {
		do(conn, fresh)
	}
	return len(f.conns)
}

// briefConn is an [http.ResponseWriter] for one request after the other.
type briefConn struct {
	conn    net.Conn
	front   *front
	from    string
	buf     []byte
	read    int
	source  bytes.Reader
	in      *bufio.Reader
	renewed time.Time
	left    bool

	header http.Header
	status int
	body   []byte
	out    bytes.Buffer
}

func (c *briefConn) renew(now time.Time) {
	if now.Sub(c.renewed) > time.Second {
		if c.renewed.IsZero() {
			c.front.mu.Lock()
			c.front.conns[c.conn] = false
			c.front.mu.Unlock()
		}
		c.renewed = now
		_ = c.conn.SetDeadline(now.Add(idleTimeout)) // Read and Write report its error
	}
}

// next answers one request; false: there are no more here.
func (c *briefConn) next() bool {
	// net/http, too, closes a connection silently that ends within four bytes of an answer.
	for c.read == 0 || c.read < 4 && !c.renewed.IsZero() {
		if !c.renewed.IsZero() {
			c.renew(time.Now())
		}
		if c.front.stopping.Load() && !c.renewed.IsZero() {
			return false
		}
		n, err := c.conn.Read(c.buf[c.read:])
		if err != nil || n == 0 {
			return false
		}
		c.read += n
		if !c.renewed.IsZero() {
			c.skip(0)
		}
	}
	r := c.request()
	if r == nil || !c.front.brief(r) {
		c.left = true
		return false
	}
	end := c.read - c.source.Len() - c.in.Buffered() + int(r.ContentLength)
	r.RemoteAddr = c.from
	if !c.answer(r) {
		return false
	}
	c.skip(end)
	return true
}

// skip drops the answered request, and empty lines, which net/http also tolerates after a POST.
func (c *briefConn) skip(end int) {
	for i := 0; i < 4 && end < c.read && strings.IndexByte("\r\n", c.buf[end]) >= 0; i++ {
		end++
	}
	c.read = copy(c.buf, c.buf[end:c.read])
}

const hostChars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_:[]"

// request returns a complete and plain request, or nil.
func (c *briefConn) request() *http.Request {
	c.source.Reset(c.buf[:c.read])
	c.in.Reset(&c.source)
	r, err := http.ReadRequest(c.in)
	if err != nil || r.Proto != "HTTP/1.1" || r.RequestURI[0] != '/' || r.Close || r.Host == "" ||
		strings.Trim(r.Host, hostChars) != "" || r.ContentLength < 0 ||
		r.ContentLength > int64(c.source.Len()+c.in.Buffered()) {
		return nil
	}
	for name, values := range r.Header {
		switch {
		case name == "Connection" && len(values) == 1 && strings.EqualFold(values[0], "keep-alive"):
		case name == "Connection", name == "Expect", name == "Upgrade", name == "Te",
			strings.Contains(name, " "):
			return nil
		}
	}
	return r
}

// Header implements [http.ResponseWriter].
func (c *briefConn) Header() http.Header { return c.header }

func (c *briefConn) WriteHeader(status int) { c.status = status }

// Write implements [http.ResponseWriter].
func (c *briefConn) Write(p []byte) (int, error) {
	c.body = append(c.body, p...)
	return len(p), nil
}

func (c *briefConn) answer(r *http.Request) bool {
	clear(c.header)
	c.status, c.body = http.StatusOK, c.body[:0]
	c.front.handler.ServeHTTP(c, r)
	now := time.Now()
	if c.front.stopping.Load() {
		c.header["Connection"] = []string{"close"}
	}
	c.out.Reset()
	head := append(c.out.AvailableBuffer(), "HTTP/1.1 "...)
	head = append(strconv.AppendInt(head, int64(c.status), 10), ' ')
	head = append(append(head, http.StatusText(c.status)...), "\r\nDate: "...)
	head = append(now.UTC().AppendFormat(head, http.TimeFormat), "\r\n"...)
	c.out.Write(head)
	if c.status != http.StatusNoContent && c.header["Content-Length"] == nil {
		c.header["Content-Length"] = []string{strconv.Itoa(len(c.body))}
	}
	_ = c.header.Write(&c.out)
	c.out.WriteString("\r\n")
	c.out.Write(c.body)
	c.renew(now)
	_, err := c.conn.Write(c.out.Bytes())
	return err == nil && c.header["Connection"] == nil
}

// onlyConn is a listener for one connection, which it holds.
type onlyConn chan net.Conn

func (l onlyConn) Accept() (net.Conn, error) {
	select {
	case conn := <-l:
		return conn, nil
	default:
		return nil, io.EOF
	}
}

func (l onlyConn) Addr() net.Addr { return &net.TCPAddr{} }

func (l onlyConn) Close() error {
	if conn, err := l.Accept(); err == nil {
		return conn.Close()
	}
	return nil
}

// resumedConn begins with the bytes that were read before.
type resumedConn struct {
	net.Conn
	before []byte
}

// CloseWrite is as [member.CloseWrite].
func (c *resumedConn) CloseWrite() error { return closeWrite(c.Conn) }

func (c *resumedConn) Read(p []byte) (int, error) {
	if len(c.before) > 0 {
		n := copy(p, c.before)
		c.before = c.before[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
