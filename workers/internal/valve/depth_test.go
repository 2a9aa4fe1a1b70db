package valve

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// shallow has little memory: jobs behind another of their bucket are deep.
func shallow(t *testing.T, p policy.Policy) *valveBench {
	t.Helper()
	b := newValveBench(t, p)
	b.v.texts.memory.most = 1
	return b
}

// text delivers the headers and bodies of jobs that were raised.
func (b *valveBench) text() {
	for _, r := range b.out.Fetches {
		b.p.Fetched(Text{Ref: r, Body: []byte("body"),
			Header: map[string][]string{"Seq": {fmt.Sprint(r.Seq)}}}, b.now)
	}
	b.out.Fetches = nil
}

func (b *valveBench) counts() {
	b.t.Helper()
	held, deep, near := 0, 0, bucketBytes*int64(b.p.list.Len())
	for _, bucket := range b.p.list.All() {
		due, later, slots, named := 0, 0, int64(0), map[string]int64{}
		add := func(cost int64, costs map[string]int64) {
			slots += cost
			for name, n := range costs {
				named[name] += n - cost
			}
		}
		for j := range bucket.queue.Each() {
			add(j.Cost, j.Costs)
		}
		for _, seq := range bucket.queue.SomeDeep(math.MaxUint64, math.MaxInt) {
			if d, _ := b.p.deep.Find(seq); d.Due == 0 {
				due++
				add(d.Cost, d.Costs)
			} else {
				later++
			}
		}
		maps.DeleteFunc(named, func(_ string, n int64) bool { return n == 0 })
		q := &bucket.queue
		if !maps.Equal(named, q.Named()) {
			b.t.Fatalf("%s: costs by name are %v, counted %v", bucket.queue.Key, named, q.Named())
		}
		if q.Deep() != due || q.AllDeep() != due+later || q.Waiting() != slots {
			b.t.Fatalf("%s: %d deep, %d not due, %d slots, counted %d, %d and %d", q.Key, due,
				later, slots, q.Deep(), q.AllDeep()-q.Deep(), q.Waiting())
		}
		held, deep = held+int(bucket.held), deep+due+later
	}
	for _, j := range b.p.jobs {
		near += int64(j.weight)
	}
	if held != len(b.p.jobs)+deep || deep != b.p.deep.Len() ||
		b.v.texts.memory.deep != int64(deep) || b.v.texts.memory.near != near {
		b.t.Fatalf("%d held, %d near of %d bytes, %d deep; counted %d deep and %+v", held,
			len(b.p.jobs), near, b.p.deep.Len(), deep, b.v.texts.memory)
	}
}

func TestJobsThatWaitDeepStartInTheirOrder(t *testing.T) {
	b := shallow(t, with(leaky("api", "1000/s"), func(p *policy.Policy) { p.Workers = 3 }))
	r := rand.New(rand.NewPCG(1, 2))
	ranks := map[string][]keyqueue.Rank{}
	for range 3000 {
		key := fmt.Sprint("k", r.IntN(4))
		b.arrive(key, priority(r.IntN(3)-1), cost(1+r.Int64N(3)), func(a *job.Arrived) {
			ranks[key] = append(ranks[key], keyqueue.Rank{Place: -int64(a.Priority), Seq: a.Seq})
		})
	}
	b.counts()
	if len(b.p.jobs) > 20 {
		t.Fatalf("%d jobs are near", len(b.p.jobs))
	}
	for key := range ranks {
		slices.SortFunc(ranks[key], func(a, b keyqueue.Rank) int {
			return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.Seq, b.Seq))
		})
	}
	for turn := 0; len(b.p.jobs) > 0; turn++ {
		if turn > 100_000 {
			t.Fatalf("%d jobs are left", len(b.p.jobs)+b.p.deep.Len())
		}
		b.text()
		for _, run := range b.start() {
			next := ranks[string(run.Key)][0].Seq
			// the first job of its bucket was never deep
			if run.Seq != next || string(run.Body) != "body" ||
				run.Header != nil && run.Header["Seq"][0] != fmt.Sprint(run.Seq) {
				t.Fatalf("job %d starts with %s and %v, want job %d", run.Seq, run.Body, run.Header,
					next)
			}
			ranks[string(run.Key)] = ranks[string(run.Key)][1:]
			b.done(run)
		}
		if turn%100 == 0 {
			b.counts()
		}
		b.now = b.now.Add(ms)
	}
	b.counts()
	if b.v.texts.memory.near != bucketBytes*int64(b.p.list.Len()) || b.v.texts.bytes != 0 {
		t.Errorf("nothing waits, and %+v and %d bytes of bodies are counted", b.v.texts.memory,
			b.v.texts.bytes)
	}
}

