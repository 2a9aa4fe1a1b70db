package jet

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestDivide(t *testing.T) {
	for name, test := range map[string]struct {
		part    int64
		streams []*bounded
		want    []int64
	}{
		"equal shares": {1000, []*bounded{{}, {}}, []int64{256, 256}},
		"own numbers first": {1000, []*bounded{{own: 700}, {}, {}},
			[]int64{700, 128, 128}},
		"own numbers leave the least": {1100, []*bounded{{own: 5000}, {own: 5000}, {}, {}},
			[]int64{256, 256, 256, 256}},
		"own numbers that do not fit": {1000, []*bounded{{own: 3000}, {own: 1000}},
			[]int64{512, 128}},
		"one holds more than its share": {1000, []*bounded{{used: 800}, {}, {}},
			[]int64{64, 64, 64}},
		"one holds more than it may": {1000, []*bounded{{own: 100, used: 700}, {}},
			[]int64{100, 256}},
		"nothing is left: a quarter share": {1000, []*bounded{{used: 990}, {}}, []int64{64, 64}},
		"hardly any room":                  {2, []*bounded{{}, {}, {}, {}}, []int64{1, 1, 1, 1}},
		"none":                             {1000, nil, nil},
	} {
		shared := divide(test.part, test.streams)
		for i, x := range test.streams {
			if got := shared.bound(x.own); got != test.want[i] {
				t.Errorf("%s: stream %d may take %d, want %d", name, i, got, test.want[i])
			}
		}
	}
}

// A slightly smaller store, or one more policy, rarely changes bounds, because each change updates
// a stream.
func TestDivideRarely(t *testing.T) {
	bounds := map[int64]bool{}
	for lost := range int64(1000) {
		streams := []*bounded{{}, {own: 1 << 40}, {}}
		shared := divide(1<<30-lost*1000, streams)
		bounds[shared.level], bounds[shared.bound(streams[1].own)] = true, true
	}
	if len(bounds) > 4 {
		t.Errorf("two bounds became %d when others took 1 MB more and more", len(bounds))
	}
	clear(bounds)
	for n := range 1000 {
		streams := make([]*bounded, n+1)
		for i := range streams {
			streams[i] = &bounded{}
		}
		level := divide(1<<30, streams).level
		bounds[level] = true
		if fair := int64(1<<30) / int64(n+1); level > fair || level <= fair/2 {
			t.Fatalf("one of %d policies may take %d, its share is %d", n+1, level, fair)
		}
	}
	if len(bounds) > 11 {
		t.Errorf("%d bounds while there are 1 to 1000 policies", len(bounds))
	}
}

func limited(t *testing.T, store int64) *Broker {
	t.Helper()
	return brokerOver(t, natstest.Connect(t, natstest.Start(t, embedded.Options{MaxStore: store})))
}

// fill publishes jobs of 64 KiB to one bucket until one is refused, and returns the number of
// accepted ones.
func fill(t *testing.T, b *Broker, policy string) (taken int, refusal error) {
	t.Helper()
	p := b.NewProducer(ProducerOptions{})
	for ; taken < 10_000; taken++ {
		_, err := p.Publish(natstest.Context(t),
			Submission{Policy: policy, Key: "a", Body: make([]byte, 64<<10)})
		if err != nil {
			return taken, err
		}
	}
	t.Fatal("there is no end of room")
	return
}

