package deep

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime/metrics"
	"slices"
	"testing"
	"time"
	"unsafe"
)

func TestAJobTakes64Bytes(t *testing.T) {
	if size := unsafe.Sizeof(record{}) + uintptr(heaps)*unsafe.Sizeof(ref(0)); size != JobBytes {
		t.Errorf("a record and its place among those that expire take %d bytes", size)
	}
	if size := unsafe.Sizeof(page{}); size > 57_344 || size < 57_000 {
		t.Errorf("a page takes %d bytes, and Go allocates 57,344", size)
	}
}

type model struct {
	jobs  []Job
	lines map[uint64]Line
	costs map[uint64]map[string]int64
}

// TestAStoreIsAListOfJobs performs random operations on a store and on a list; pages are filled,
// emptied and merged.
func TestAStoreIsAListOfJobs(t *testing.T) {
	for seed := range uint64(3) {
		play(t, rand.New(rand.NewPCG(seed, 1)), 30_000)
	}
}

// Copying all jobs would delay a valve with millions of jobs, and all starts.
func TestAnAdditionCopiesLittle(t *testing.T) {
	s := New[int]()
	to := s.Open(1)
	const some = 1000
	most, before := uint64(0), allocated()
	for seq := range uint64(500 * some) {
		s.Add(to, Job{Seq: seq + 1, Stored: 1, Expires: 2, Cost: 1}, nil)
		if seq%some == some-1 {
			now := allocated()
			most, before = max(most, now-before), now
		}
	}
	if most > 1<<20 {
		t.Errorf("%d jobs took %d bytes at once", some, most)
	}
}

func allocated() uint64 {
	bytes := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(bytes)
	return bytes[0].Value.Uint64()
}

func TestJobsThatStayKeepNoMoreThanTheirRoom(t *testing.T) {
	s := New[int]()
	l := s.Open(1)
	for seq := range uint64(20 * slots) {
		s.Add(l, Job{Seq: seq, Cost: 1}, nil)
	}
	for seq := range uint64(20 * slots) {
		if seq%100 != 0 {
			s.Take(seq)
		}
	}
	for seq := uint64(0); seq < 20*slots; seq += 100 {
		if j, _, ok := s.Find(seq); !ok || j.Seq != seq {
			t.Fatalf("job %d is %v, %v", seq, j, ok)
		}
	}
	if n := len(s.order); n > 4 || s.lines[l].jobs.len() != s.Len() {
		t.Errorf("%d jobs take %d pages", s.Len(), n)
	}
}

// Publishers may name any cost.
func TestTheNamesOfAStoreAreBounded(t *testing.T) {
	s := New[int]()
	for i := range 2 * mostNames {
		if takes := s.TakesCosts(map[string]int64{fmt.Sprint(i): 1}); takes != (i < mostNames) {
			t.Fatalf("a job with the name %d: %v", i, takes)
		}
	}
	if !s.TakesCosts(map[string]int64{"0": 1, "7": 1}) || !s.TakesCosts(nil) {
		t.Error("a job with names that it knows, or without one, is not taken")
	}
}

func FuzzStore(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { play(t, rand.New(rand.NewPCG(seed, 2)), 5000) })
}

func play(t *testing.T, r *rand.Rand, steps int) {
	t.Helper()
	s, m := New[int](), model{lines: map[uint64]Line{}, costs: map[uint64]map[string]int64{}}
	s.Close(0)
	lines := make([]Line, 5)
	for i := range lines {
		lines[i] = s.Open(i)
	}
	seq, generation := uint64(0), uint8(0)
	taking := 50
	for step := range steps {
		if step%4000 == 0 {
			taking = []int{20, 45, 80}[r.IntN(3)]
		}
		switch {
		case r.IntN(100) >= taking || len(m.jobs) == 0:
			seq += 1 + uint64(r.IntN(3))
			j := Job{Seq: seq, Stored: int64(seq) * 7, Expires: int64(r.IntN(1000)),
				Mark: r.Int64(), Cost: 1 + r.Int64N(MostCost), Size: int32(r.IntN(1 << 20)),
				Keyed: r.IntN(2) == 0, Generation: generation}
			i := r.IntN(len(lines))
			if i%2 == 1 { // an odd line is for delayed jobs
				j.Due = j.Stored + (1+r.Int64N(1000))*int64(time.Millisecond)
				j.Expires = j.Stored + r.Int64N(int64(time.Second))
			}
			to := lines[i]
			if n := len(m.jobs); !s.Takes(seq) || n > 0 && s.Takes(m.jobs[n-1].Seq) {
				t.Fatalf("step %d: it does not know which sequences come next", step)
			}
			for n := range r.IntN(3) {
				if m.costs[seq] == nil {
					m.costs[seq] = map[string]int64{}
				}
				m.costs[seq][string(rune('a'+n+r.IntN(20)))] = 1 + r.Int64N(math.MaxInt32)
			}
			if !s.TakesCosts(m.costs[seq]) {
				t.Fatalf("step %d: it does not take the costs %v", step, m.costs[seq])
			}
			s.Add(to, j, m.costs[seq])
			m.jobs, m.lines[seq] = append(m.jobs, j), to
		case r.IntN(300) == 0:
			generation++
		case r.IntN(5) == 0:
			i := r.IntN(len(m.jobs))
			if j := &m.jobs[i]; j.Due != 0 {
				to := lines[2*r.IntN(2)]
				s.Ripen(j.Seq, to)
				j.Due, m.lines[j.Seq] = 0, to
			}
		case r.IntN(3) == 0:
			i := r.IntN(len(m.jobs))
			if !s.See(m.jobs[i].Seq, m.jobs[i].Stored, generation) ||
				s.See(m.jobs[i].Seq, m.jobs[i].Stored+1, generation+1) {
				t.Fatalf("step %d: a job that is there is not seen, or another one is", step)
			}
			m.jobs[i].Generation = generation
		default:
			i := r.IntN(len(m.jobs))
			if r.IntN(2) == 0 {
				i = min(i, r.IntN(20))
			}
			gone := m.jobs[i].Seq
			if !s.Take(gone) || s.Take(gone) {
				t.Fatalf("step %d: job %d was not taken once", step, gone)
			}
			delete(m.lines, gone)
			m.jobs = slices.Delete(m.jobs, i, i+1)
		}
		if step%997 == 0 || step == steps-1 {
			compare(t, s, m, lines, generation)
		}
	}
	s.Clear()
	compare(t, s, model{}, lines, generation)
}