func TestJobsWithCostsByNameWaitDeep(t *testing.T) {
	p := costly(policy.KeyGlobal, policy.Rule{Algorithm: policy.TokenBucket, Capacity: 100,
		Refill: leaky("", "50/s").Outflow})
	runs := func(b *valveBench) (told, started []string) {
		r := rand.New(rand.NewPCG(1, 3))
		for i := range uint64(60) {
			b.arrive(fmt.Sprint("k", r.IntN(2)), tokens(1+r.Int64N(100)), cost(1+r.Int64N(3)))
			if wait, known := b.view().expect(b.p, i+1); known {
				told = append(told, fmt.Sprint(i+1, wait))
			}
		}
		b.counts()
		for ; len(b.p.jobs) > 0; b.now = b.now.Add(ms) {
			if b.now > origin.Add(time.Hour) {
				t.Fatalf("%d jobs are left", len(b.p.jobs))
			}
			b.text()
			for _, run := range b.start() {
				at := b.now.Since(origin)
				started = append(started, fmt.Sprint(at, run.Key, run.Seq, run.Costs))
				b.done(run)
			}
			b.noted()
			b.counts()
		}
		return told, started
	}
	near, startedNear := runs(newValveBench(t, p))
	b := shallow(t, p)
	for range 10 {
		if b.arrive("deep", tokens(7)); b.p.deep.Len() == 0 && b.seq > 1 {
			t.Fatal("jobs with costs by name are near")
		}
	}
	deep, startedDeep := runs(shallow(t, p))
	if !slices.Equal(near, deep) || len(near) != 60 {
		t.Errorf("near jobs are told %v\n and deep ones %v", near, deep)
	}
	if !slices.Equal(startedNear, startedDeep) || len(startedNear) != 60 {
		t.Errorf("near jobs start as %v\n and deep ones as %v", startedNear, startedDeep)
	}
}

func TestAJobThatIsDeepIsAskedForLikeAnyOther(t *testing.T) {
	b := shallow(t, leaky("api", "10/s"))
	b.arrive("k")
	for range 10 {
		b.arrive("k", func(a *job.Arrived) {
			a.Header = map[string][]string{job.HeaderIdempotencyKey: {"order"}}
		})
	}
	s := b.view().jobState(b.p, 6)
	if s == nil || s.State != job.Waiting || *s.Position != 5 || s.ETAMS == nil ||
		*s.ETAMS != 500 || !s.AcceptedAt.Equal(b.stored[6]) {
		t.Errorf("job 6 stands so: %+v", s)
	}
	if wait, known := b.view().expect(b.p, 11); !known || wait != time.Second {
		t.Errorf("the last starts in %v, %v", wait, known)
	}
	if s := b.view().bucketState(b.p, "k"); s.Depth != 11 || s.Waiting != 11 {
		t.Errorf("its bucket stands so: %+v", s)
	}
	// its key was not kept, only that it has one
	if b.p.cancel(6) != 1 || b.p.cancel(6) != 0 ||
		len(b.out.Endings) != 1 || !b.out.Endings[0].Headless || b.out.Endings[0].Seq != 6 {
		t.Errorf("to cancel it wants %+v", b.out.Endings)
	}
	b.counts()
	removed := 0
	for jobs := b.p.purges("k", 10); len(jobs) > 0; jobs = b.p.purges("k", 10) {
		removed += b.v.stock.purge(jobs)
	}
	if removed != 9 || b.p.buckets["k"].queue.Len() != 1 || len(b.out.Endings) != 9 {
		t.Errorf("%d jobs were purged, %d are left, %d ends are to be noted", removed,
			b.p.buckets["k"].queue.Len(), len(b.out.Endings))
	}
	b.counts()
}

// Its letter has its text, also if its deadline precedes the deadlines of jobs before it.
func TestAJobThatIsDeepExpires(t *testing.T) {
	b := shallow(t, leaky("api", "1/h"))
	for i := range 5 {
		b.arrive("k", func(a *job.Arrived) {
			a.Deadline = b.wall().Add(time.Duration(20-i) * time.Minute)
		})
	}
	b.start()
	if at := b.v.Wake(true); at != origin.Add(16*time.Minute) {
		t.Errorf("the first deadline is looked for after %v", at.Since(origin))
	}
	b.at(17 * time.Minute).start()
	var buried []uint64
	for _, u := range b.out.Burials {
		if u.Reason != queue.ReasonDeadline || !u.Lean || !u.Headless {
			t.Errorf("a letter of %+v", u)
		}
		buried = append(buried, u.Seq)
	}
	if !slices.Equal(buried, []uint64{5, 4}) {
		t.Errorf("after 17 minutes %v expired", buried)
	}
	b.counts()
}

func TestManyThatExpireAtOnceDoSoInPortions(t *testing.T) {
	b := shallow(t, leaky("api", "1/h"))
	for range 3 * mostLapsing {
		b.arrive("k")
	}
	b.at(15 * 24 * time.Hour).start()
	if n := len(b.p.jobs); n > mostLapsing+2 || b.v.Wake(true) <= b.now {
		t.Errorf("%d are on their way to their letters; the next look is %v from now", n,
			b.v.Wake(true).Since(b.now))
	}
}

