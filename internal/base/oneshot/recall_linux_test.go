package oneshot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// whole marks the end of a request.
var whole = []byte("the end of the request")

// held is a target whose link is held: it accepts a connection, and reads nothing until it is
// released.
type held struct {
	net.Listener
	conns chan net.Conn
}

func hold(t *testing.T) *held {
	t.Helper()
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			if err := syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF,
				4<<10); err != nil {
				t.Error(err)
			}
		})
	}}
	listener, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &held{listener, make(chan net.Conn, 1)}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			h.conns <- conn
		}
	}()
	return h
}

// release reads all that comes, and reports whether a whole request is in it.
func (h *held) release(t *testing.T) (arrived bool) {
	t.Helper()
	conn := <-h.conns
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(waittest.Patience()))
	got, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
	t.Logf("%d bytes arrived, then %v", len(got), err)
	return bytes.Contains(got, whole)
}

// dial makes connections whose kernel holds a whole request.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(256 << 10)
	}
	return c, err
}

// request is more than a held target's kernel takes.
func request(t *testing.T, ctx context.Context, to string) *http.Request {
	t.Helper()
	body := append(make([]byte, 64<<10), whole...)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to, nil)
	if err != nil {
		t.Fatal(err)
	}
	SetBody(r, body)
	return r
}

// send returns when a request is in the kernel.
func send(t *testing.T, ctx context.Context, e *Exchange, to string,
	transport *http.Transport) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	sent := make(chan struct{})
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: e.GetConn,
		GotConn:      e.GotConn,
		WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }})
	r := request(t, ctx, to)
	go func() {
		response, err := transport.RoundTrip(r)
		if err == nil {
			response.Body.Close()
		}
		ended <- err
	}()
	<-sent
	return ended
}

// A request is aborted while its target reads nothing. When the target reads again, after the end
// of the attempt, the rest of the request must not come.
func TestAnAbortedRequestDoesNotArriveLater(t *testing.T) {
	for name, transport := range map[string]*http.Transport{
		"our connections":     {DialContext: Dial(dial)},
		"others' connections": {DialContext: dial},
	} {
		h := hold(t)
		e := Exchange{MaxDelay: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		ended := send(t, ctx, &e, h.Addr().String(), transport)
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("%s: an aborted request was answered", name)
		}
		e.Wait()
		if h.release(t) {
			t.Errorf("%s: the request arrived after the end of its attempt", name)
		}
	}
}

// The process cannot end an attempt, because it is frozen, for example. Its kernel does.
func TestTheKernelGivesARequestUp(t *testing.T) {
	h := hold(t)
	e := Exchange{MaxDelay: 300 * time.Millisecond}
	transport := &http.Transport{DialContext: Dial(dial)}
	began := time.Now()
	ended := send(t, t.Context(), &e, h.Addr().String(), transport)
	select {
	case err := <-ended:
		if took := time.Since(began); !errors.Is(err, syscall.ETIMEDOUT) || took < e.MaxDelay {
			t.Errorf("it ended after %v with %v", took, err)
		}
	case <-time.After(waittest.Patience()):
		t.Fatal("the kernel goes on sending")
	}
	if h.release(t) {
		t.Error("the request arrived")
	}
}

// The process is killed. Its kernel must not send the rest of its requests.
func TestARequestDiesWithItsProcess(t *testing.T) {
	const to = "PENSTOCK_TEST_TARGET"
	if at := os.Getenv(to); at != "" {
		send(t, t.Context(), &Exchange{MaxDelay: time.Minute}, at,
			&http.Transport{DialContext: Dial(dial)})
		_, _ = os.Stdout.WriteString("sent\n")
		select {}
	}
	h := hold(t)
	c := exec.Command(os.Args[0], "-test.run=^TestARequestDiesWithItsProcess$")
	c.Env = append(os.Environ(), to+"="+h.Addr().String())
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("sent\n"))); err != nil {
		t.Error(err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if h.release(t) {
		t.Error("the request arrived after the death of its process")
	}
}
