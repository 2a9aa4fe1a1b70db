package oneshot

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// The target does not notice that its caller has gone. A read in progress ends nevertheless, and
// the connection is closed, so that the target cannot write for ever.
func TestATargetThatNoticesNothingIsLeft(t *testing.T) {
	waited, ended := make(chan struct{}), make(chan error, 1)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := http.NewResponseController(w)
		err := out.Flush()
		<-waited
		for n := 0; err == nil && n < mostDrained/2; n += 1 << 10 {
			_, _ = w.Write(make([]byte, 1<<10))
			err = out.Flush()
		}
		ended <- err
	}))
	defer target.Close()
	client := &http.Client{Transport: &http.Transport{
		DialContext: Dial(new(net.Dialer).DialContext)}}
	var e Exchange
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{GotConn: e.GotConn}))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read := make(chan error)
	go func() {
		_, err := io.ReadAll(response.Body)
		read <- err
	}()
	for c := closing(*e.conn.Load()); c.reading.TryLock(); runtime.Gosched() { // until it reads
		c.reading.Unlock()
	}
	cancel()
	select {
	case err := <-read:
		if err == nil {
			t.Error("an answer that was aborted seems whole")
		}
	case <-time.After(waittest.Patience()):
		close(waited)
		t.Fatal("the read does not end")
	}
	e.Wait()
	close(waited)
	if err := <-ended; err == nil {
		t.Error("the target can still write")
	}
}

func TestARequestThatWasNotSentHasEnded(t *testing.T) {
	ended := false
	new(Exchange).After(func() { ended = true })
	if !ended {
		t.Error("it waits")
	}
}

func TestARequestWithoutAConnectionIsUnsent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	var e Exchange
	if e.Unsent() {
		t.Error("nothing is known yet")
	}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GetConn: e.GetConn,
		GotConn: e.GotConn})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener.Addr().String(),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := new(http.Transport).RoundTrip(r); err == nil || !e.Unsent() {
		t.Errorf("a refused connection: %v, unsent %v", err, e.Unsent())
	}
}