func TestASweepFindsMissingDeepJobs(t *testing.T) {
	b := shallow(t, leaky("api", "1/h"))
	for range 9 {
		b.arrive("k")
	}
	b.p.last = 9
	b.p.Reopen(2)
	for _, seq := range []uint64{4, 6, 7, 9, 9} {
		b.deliver(seq, "k")
	}
	b.stored[8] = b.wall().Add(time.Second)
	b.deliver(8, "k")
	b.p.Swept(b.now)
	if b.out.Vanished != 5 || b.p.buckets["k"].held != 5 {
		t.Errorf("%d vanished, %d are held", b.out.Vanished, b.p.buckets["k"].held)
	}
	b.counts()
	b.p.restart()
	b.counts()
	if n := len(b.p.jobs) + b.p.deep.Len(); n != 0 || b.out.Vanished != 10 {
		t.Errorf("of a stream that is no more %d jobs are held, %d vanished", n, b.out.Vanished)
	}
	b.arrive("k")
	b.arrive("k")
	b.p.Drop()
	if b.v.texts.memory.near != 0 || b.v.texts.memory.deep != 0 {
		t.Errorf("of a partition that is lost is counted %+v", b.v.texts.memory)
	}
}

// Attempts and crashes are not in the stream.
func TestJobsWithStateStayNear(t *testing.T) {
	b := shallow(t, leaky("api", "1/h"))
	b.p.legacy.Inherit(inheritance.State{Attempts: map[uint64]inheritance.Attempt{
		2: {Attempt: record.Attempt{Attempts: 3}}}}, nil, 0, b.now)
	b.arrive("k")
	if b.arrive("k") == nil || b.p.jobs[2].Attempts != 3 || b.arrive("k") != nil {
		t.Error("a job that has failed is deep, or one that has not is near")
	}
}

func TestMemoryIsABudget(t *testing.T) {
	b := newValveBench(t, leaky("api", "1/h"))
	b.v.texts.memory.most = 400_000
	for range 20_000 {
		b.arrive("k")
	}
	if near := b.v.texts.memory.near; near < 190_000 || near > 201_000 {
		t.Errorf("%d bytes are near", near)
	}
}

// A bucket gets its own memory when a job starts. The shared one stays unchanged; see [TestMain].
func TestMemoryOfAKeyWithDeepJobs(t *testing.T) {
	if size := unsafe.Sizeof(bucket{}); size > 176 {
		t.Errorf("a bucket takes %d bytes, and Go allocates more than 176 for it", size)
	}
	b := shallow(t, leaky("api", "1/s"))
	later := func(a *job.Arrived) { a.NotBefore = b.wall().Add(3 * second) }
	b.arrive("other", later)
	b.arrive("k", later)
	b.start()
	k, other := b.p.buckets["k"], b.p.buckets["other"]
	if k.near != other.near {
		t.Fatal("buckets whose jobs are deep have what only others need")
	}
	b.at(3 * second).start()
	b.text()
	b.start()
	if k.near == other.near || k.Running != 1 || other.Running != 1 {
		t.Errorf("%d jobs of one key run, and %d of the other", k.Running, other.Running)
	}
	b.counts()
}

func TestNearJobsLoseTheirBodiesWhereMemoryIsTight(t *testing.T) {
	b := shallow(t, leaky("api", "1/s"))
	b.start()
	b.v.texts.memory.most = 0
	b.arrive("k")
	b.done(b.start()[0])
	head := b.arrive("k")
	later := b.arrive("k", func(a *job.Arrived) { a.NotBefore = b.wall().Add(9 * second) })
	b.v.texts.memory.most = 10 * (b.v.texts.memory.near + bucketBytes)
	for range 9 {
		b.v.texts.memory.near += b.v.texts.memory.most / 2
		b.arrive("k")
		b.v.texts.memory.near -= b.v.texts.memory.most / 2
	}
	if head.Lean || later.Lean {
		t.Error("bodies are dropped although there is room")
	}
	b.v.texts.memory.most = 1
	near := b.v.texts.memory.near
	b.v.placeChanged(b.now)
	b.arrive("k")
	if !head.Lean || head.Body != nil || !later.Lean || b.v.texts.memory.near != near-2*4 {
		t.Errorf("memory is tight, and %d bytes less are near", near-b.v.texts.memory.near)
	}
	b.counts()
	b.at(second - lead).start()
	b.text()
	b.arrive("k")
	b.at(second)
	runs := b.start()
	if len(runs) != 1 || runs[0].Seq != head.Seq || string(runs[0].Body) != "body" {
		t.Errorf("at its time starts %+v", runs)
	}
	b.counts()
}
