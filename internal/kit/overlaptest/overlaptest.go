// Package overlaptest has a target that notices requests which it works on at the same time.
package overlaptest

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// Target answers requests with a stream of some milliseconds, and upgrades connections. It works on
// a request until its answer is written, or it notices that the caller has gone.
type Target struct {
	// After is how long the target works on when it has noticed.
	After time.Duration
	// Deaf: it notices only when it cannot write any more. Its answers take seconds.
	Deaf bool

	mu                      sync.Mutex
	now, all, over, aborted int
}

const pause = time.Millisecond // between chunks

// ServeHTTP implements [http.Handler].
func (t *Target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	t.all++
	if t.now++; t.now > 1 {
		t.over++
	}
	t.mu.Unlock()
	whole := false
	if r.Header.Get("Upgrade") == "" {
		whole = t.answer(w, r)
	} else if conn := upgrade(w); conn != nil {
		defer conn.Close()
	}
	if !whole {
		time.Sleep(t.After)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now--; !whole {
		t.aborted++
	}
}

func (t *Target) answer(w http.ResponseWriter, r *http.Request) (whole bool) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return false
	}
	out, chunks, gone := http.NewResponseController(w), 8, r.Context().Done()
	if t.Deaf {
		chunks, gone = 5000, nil
	}
	for range chunks {
		select {
		case <-time.After(pause):
		case <-gone:
			return false
		}
		if _, err := w.Write([]byte("chunk\n")); err != nil || out.Flush() != nil {
			return false
		}
	}
	return true
}

// upgrade reads a connection to its end, and returns it.
func upgrade(w http.ResponseWriter) net.Conn {
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" +
		"Upgrade: websocket\r\n\r\n")
	_ = both.Flush()
	_, _ = io.Copy(io.Discard, both)
	return conn
}

// Check waits until the target is idle. It fails the test unless requests were aborted, and each
// had the target for itself.
func (t *Target) Check(tb testing.TB) {
	tb.Helper()
	waittest.Until(tb, "the target is idle", func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.now == 0
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	tb.Logf("%d requests, %d of them aborted, %d overlapped", t.all, t.aborted, t.over)
	if t.over > 0 {
		tb.Errorf("%d of %d requests began while the target worked on another one", t.over, t.all)
	}
	if t.aborted == 0 {
		tb.Errorf("none of %d requests was aborted: this shows nothing", t.all)
	}
}
