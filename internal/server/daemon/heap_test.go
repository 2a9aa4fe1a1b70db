package daemon

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
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

func TestWhatABurstTookIsGivenBack(t *testing.T) {
	free := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}}
	held := func() uint64 {
		metrics.Read(free)
		return free[0].Value.Uint64() + free[1].Value.Uint64()
	}
	burst := make([]byte, 3*heapRoom)
	for i := range burst {
		burst[i] = 1
	}
	if held() < 3*heapRoom {
		t.Fatalf("a burst takes %d bytes", held())
	}
	runtime.KeepAlive(burst)
	runtime.GC()
	go shrink(10 * time.Millisecond)
	waittest.Until(t, "the memory is given back", func() bool { return held() < heapRoom })
}
