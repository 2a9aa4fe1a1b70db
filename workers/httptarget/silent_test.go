package httptarget

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/workers"
)

// piped is a server's listener whose connections lose all that clients write after the cut.
type piped struct {
	accept chan net.Conn
	dials  atomic.Int64
}

type lossy struct {
	net.Conn
	cut *atomic.Bool
}

func (l lossy) Write(p []byte) (int, error) {
	if l.cut.Load() {
		return len(p), nil
	}
	return l.Conn.Write(p)
}

func (p *piped) dial(cut *atomic.Bool) net.Conn {
	ours, theirs := net.Pipe()
	p.dials.Add(1)
	p.accept <- theirs
	return lossy{ours, cut}
}

func (p *piped) Accept() (net.Conn, error) {
	conn, ok := <-p.accept
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p *piped) Close() error   { return nil }
func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

// Networks forget connections without a word, and every later request would wait on this one for
// the whole timeout: HTTP/2 keeps a connection whose requests time out.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	authority, now := certtest.New(t), time.Now()
	trusts := authority.Client("")
	pair, err := tls.LoadX509KeyPair(authority.Issue("target.example"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		trusts.Time = func() time.Time { return now }
		client, listener := Client(), &piped{accept: make(chan net.Conn)}
		transport := client.Transport.(*http.Transport)
		transport.TLSClientConfig = trusts
		var cut atomic.Bool
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			if listener.dials.Load() > 0 {
				return listener.dial(new(atomic.Bool)), nil
			}
			return listener.dial(&cut), nil
		}
		server := http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 {
					t.Errorf("asked by %s", r.Proto)
				}
			})}
		served := make(chan error)
		go func() { served <- server.ServeTLS(listener, "", "") }()

		handle := handlerWith(t, client, "https://target.example")
		run := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			return handle(ctx, workers.Job{Body: []byte("x")})
		}
		if err := run(); err != nil {
			t.Fatal(err)
		}
		cut.Store(true)
		began := time.Now()
		if err := run(); verdict(err) != "unavailable" || errors.Is(err,
			context.DeadlineExceeded) || time.Since(began) > time.Minute {
			t.Errorf("a job whose connection is silent got %v after %s", err, time.Since(began))
		}
		if err := run(); err != nil || listener.dials.Load() != 2 {
			t.Errorf("the next job got %v on connection %d", err, listener.dials.Load())
		}
		client.CloseIdleConnections()
		close(listener.accept)
		server.Close()
		<-served
	})
}
