package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// The table of DESIGN.md: what becomes of a policy in each state by each act.
func TestOneFunctionSaysWhatMayHappenNext(t *testing.T) {
	states := map[string]*inforce.Entry{
		"absent":       nil,
		"unreadable":   {},
		"of a file":    {Source: inforce.SourceFile, Set: "b"}, // unreadable, too
		"file":         {Source: inforce.SourceFile, Set: "a"},
		"api":          {Source: inforce.SourceAPI},
		"left":         {Source: inforce.SourceAPI, Set: "a"},
		"draining":     {Source: inforce.SourceAPI, Draining: true},
		"pruned":       {Source: inforce.SourceAPI, Set: "a", Draining: true},
		"another file": {Source: inforce.SourceFile, Set: "b"},
	}
	named := policy.Policy{Name: "stripe"}
	for name, e := range states {
		if e != nil && name != "unreadable" && name != "of a file" {
			e.Written = named
		}
	}
	names := []string{"absent", "unreadable", "of a file", "file", "api", "left", "draining",
		"pruned", "another file"}
	acts := map[Act]string{inFile: "in file", leftFile: "left file", pruned: "pruned",
		Write: "written", Pull: "pulled", Offer: "offered", Release: "released",
		Delete: "deleted", drained: "drained"}
	wants := map[Act][]string{
		inFile:   {"file", "file", "invalid", "=", "of API", "file", "file", "file", "invalid"},
		leftFile: {"missing", "missing", "missing", "left", "=", "=", "=", "=", "="},
		pruned:   {"missing", "missing", "missing", "pruned", "=", "=", "=", "=", "="},
		Write:    {"api", "api", "owner", "owner", "=", "api", "api", "api", "owner"},
		Pull:     {"missing", "missing", "missing", "=", "=", "=", "=", "=", "="},
		Offer:    {"missing", "missing", "missing", "owner", "left", "=", "pruned", "=", "owner"},
		Release:  {"missing", "missing", "missing", "api", "=", "api", "=", "draining", "api"},
		Delete: {"missing", "missing", "missing", "owner", "draining", "pruned", "=", "=",
			"owner"},
		drained: {"missing", "missing", "missing", "=", "=", "=", "gone", "gone", "="},
	}
	for a, what := range acts {
		for i, name := range names {
			next, err := next(states[name], "stripe", a, "a")
			got := "unknown"
			var owner *OwnerError
			var invalid *policy.InvalidError
			switch {
			case errors.Is(err, jet.ErrNotFound):
				got = "missing"
			case errors.Is(err, errOfAPI):
				got = "of API"
			case errors.As(err, &owner):
				got = "owner"
			case errors.As(err, &invalid):
				got = "invalid"
			case next == nil:
				got = "gone"
			}
			for _, state := range names {
				if s := states[state]; err == nil && next != nil && s != nil &&
					s.Source == next.Source && s.Set == next.Set && s.Draining == next.Draining {
					got = state
				}
			}
			want := wants[a][i]
			if want == "=" {
				want = name
			}
			if got != want {
				t.Errorf("%s, %s: it becomes %s, want %s", name, what, got, want)
			}
		}
	}
}

func see(t *testing.T, s *Store, when, want string) {
	t.Helper()
	set, err := s.Policies(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		e := set[name]
		text := strings.TrimSpace(fmt.Sprintf("%s %d %s %s", name, e.Policy.Capacity, e.Source,
			e.Set))
		if e.Draining {
			text += " draining"
		}
		got = append(got, text)
	}
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("%s: %s\nwant %s", when, text, want)
	}
}

