package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/httptarget"
)

const childCommand = "child"

const (
	roleDrainer    = "drainer"
	roleBystander  = "bystander"
	roleThroughput = "throughput"
	roleNeighbour  = "neighbour"
	roleTarget     = "target"
)

func runChild(role string, spec []byte) error {
	switch role {
	case roleDrainer:
		return decodeAnd(spec, runDrainer)
	case roleBystander:
		return decodeAnd(spec, runBystander)
	case roleThroughput:
		return decodeAnd(spec, runThroughput)
	case roleNeighbour:
		return decodeAnd(spec, runNeighbour)
	case roleTarget:
		return runTarget()
	}
	return fmt.Errorf("no role %q", role)
}

func decodeAnd[T any](spec []byte, run func(T) error) error {
	var s T
	if err := json.Unmarshal(spec, &s); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	return run(s)
}

// obey carries out the parent's lines until the parent is gone.
func obey(orders map[string]func(value string) (string, error)) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		word, value, _ := strings.Cut(lines.Text(), " ")
		order := orders[word]
		if order == nil {
			return fmt.Errorf("told to %q", word)
		}
		answer, err := order(value)
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
		fmt.Println(word, answer)
	}
	return lines.Err()
}

const jobBytes = 128

type mark struct {
	Published int64 // by the shared clock
	Group     uint32
	Key       uint32
	Number    uint32
}

type start struct {
	At int64
	mark
}

func (m mark) body() []byte {
	body := make([]byte, jobBytes)
	binary.LittleEndian.PutUint64(body, uint64(m.Published))
	binary.LittleEndian.PutUint32(body[8:], m.Group)
	binary.LittleEndian.PutUint32(body[12:], m.Key)
	binary.LittleEndian.PutUint32(body[16:], m.Number)
	return body
}

func readMark(body []byte) (m mark, err error) {
	if len(body) < 20 {
		return m, errors.New("a body that is not ours")
	}
	return mark{
		Published: int64(binary.LittleEndian.Uint64(body)),
		Group:     binary.LittleEndian.Uint32(body[8:]),
		Key:       binary.LittleEndian.Uint32(body[12:]),
		Number:    binary.LittleEndian.Uint32(body[16:]),
	}, nil
}

type drainerSpec struct {
	URL    string
	Policy string
	Starts int
	Target bool
	Memory int64 // in bytes; 0: the default
	Watch  bool

	// file for a processor profile until the first dump; may be empty
	Profile string
}

// runDrainer is the library with a handler that records its start and calls the policy's target. It
// prints the number of partitions it owns. Commands: dump writes the starts to a file, count prints
// a group's jobs, returned the starts that were undone, heap the bytes in use; profile writes a
// heap profile.
func runDrainer(spec drainerSpec) error {
	nc, err := nats.Connect(spec.URL, nats.Name("bench drainer"), nats.MaxReconnects(-1),
		nats.PingInterval(2*time.Second))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()
	offset := newClockOffset()
	var mu sync.Mutex
	starts := make([]start, 0, spec.Starts)
	note := func(job workers.Job) error {
		m, err := readMark(job.Body)
		if err != nil {
			return workers.Permanent(err)
		}
		mu.Lock()
		defer mu.Unlock()
		starts = append(starts, start{offset.reads(job.Started), m})
		return nil
	}
	var returned atomic.Int64
	target := httptarget.New(httptarget.Options{})
	d, err := workers.New(nc, workers.Options{
		Memory: spec.Memory, Policies: []string{spec.Policy}, Ready: func() {
			fmt.Println("ready")
		}, Sink: queue.SinkFunc(func(e queue.Event) {
			switch e.Type {
			case jet.EventOwned:
				announce(e.Policy, int(e.Value))
			case jet.EventReturned:
				returned.Add(1)
			}
		}),
		Target: func(entry inforce.Entry) (workers.Handler, error) {
			call, err := target(entry)
			if call == nil || err != nil {
				return nil, err
			}
			return func(ctx context.Context, job workers.Job) error {
				if err := note(job); err != nil {
					return err
				}
				return call(ctx, job)
			}, nil
		}})
	if err != nil {
		return err
	}
	if !spec.Target {
		d.Handle(spec.Policy,
			func(_ context.Context, job workers.Job) error { return note(job) })
	}
	endProfile, err := profileProcessor(spec.Profile)
	if err != nil {
		return err
	}
	if spec.Watch {
		go func() {
			for {
				time.Sleep(time.Second)
				fmt.Println("live", liveHeap())
			}
		}()
	}
	ended := make(chan error, 2)
	go func() { ended <- d.Run(context.Background()) }()
	go func() {
		ended <- obey(map[string]func(string) (string, error){
			"dump": func(file string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				return "done", errors.Join(endProfile(), dump(file, starts))
			},
			"count": func(group string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				g, err := strconv.ParseUint(group, 10, 32)
				n := 0
				for _, s := range starts {
					if uint64(s.Group) == g {
						n++
					}
				}
				return strconv.Itoa(n), err
			},
			"keys": func(string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				keys := map[uint32]bool{}
				for _, s := range starts {
					if s.Group == groupDeep {
						keys[s.Key] = true
					}
				}
				return strconv.Itoa(len(keys)), nil
			},
			"returned": func(string) (string, error) { return fmt.Sprint(returned.Load()), nil },
			"heap":     func(string) (string, error) { return fmt.Sprint(heapInUse()), nil },
			"profile":  func(file string) (string, error) { return "done", writeHeapProfile(file) },
		})
	}()
	return <-ended
}

func announce(_ string, partitions int) { fmt.Println("owned", partitions) }

type bystanderSpec struct {
	Interval time.Duration
	Wakes    int
}

// runBystander is an empty timer loop, which observes the machine's stalls. dump writes its
// wake-ups.
func runBystander(spec bystanderSpec) error {
	var mu sync.Mutex
	wakes := make([]int64, 0, spec.Wakes)
	go func() {
		next := time.Now().Add(spec.Interval)
		timer := time.NewTimer(spec.Interval)
		for {
			<-timer.C
			mu.Lock()
			wakes = append(wakes, monotonic())
			mu.Unlock()
			now := time.Now()
			if next = next.Add(spec.Interval); next.Before(now) {
				next = now
			}
			timer.Reset(next.Sub(now))
		}
	}()
	fmt.Println("ready")
	return obey(map[string]func(string) (string, error){
		"dump": func(file string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return "done", dump(file, wakes)
		},
	})
}

func runTarget() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	ended := make(chan error, 2)
	go func() {
		ended <- http.Serve(listener, http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	}()
	fmt.Printf("ready url=http://%s/\n", listener.Addr())
	go func() { ended <- obey(nil) }()
	return <-ended
}

func dump(file string, records any) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	if err := binary.Write(w, binary.LittleEndian, records); err != nil {
		return err
	}
	return w.Flush()
}

func load[T any](file string) ([]T, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var one T
	records := make([]T, len(data)/binary.Size(one))
	if _, err := binary.Decode(data, binary.LittleEndian, records); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return records, nil
}

// heapInUse collects garbage first.
func heapInUse() uint64 {
	for range 2 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// liveHeap is from the last collection.
func liveHeap() uint64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return live[0].Value.Uint64()
}

func profileProcessor(file string) (end func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("create the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), f.Close())
	}
	return sync.OnceValue(func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}), nil
}

func writeHeapProfile(file string) (err error) {
	runtime.GC()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return pprof.Lookup("heap").WriteTo(f, 0)
}
