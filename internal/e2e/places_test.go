//go:build unix

package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/overlaptest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

// TestConcurrencyIsBoundedByWhatCallersReport has what a caller can do that crashes, settles too
// early or aborts.
func TestConcurrencyIsBoundedByWhatCallersReport(t *testing.T) {
	target := &overlaptest.Target{After: time.Millisecond}
	upstream := httptest.NewServer(target)
	defer upstream.Close()
	proxy := proctest.FreeAddress(t)
	c := newCluster(t, fmt.Sprintf(`  - {name: one, algorithm: leaking_bucket, outflow: 1000/s,
     capacity: 1000, concurrency: 1, timeout: 5s}
outbound:
  - {listen: %q, routes: [{upstream: %q, policy: one, key: aborted}]}`, proxy, upstream.URL))
	spawnAdmitter(t, "admitter", "--drain", "--config", c.config())
	acquire := func(key, wait string) (permit string, err error) {
		var answer struct{ Permit string }
		err = send(t.Context(), http.MethodPost,
			"http://"+c.http+"/v1/permits/one/"+key+"?wait="+wait, &answer)
		return answer.Permit, err
	}
	settle := func(key, permit string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
			"http://"+c.http+"/v1/permits/one/"+key+"?permit="+permit,
			strings.NewReader(`{"status": "done"}`))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusNoContent {
			t.Errorf("settled: %s", response.Status)
		}
	}

	t.Run("killed: its place is taken until its lease ends", func(t *testing.T) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		caller := exec.Command(self)
		caller.Env = append(os.Environ(), actAsCaller+"="+c.url())
		killed := spawn(t, "caller", caller)
		killed.Kill()
		if _, err := acquire("killed", "1ms"); err == nil || !strings.Contains(err.Error(), "429") {
			t.Fatalf("right after the crash the next call was told %v", err)
		}
		permit, err := acquire("killed", "2m")
		if err != nil {
			t.Fatal(err)
		}
		settle("killed", permit)
	})
	t.Run("settled and not ended: its place is free", func(t *testing.T) {
		first, err := acquire("lying", "1m")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := acquire("lying", "1ms"); err == nil {
			t.Fatal("two calls were let begin")
		}
		settle("lying", first)
		second, err := acquire("lying", "1m") // while the first still runs
		if err != nil {
			t.Fatal(err)
		}
		settle("lying", first)
		if _, err := acquire("lying", "1ms"); err == nil {
			t.Error("the first settled again, and freed the place of the second")
		}
		settle("lying", second)
	})
	t.Run("aborted through the proxy: its place is taken until the target has ended", func(
		t *testing.T) {

		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for range 30 {
					abort(t, proxy)
				}
			})
		}
		callers.Wait()
		target.Check(t)
	})
}

// abort resets the connection of a call, mostly in the answer.
func abort(t *testing.T, proxy string) {
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetLinger(0)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if rand.IntN(4) > 0 {
		_, _ = io.ReadFull(conn, make([]byte, 1+rand.IntN(60)))
	} else {
		<-time.After(time.Duration(rand.IntN(10)) * time.Millisecond)
	}
}