func TestAFilesSetIsReplacedAsASet(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	if _, err := s.Put(ctx, paced("api", 10, 1)); err != nil {
		t.Fatal(err)
	}
	load(t, s, "", paced("a", 10, 1), paced("b", 10, 1), paced("c", 10, 1))
	see(t, s, "at first", "a 10 file default, api 10 api, b 10 file default, c 10 file default")
	if again := load(t, s, "", paced("a", 10, 1), paced("b", 10, 1),
		paced("c", 10, 1)); len(again.Changes) > 0 {
		t.Errorf("the same file wrote %+v", again)
	}
	replaced := load(t, s, "", paced("a", 11, 1), paced("b", 10, 1), paced("d", 10, 1))
	if len(replaced.Changes) != 3 || replaced.Changes[2].After.Source != inforce.SourceAPI {
		t.Errorf("%+v", replaced)
	}
	see(t, s, "a changed, c left, d is new", "a 11 file default, api 10 api, b 10 file default, "+
		"c 10 api default, d 10 file default")

	// What left belongs to the API: it is written there, and the file does not take it back then.
	if _, err := s.Put(ctx, paced("c", 12, 1)); err != nil {
		t.Fatal(err)
	}
	of := load(t, s, "", paced("a", 11, 1), paced("b", 10, 1), paced("c", 10, 1), paced("d", 10, 1))
	if !slices.Equal(of.OfAPI, []string{"c"}) || len(of.Changes) > 0 {
		t.Errorf("%+v", of)
	}
	see(t, s, "the API's policy in the file", "a 11 file default, api 10 api, b 10 file default, "+
		"c 12 api, d 10 file default")
	do(t, s, "c", Change{Act: Offer, Set: "default"})
	load(t, s, "", paced("a", 11, 1), paced("b", 10, 1), paced("c", 10, 1), paced("d", 10, 1))
	see(t, s, "taken", "a 11 file default, api 10 api, b 10 file default, c 10 file default, "+
		"d 10 file default")
	do(t, s, "c", Change{Act: Release})
	if of = load(t, s, "", paced("a", 11, 1), paced("b", 10, 1), paced("c", 13, 1),
		paced("d", 10, 1)); !slices.Equal(of.OfAPI, []string{"c"}) {
		t.Errorf("released: %+v", of)
	}

	// A bad file changes nothing.
	_, err := s.Replace(ctx, Set{Policies: []policy.Policy{paced("a", 12, 1), paced("b", 10, 2),
		paced("d", 10, 1)}})
	if err == nil || !strings.Contains(err.Error(), "policy b: partitions") {
		t.Errorf("other partitions: %v", err)
	}
	see(t, s, "after a bad file", "a 11 file default, api 10 api, b 10 file default, c 10 api, "+
		"d 10 file default")
}

func TestATruncatedFileIsRefused(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	load(t, s, "", paced("a", 10, 1), paced("b", 10, 1), paced("c", 10, 1), paced("d", 10, 1))
	for _, ps := range [][]policy.Policy{{}, {paced("a", 10, 1)}} {
		_, err := s.Replace(ctx, Set{Policies: ps, Prune: true})
		if err == nil || !strings.Contains(err.Error(), "allow_shrink") {
			t.Errorf("%d of 4: %v", len(ps), err)
		}
	}
	see(t, s, "refused", "a 10 file default, b 10 file default, c 10 file default, "+
		"d 10 file default")
	half := Set{Policies: []policy.Policy{paced("a", 10, 1), paced("b", 10, 1)}}
	if _, err := s.Replace(ctx, half); err != nil {
		t.Errorf("half of them: %v", err)
	}
	if _, err := s.Replace(ctx, Set{Shrink: true, Prune: true}); err != nil {
		t.Error(err)
	}
	see(t, s, "with the flag", "a 10 api default draining, b 10 api default draining, "+
		"c 10 api default, d 10 api default")
}