func compare(t *testing.T, s *Store[int], m model, lines []Line, generation uint8) {
	t.Helper()
	if s.Len() != len(m.jobs) {
		t.Fatalf("%d jobs, want %d", s.Len(), len(m.jobs))
	}
	for i, l := range lines {
		var want []Job
		for _, j := range m.jobs {
			if m.lines[j.Seq] == l {
				want = append(want, j)
			}
		}
		bySeq := func(a, b Job) int { return cmp.Compare(a.Seq, b.Seq) }
		if got := slices.SortedFunc(s.Line(l), bySeq); !slices.Equal(got, want) ||
			s.lines[l].jobs.len() != len(want) {
			t.Fatalf("line %d has %v, want %v", i, got, want)
		}
		slices.SortStableFunc(want, func(a, b Job) int { return cmp.Compare(a.Due, b.Due) })
		if first, ok := s.First(l); ok != (len(want) > 0) || ok && first != want[0] {
			t.Fatalf("line %d begins with %v", i, first)
		}
	}
	var unseen []uint64
	for _, j := range m.jobs {
		got, owner, ok := s.Find(j.Seq)
		if costs := s.Costs(j.Seq); !maps.Equal(costs, m.costs[j.Seq]) {
			t.Fatalf("job %d costs %v, want %v", j.Seq, costs, m.costs[j.Seq])
		}
		if !ok || got != j || lines[owner] != m.lines[j.Seq] {
			t.Fatalf("job %d is %v of %d, %v", j.Seq, got, owner, ok)
		}
		if j.Generation != generation && j.Seq <= m.jobs[len(m.jobs)/2].Seq {
			unseen = append(unseen, j.Seq)
		}
	}
	if len(m.jobs) > 0 {
		if got := s.Unseen(generation, m.jobs[len(m.jobs)/2].Seq); !slices.Equal(got, unseen) {
			t.Fatalf("not seen are %v, want %v", got, unseen)
		}
	}
	first := int64(math.MaxInt64)
	for _, j := range m.jobs {
		first = min(first, j.Expires)
		if j.Due != 0 {
			first = min(first, j.Due)
		}
	}
	if _, at, ok := s.Soonest(); ok != (len(m.jobs) > 0) || ok && at != first {
		t.Fatalf("the first expires or is due at %d, want %d", at, first)
	}
	if room := len(s.order) * slots; room > 4*len(m.jobs)+3*slots {
		t.Errorf("%d jobs take the room of %d", len(m.jobs), room)
	}
}

func BenchmarkAdd(b *testing.B) {
	s := New[int]()
	lines := make([]Line, 1000)
	for i := range lines {
		lines[i] = s.Open(i)
	}
	b.ReportAllocs()
	seq := uint64(0)
	for b.Loop() {
		seq++
		s.Add(lines[seq%1000], Job{Seq: seq, Expires: int64(seq), Cost: 1}, nil)
	}
}

func BenchmarkTakeFirst(b *testing.B) {
	s := New[int]()
	lines := make([]Line, 1000)
	for i := range lines {
		lines[i] = s.Open(i)
	}
	for seq := range uint64(3_000_000) {
		s.Add(lines[seq%1000], Job{Seq: seq + 1, Expires: int64(seq), Cost: 1}, nil)
	}
	b.ResetTimer()
	for i := range b.N {
		if j, ok := s.First(lines[i%1000]); ok {
			s.Take(j.Seq)
		}
	}
}
