package daemon

import (
	"fmt"
	"math"
	"net"
	"net/http"
	_ "net/http/pprof" // serves in the default mux, which has no other server
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/penstock-mq/penstock/internal/base/container"
	"github.com/penstock-mq/penstock/internal/server/hosts"
)

// growth between two collections, or the heap's size if that is more
const heapRoom = 64 << 20

// collectLess makes room for a small heap: collections took a tenth of the processor time of a busy
// door. GOMEMLIMIT (see limitMemory) still bounds the process, and GOGC wins.
func collectLess() {
	percent := uint64(100)
	given := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	if metrics.Read(given); given[0].Value.Uint64() != percent {
		return
	}
	var adapt func(struct{})
	adapt = func(struct{}) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		want := max(100, 100*heapRoom/max(4<<20, live[0].Value.Uint64()))
		if want > percent*5/4 || want < percent*4/5 { // each change pauses the process
			debug.SetGCPercent(int(want))
			percent = want
		}
		runtime.AddCleanup(new([64]byte), adapt, struct{}{}) // runs after the next collection
	}
	adapt(struct{}{})
	go shrink(10 * time.Second)
}

// limitMemory sets GOMEMLIMIT, unless the environment does, so that the collector returns memory
// before the container is killed. A tenth is for what it does not manage.
func limitMemory() {
	const none = math.MaxInt64
	if most := container.Memory(); debug.SetMemoryLimit(-1) == none && most < none {
		debug.SetMemoryLimit(most / 10 * 9)
	}
}

// shrink returns memory to the system after a time without collections. The collector keeps the
// memory of a burst, such as a start with a thousand policies, which doubles the heap.
func shrink(quiet time.Duration) {
	now := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	for before := uint64(0); ; time.Sleep(quiet) {
		metrics.Read(now)
		cycles, live := now[0].Value.Uint64(), now[1].Value.Uint64()
		held := now[2].Value.Uint64() + now[3].Value.Uint64()
		if cycles == before && held > live+max(heapRoom/2, live/3) {
			debug.FreeOSMemory()
		}
		before = cycles
	}
}

// Profiles reveal memory, so other machines, and pages by DNS rebinding, must not reach them.
func profiles(address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	if !hosts.IsLoopback(address) {
		return nil, fmt.Errorf("--pprof %q: profiles expose memory; want an address that "+
			"only this machine can reach, such as 127.0.0.1:6060", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for --pprof: %w", err)
	}
	known := hosts.Of(address, nil)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !known.Has(r.Host) {
				http.Error(w, "the host is not permitted", http.StatusMisdirectedRequest)
				return
			}
			http.DefaultServeMux.ServeHTTP(w, r)
		})}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}
