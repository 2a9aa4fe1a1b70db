package wiretest

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func echo(t *testing.T) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	l, err := New(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func dial(t *testing.T, l *Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.From)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(waittest.Patience())); err != nil {
		t.Fatal(err)
	}
	return c
}

func exchange(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	receive(t, c, text)
}

func receive(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v; want %q", got, err, text)
	}
}

func TestALinkCarriesWhatIsSentAndThenTheEnd(t *testing.T) {
	c := dial(t, echo(t))
	exchange(t, c, "hello")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v after the end", rest, err)
	}
}

func TestACutBreaksAndRefusesConnections(t *testing.T) {
	l := echo(t)
	before := dial(t, l)
	exchange(t, before, "hello")
	l.Become(Cut)
	broken := func(c net.Conn) {
		t.Helper()
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection holds: %v", err)
		}
	}
	broken(before)
	broken(dial(t, l))
	l.Become(Open)
	exchange(t, dial(t, l), "again")
}

func TestAStalledLinkLosesNothing(t *testing.T) {
	l := echo(t)
	before := dial(t, l)
	exchange(t, before, "hello")
	l.Become(Stalled)
	during := dial(t, l)
	for _, c := range []net.Conn{before, during} {
		if _, err := io.WriteString(c, "late"); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d bytes, %v over a stalled link", n, err)
		}
		if err := c.SetReadDeadline(time.Now().Add(waittest.Patience())); err != nil {
			t.Fatal(err)
		}
	}
	l.Become(Open)
	receive(t, before, "late")
	receive(t, during, "late")
}

func TestAStalledLinkCanBeCut(t *testing.T) {
	l := echo(t)
	c := dial(t, l)
	exchange(t, c, "hello")
	l.Become(Stalled)
	if _, err := io.WriteString(c, "lost"); err != nil {
		t.Fatal(err)
	}
	l.Become(Cut)
	if got, err := io.ReadAll(c); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestASlowLinkDelaysBothDirections(t *testing.T) {
	l := echo(t)
	c := dial(t, l)
	exchange(t, c, "hello")
	const delay = 30 * time.Millisecond
	l.Slow(delay)
	began := time.Now()
	exchange(t, c, "hello")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back in %v", took)
	}
}
