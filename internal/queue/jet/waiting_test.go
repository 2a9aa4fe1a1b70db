package jet

import (
	"runtime"
	"testing"
)

func TestMemoryOfAWait(t *testing.T) {
	b := newBroker(t)
	const waits, most = 100, 32 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range waits {
		w, err := b.Await()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Leave()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / waits; each > most {
		t.Errorf("each takes %d bytes", each)
	}
}