func TestAPrunedPolicyClosesDrainsAndGoes(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	stripe := paced("stripe", 10, 4)
	load(t, s, "", stripe)
	apply(t, s, stripe)
	producer := s.broker.NewProducer(jet.ProducerOptions{})
	if _, err := producer.Publish(ctx, jet.Submission{Policy: "stripe", Key: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replace(ctx, Set{Prune: true, Shrink: true}); err != nil {
		t.Fatal(err)
	}
	see(t, s, "pruned", "stripe 10 api default draining")
	if gone, err := s.Forget(ctx, "stripe"); err != nil || gone {
		t.Errorf("with a job: gone %t, %v", gone, err)
	}
	if _, err := producer.Publish(ctx,
		jet.Submission{Policy: "stripe", Key: "a"}); err == nil {
		t.Error("it accepts jobs")
	}
	if _, err := s.Put(ctx, paced("stripe", 10, 8)); err == nil {
		t.Error("a draining policy with a stream takes other partitions")
	}
	load(t, s, "", stripe) // a rollback
	see(t, s, "back in the file", "stripe 10 file default")
	if gone, err := s.Forget(ctx, "stripe"); err != nil || gone {
		t.Errorf("a live policy: gone %t, %v", gone, err)
	}
	apply(t, s, stripe)
	if depth, err := s.broker.Depth(ctx, "stripe"); err != nil || depth != 1 {
		t.Errorf("%d jobs, %v", depth, err)
	}
}

func TestTheAPICannotChangeAFilesPolicy(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	load(t, s, "tenants", paced("stripe", 10, 1))
	_, put := s.Put(ctx, paced("stripe", 11, 1))
	_, _, offer := s.Change(ctx, "stripe", Change{Act: Offer, Set: "other"})
	_, _, del := s.Change(ctx, "stripe", Change{Act: Delete})
	for what, err := range map[string]error{"put": put, "offer": offer, "delete": del} {
		if _, owner := errors.AsType[*OwnerError](err); !owner ||
			!strings.Contains(err.Error(), "penstock policies release stripe") {
			t.Errorf("%s: %v", what, err)
		}
	}
	see(t, s, "refused", "stripe 10 file tenants")
	_, err := s.Replace(ctx, Set{Policies: []policy.Policy{paced("stripe", 10, 1)}})
	if err == nil || !strings.Contains(err.Error(), "set: tenants") {
		t.Errorf("another file: %v", err)
	}
	load(t, s, "tenants")
	load(t, s, "", paced("stripe", 12, 1))
	see(t, s, "moved", "stripe 12 file default")
}

// The lever outlasts every change of the file, and its end restores the numbers of the file as it
// is then.
func TestALeverIsApartFromWhatTheMasterWrites(t *testing.T) {
	s := newStore(t)
	p := paced("stripe", 10, 1)
	load(t, s, "", p)
	entry := pull(t, s, "stripe", []byte(`{"outflow":"2/s","capacity":20}`),
		inforce.Lever{By: "ann"})
	if entry.Policy.Outflow.Count != 2 || entry.Policy.Capacity != 20 ||
		entry.Written.Capacity != 10 {
		t.Errorf("%+v", entry)
	}
	pause(t, s, "stripe", true)
	p.Outflow.Count, p.Capacity = 50, 30
	load(t, s, "", p)
	current := func() inforce.Entry {
		t.Helper()
		entry, err := s.Policy(natstest.Context(t), "stripe")
		if err != nil {
			t.Fatal(err)
		}
		return entry
	}
	if e := current(); e.Policy.Outflow.Count != 2 || !e.Paused || e.Policy.Capacity != 30 {
		t.Errorf("after the file changed: %+v", e)
	}
	load(t, s, "")
	if _, err := s.Put(natstest.Context(t), p); err != nil {
		t.Fatal(err)
	}
	if e := current(); e.Policy.Outflow.Count != 2 || !e.Paused {
		t.Errorf("of the API: %+v", e)
	}
	pull(t, s, "stripe", []byte(`{"outflow":null,"paused":null,"capacity":null}`), inforce.Lever{})
	if e := current(); e.Paused || len(e.Levers) > 0 || !samePolicy(t, e.Policy, p.WithDefaults()) {
		t.Errorf("restored: %+v", e)
	}
}

// Twenty orders in which old and new processes restart: the newest text wins, and each policy is
// written once, for the rollout and for the rollback.
func TestTheNewestTextOfASetWins(t *testing.T) {
	for seed := range uint64(20) {
		s := newStore(t)
		ctx := natstest.Context(t)
		random := rand.New(rand.NewPCG(seed, 1))
		of := func(capacity int64) Set {
			return Set{Policies: []policy.Policy{paced("a", capacity, 1), paced("b", capacity, 1)}}
		}
		texts := []Set{of(10), of(20)}
		start := func(f Set) {
			t.Helper()
			if _, err := s.Replace(ctx, f); err != nil {
				t.Fatal(err)
			}
		}
		start(texts[0])
		written := func() uint64 {
			t.Helper()
			records, err := s.table.List(ctx, "*")
			if err != nil {
				t.Fatal(err)
			}
			var last uint64
			for _, r := range records {
				last = max(last, r.Revision)
			}
			return last
		}
		first := written()
		const processes = 5
		upgraded := map[int]bool{}
		for len(upgraded) < processes {
			i := random.IntN(processes)
			if random.IntN(2) == 0 {
				upgraded[i] = true
			}
			if upgraded[i] {
				start(texts[1])
			} else {
				start(texts[0])
			}
		}
		see(t, s, fmt.Sprint("seed ", seed, ", rollout"), "a 20 file default, b 20 file default")
		rolled := written()
		for range 10 {
			start(texts[1])
		}
		for range processes { // as rolled back processes do
			back := texts[0]
			start(back)
			if written() != rolled {
				t.Errorf("seed %d: an old text came back by a restart", seed)
			}
		}
		back := texts[0]
		back.Again = true // every process has it
		start(back)
		back.Again = false
		after := written()
		for range processes {
			start(back)
			start(texts[1])
		}
		see(t, s, fmt.Sprint("seed ", seed, ", rollback"), "a 10 file default, b 10 file default")
		if rolled != first+3 || after != rolled+3 || written() != after { // with the set's record
			t.Errorf("seed %d: revisions %d, %d and %d, want each policy written once", seed,
				rolled, after, written())
		}
	}
}

// dying is a connection that breaks at its n-th write, and stays so.
type dying struct {
	net.Conn
	left *atomic.Int64
	died func()
}

func (d *dying) Write(b []byte) (int, error) {
	if d.left.Add(-1) < 0 {
		_ = d.Close()
		d.died()
		return 0, net.ErrClosed
	}
	return d.Conn.Write(b)
}

type dialer struct {
	left *atomic.Int64
	died func()
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	if d.left.Load() < 0 {
		return nil, net.ErrClosed
	}
	c, err := net.Dial(network, address)
	return &dying{c, d.left, d.died}, err
}

// A process that dies between any two steps leaves what the next one completes, once the lock of
// the dead one's stream has expired.
func TestTheNextProcessCompletesWhatADeadOneBegan(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, embedded.Options{Listen: "127.0.0.1:0"})
	steps := int64(0)
	for !dieAfter(t, server.URL(), steps) {
		steps++
	}
	if steps < 10 {
		t.Errorf("it had %d steps", steps)
	}
}

// A fifth of a crashed process's lock.
const lockedFor = 300 * time.Millisecond

func dieAfter(t *testing.T, url string, steps int64) (survived bool) {
	ctx := natstest.Context(t)
	open := func(options ...nats.Option) *Store {
		t.Helper()
		nc, err := nats.Connect(url, options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		broker, err := jet.NewBroker(nc, jet.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return New(broker, nil)
	}
	s := open()
	if err := s.broker.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	stripe := paced("stripe", 10, 1)
	load(t, s, "", paced("a", 10, 1), paced("b", 10, 1), stripe)
	apply(t, s, stripe)
	if _, err := s.PutOverride(ctx, "stripe", "k", inforce.Override{Paused: true}); err != nil {
		t.Fatal(err)
	}
	prune := func(ctx context.Context, s *Store) error {
		_, err := s.Replace(ctx, Set{Policies: []policy.Policy{paced("a", 11, 1),
			paced("b", 11, 1), paced("c", 11, 1)}, Prune: true, Again: true})
		if err == nil {
			_, err = s.Forget(ctx, "stripe")
		}
		return err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	left := &atomic.Int64{}
	left.Store(1 << 40)
	mortal := open(nats.SetCustomDialer(dialer{left, cancel}), nats.NoReconnect(),
		nats.Timeout(lockedFor))
	left.Store(steps)
	survived = prune(within, mortal) == nil
	if err := prune(ctx, s); err != nil {
		t.Fatal(err)
	}
	see(t, s, fmt.Sprint("after ", steps, " steps"),
		"a 11 file default, b 11 file default, c 11 file default")
	if overrides, err := s.table.List(ctx, "stripe.>"); err != nil || len(overrides) > 0 {
		t.Errorf("overrides %v, %v", overrides, err)
	}
	if _, err := s.broker.Depth(ctx, "stripe"); !errors.Is(err, jet.ErrNoStream) {
		t.Errorf("its stream: %v", err)
	}
	return survived
}