// Full parts of jobs and dead letters leave room for leases, checkpoints and attempts, and for
// other policies' jobs.
func TestJobsAndLettersLeaveRoomForRecords(t *testing.T) {
	const size = 40 << 20
	b := limited(t, size)
	for _, name := range []string{"greedy", "modest"} {
		apply(t, b, paced(name, 100_000, 1))
	}
	taken, err := fill(t, b, "greedy")
	if !errors.Is(err, ErrStreamFull) {
		t.Fatalf("after %d jobs: %v, want ErrStreamFull", taken, err)
	}
	for range 300 {
		letter := DeadLetter{Policy: "greedy", Key: "a", Seq: uint64(taken),
			Body: make([]byte, 64<<10)}
		bury(t, b, letter)
		taken++
	}
	for i := range 100 {
		if err := b.tables.Attempts.Set(natstest.Context(t), fmt.Sprintf("greedy.0.%d", i),
			make([]byte, 64<<10), 0); err != nil {
			t.Fatalf("attempt record %d: %v", i, err)
		}
	}
	if err := b.tables.Drainers.Set(natstest.Context(t), "d1", make([]byte, 64<<10), 0); err !=
		nil {
		t.Errorf("no room for a lease: %v", err)
	}
	if taken, err := fill(t, b, "modest"); taken < 50 || !errors.Is(err, ErrStreamFull) {
		t.Errorf("another policy took %d jobs, %v", taken, err)
	}
	if err := b.tables.Partitions.Set(natstest.Context(t), "modest.0.clocks", make([]byte, 512<<10),
		0); err != nil {
		t.Errorf("no room for a checkpoint: %v", err)
	}
	storage, err := b.Ration(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if storage.Max != size || storage.Used > size/8*7 || !storage.Jobs["greedy"].High() ||
		storage.Letters["greedy"].Max == 0 {
		t.Errorf("the store: %+v", storage)
	}
}

// JetStream checks a new stream's bytes against the account before it counts them. If concurrent
// creations each took what one may have, the streams would together exceed the account, and
// JetStream refuses to change any of them, even to lower its bound.
func TestStreamsOfNewPoliciesAreCreatedInTurn(t *testing.T) {
	b := limited(t, 52<<20)
	if _, err := b.Ration(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	unanswered, creations, overlaps := map[string]bool{}, 0, 0
	_, err := b.nc.Subscribe(">", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(m.Subject, "$JS.API.STREAM.CREATE.") {
			if creations++; len(unanswered) > 0 {
				overlaps++
			}
			unanswered[m.Reply] = true
		}
		delete(unanswered, m.Subject)
	})
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewBroker(b.nc, Options{Logger: b.log}) // as in another process
	if err != nil {
		t.Fatal(err)
	}
	var doing sync.WaitGroup
	for i := range 120 {
		doing.Go(func() {
			p := paced(fmt.Sprint("p", i/6), 10, 1)
			if err := []*Broker{b, other}[i%2].Apply(natstest.Context(t), p); err != nil {
				t.Error(err)
			}
		})
	}
	doing.Wait()
	mu.Lock()
	defer mu.Unlock()
	// Both try, and some find no room at first. The subscription may, rarely, see an answer after
	// its client.
	if creations < 20 || creations > 70 || overlaps > 1 {
		t.Errorf("%d of %d creations of 20 streams began before another was answered", overlaps,
			creations)
	}
	late := paced("late", 10, 1) // which the last Ration did not count
	if _, err := b.Ration(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	apply(t, b, late)
	if err := b.js.DeleteStream(natstest.Context(t), b.names.Stream("late")); err != nil {
		t.Fatal(err)
	}
	apply(t, b, late)
	if _, err := b.js.StreamInfo(natstest.Context(t), b.names.Stream("late"), ""); err != nil {
		t.Errorf("a stream that NATS lost: %v", err)
	}
}

// A new policy lowers the share of a policy that has filled its own, whose jobs stay. Their bytes
// are not assigned twice.
func TestRationDeletesNoJob(t *testing.T) {
	b := limited(t, 32<<20)
	apply(t, b, paced("first", 100_000, 1))
	taken, _ := fill(t, b, "first")
	apply(t, b, paced("second", 100_000, 1))
	storage, err := b.Ration(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	depth, err := b.Depth(natstest.Context(t), "first")
	if err != nil || depth != uint64(taken) {
		t.Fatalf("%d of %d jobs are left, %v", depth, taken, err)
	}
	if more, err := fill(t, b, "first"); more != 0 || !errors.Is(err, ErrStreamFull) {
		t.Errorf("over its share it took %d more, %v", more, err)
	}
	if waiting := b.Waiting(); !maps.Equal(waiting, map[string]uint64{"first": depth}) {
		t.Errorf("waiting: %v", waiting)
	}
	first, second := storage.Jobs["first"], storage.Jobs["second"]
	if first.Used+second.Max > 32<<20/8*7 || second.Max < 1<<20 {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if _, err := b.js.Purge(natstest.Context(t), b.names.Stream("first"), "", 0); err != nil {
		t.Fatal(err)
	}
	if storage, err = b.Ration(natstest.Context(t)); err != nil ||
		storage.Jobs["second"].Max <= second.Max {
		t.Errorf("once the first has drained: %+v, %v", storage.Jobs, err)
	}
}

func TestRationObeysPolicies(t *testing.T) {
	b := limited(t, 64<<20)
	own := paced("own", 100_000, 1)
	own.MaxBytes, own.Dead.MaxBytes = 2*policy.MiB, 3*policy.MiB
	apply(t, b, own)
	apply(t, b, paced("other", 100_000, 1))
	bury(t, b, DeadLetter{Policy: "own", Key: "a", Seq: 1})
	storage, err := b.Ration(natstest.Context(t))
	if err != nil || storage.Jobs["own"].Max != 2<<20 || storage.Letters["own"].Max != 3<<20 ||
		storage.Lacks != "" {
		t.Errorf("got %+v, %v", storage, err)
	}
	if taken, err := fill(t, b, "own"); taken < 30 || taken > 32 || !errors.Is(err, ErrStreamFull) {
		t.Errorf("took %d jobs of 64 KiB, %v", taken, err)
	}
	own.MaxBytes = policy.GiB
	apply(t, b, own)
	storage, err = b.Ration(natstest.Context(t))
	if err != nil || !strings.HasPrefix(storage.Lacks, "max_storage is 64MiB") ||
		storage.Jobs["own"].Max > 40<<20 ||
		storage.Jobs["other"].Max < 2<<20 {
		t.Errorf("got %+v, %v", storage, err)
	}
}

// The account's limits are compared with the most that the policies may need, including policies
// whose streams it does not permit.
func TestAccountLimitsBelowTheNeedOfPolicies(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true,
		JetStream: true, JetStreamMaxStore: 1 << 60, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(natstest.Patience) {
		t.Fatal("the server is not ready")
	}
	limit := func(streams, consumers int, store int64) {
		t.Helper()
		account, err := s.LookupAccount(server.DEFAULT_GLOBAL_ACCOUNT)
		if err == nil {
			err = account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
				MaxStreams: streams, MaxConsumers: consumers, MaxStore: store, MaxMemory: -1,
				MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	limit(-1, -1, 64<<20)
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := brokerOver(t, nc)
	wide, kept := paced("wide", 10, 3), paced("kept", 10, 1)
	wide.MaxBytes, kept.ResultRetention = policy.GiB, policy.Duration(time.Hour)
	apply(t, b, wide)
	tables := len(b.tables.all())
	limit(tables+1, 2, 64<<20)
	if err := b.Apply(natstest.Context(t), kept); err == nil {
		t.Error("the account has one stream more than it may")
	}
	for i, allowed := range []bool{true, true, false} {
		_, err := b.js.CreateConsumer(natstest.Context(t), b.names.Stream("wide"),
			jetstream.ConsumerConfig{FilterSubject: b.names.Queue("wide", i, ">"),
				AckPolicy: jetstream.AckExplicitPolicy})
		if (err == nil) != allowed {
			t.Errorf("consumer %d of a stream: %v", i, err)
		}
	}
	lacks := func(want string) {
		t.Helper()
		found, err := b.Ration(natstest.Context(t), wide, kept)
		if err != nil || found.Lacks != want {
			t.Errorf("got %q, %v, want %q", found.Lacks, err, want)
		}
	}
	lacks(fmt.Sprintf("max_streams is %d, and they may need %d; ", tables+1, tables+5) +
		"max_consumers is 2, and policy wide has 3 partitions; max_storage is 64MiB for each " +
		"replica, and max_bytes, dead.max_bytes and histories of 1GiB do not fit: they get less")
	limit(tables+5, 3, 64<<30)
	lacks("")
}

// TestLettersAreBounded checks that letters beyond the bound push out the oldest, whose number is
// returned and stored.
func TestLettersAreBounded(t *testing.T) {
	b := limited(t, 64<<20)
	p := paced("stripe", 10, 1)
	p.Dead.MaxBytes = policy.MinBytes
	apply(t, b, p)
	const letters = 200
	var discarded uint64
	for i := range letters {
		n, err := b.Letters("stripe").Bury(natstest.Context(t),
			DeadLetter{Policy: "stripe", Key: "a", Seq: uint64(i), Body: make([]byte, 64<<10)})
		if err != nil {
			t.Fatal(err)
		}
		discarded += n
	}
	kept := letterIDs(t, b, "stripe")
	count, err := b.Letters("stripe").Discarded(natstest.Context(t))
	if err != nil || count != discarded || int(count)+len(kept) != letters || len(kept) < 20 ||
		kept[len(kept)-1] != letters {
		t.Errorf("%d discarded, %d of them told, %d kept, %v", count, discarded, len(kept), err)
	}
	all, err := b.Ration(natstest.Context(t))
	if fill := all.Letters["stripe"]; err != nil || fill.Max != int64(policy.MinBytes) ||
		fill.Used > fill.Max {
		t.Errorf("they take %+v, %v", fill, err)
	}
	// The largest job's letter fits only without its body.
	config := b.Letters("stripe").config()
	config.MaxBytes = 16 << 10
	if err := b.js.UpdateStream(natstest.Context(t), config); err != nil {
		t.Fatal(err)
	}
	bury(t, b,
		DeadLetter{Policy: "stripe", Key: "a", Seq: letters,
			Body: bytes.Repeat([]byte("x"), 64<<10)})
	last, err := b.Letters("stripe").Read(natstest.Context(t), letters+1)
	if err != nil || !last.Bodyless || len(last.Body) != 0 {
		t.Errorf("got %+v, %v", last, err)
	}
	replay := func() error {
		_, err := b.NewProducer(ProducerOptions{}).replay(natstest.Context(t), "stripe", false,
			last.ID)
		return err
	}
	if err := replay(); !errors.Is(err, ErrUnfit) {
		t.Errorf("replayed without a body: %v", err)
	}
}

// Older letters make room for a letter that fits, even if they take less than the minimum part.
func TestALargeLetterKeepsItsBody(t *testing.T) {
	b := limited(t, 64<<20)
	p := paced("stripe", 10, 1)
	p.Dead.MaxBytes = policy.MinBytes
	apply(t, b, p)
	for i := range 6 {
		d := DeadLetter{Policy: "stripe", Key: "a", Seq: uint64(i), Body: make([]byte, 560<<10)}
		if _, err := b.Letters(d.Policy).Bury(natstest.Context(t), d); err != nil {
			t.Fatal(err)
		}
	}
	kept := letterIDs(t, b, "stripe")
	if len(kept) != 3 {
		t.Errorf("%d letters are kept, and 3 have room", len(kept))
	}
	for _, id := range kept {
		if l, err := b.Letters("stripe").Read(natstest.Context(t), id); err != nil || l.Bodyless {
			t.Errorf("letter %d: without its body %t, %v", id, l.Bodyless, err)
		}
	}
}

// Concurrent letters without room all keep their bodies, and each discarded one is counted.
func TestManyLettersAtOnce(t *testing.T) {
	b := limited(t, 64<<20)
	p := paced("stripe", 10, 1)
	p.Dead.MaxBytes = policy.MinBytes
	apply(t, b, p)
	const letters = 200
	var next, told atomic.Uint64
	var lost atomic.Bool
	var burying sync.WaitGroup
	for range 64 {
		burying.Go(func() {
			for seq := next.Add(1); seq <= letters; seq = next.Add(1) {
				d := DeadLetter{Policy: "stripe", Key: "a", Seq: seq, Body: make([]byte, 64<<10)}
				ctx := natstest.Context(t)
				discarded, err := b.Letters(d.Policy).Bury(ctx, d)
				for errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
					lost.Store(true)
					told.Add(discarded)
					discarded, err = b.Letters(d.Policy).Bury(ctx, d)
				}
				if err != nil {
					t.Error(err)
				}
				told.Add(discarded)
			}
		})
	}
	burying.Wait()
	kept, err := b.Letters("stripe").List(natstest.Context(t), 0, letters)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range kept {
		if l.Bodyless {
			t.Errorf("letter %d has lost its body", l.ID)
		}
	}
	counted, err := b.Letters("stripe").Discarded(natstest.Context(t))
	if err != nil || counted != told.Load() && !lost.Load() ||
		int(counted)+len(kept) != letters || len(kept) < 20 {
		t.Errorf("%d discarded, %d of them told, %d kept, %v", counted, told.Load(), len(kept), err)
	}
}
