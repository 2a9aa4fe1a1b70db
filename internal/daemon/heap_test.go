package daemon

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func gogc() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestOnlyASmallHeapIsCollectedLess(t *testing.T) {
	t.Setenv("GOGC", "")
	collectLess()
	if got := gogc(); got <= 100 {
		t.Errorf("GOGC of a small heap is %d", got)
	}
	large := make([]byte, 2*heapRoom)
	for end := time.Now().Add(time.Minute); gogc() != 100; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("GOGC of a large heap is %d", gogc())
		}
	}
	runtime.KeepAlive(large)
}
