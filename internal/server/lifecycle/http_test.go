package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newPipes() *pipes { return &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
}

type answer struct {
	body string
	err  error
}

func ask(c *http.Client) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		response, err := c.Get("http://penstock/")
		if err != nil {
			out <- answer{err: err}
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		out <- answer{string(body), err}
	}()
	return out
}

func TestHTTPLetsRequestsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, log := newPipes(), &bytes.Buffer{}
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(20 * time.Second)
			if r.Context().Err() != nil {
				t.Error("the request's context ended with the process's")
			}
			io.WriteString(w, "done")
		})
		part := lifecycle.HTTP(listener, slow, lifecycle.HTTPOptions{Grace: 30 * time.Second,
			Logger: slog.New(slog.NewTextHandler(log, nil))})
		ctx, stop := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() { returned <- part(ctx) }()
		client := listener.client()
		first := ask(client)
		synctest.Wait()

		stop()
		synctest.Wait()
		if late := <-ask(client); !errors.Is(late.err, net.ErrClosed) {
			t.Errorf("after the stop: %+v, want a closed listener", late)
		}
		if got := <-first; got.err != nil || got.body != "done" {
			t.Errorf("the running request got %+v", got)
		}
		if err := <-returned; err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), "waiting for http requests") ||
			!strings.Contains(log.String(), "requests=1") ||
			strings.Contains(log.String(), "cut off") {
			t.Errorf("logged %s", log)
		}
	})
}

func TestHTTPCutsOffAfterGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, log := newPipes(), &bytes.Buffer{}
		stuck := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		})
		part := lifecycle.HTTP(listener, stuck, lifecycle.HTTPOptions{Grace: 5 * time.Second,
			Logger: slog.New(slog.NewTextHandler(log, nil))})
		ctx, stop := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() { returned <- part(ctx) }()
		request := ask(listener.client())
		synctest.Wait()

		began := time.Now()
		stop()
		if err := <-returned; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("stopped after %s", took)
		}
		if got := <-request; got.err == nil {
			t.Errorf("the stuck request got %q", got.body)
		}
		if !strings.Contains(log.String(),
			`level=WARN msg="http requests were cut off" requests=1 grace=5s`) {
			t.Errorf("logged %q", log)
		}
	})
}

func TestHTTPReportsBrokenListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	err = lifecycle.HTTP(listener, http.NotFoundHandler(), lifecycle.HTTPOptions{})(t.Context())
	if !errors.Is(err, net.ErrClosed) ||
		!strings.HasPrefix(err.Error(), "serve http on 127.0.0.1:") {
		t.Errorf("got %v", err)
	}
}
