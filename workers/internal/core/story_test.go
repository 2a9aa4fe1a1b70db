package core

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// TestStories plays the stories of testdata/stories, line by line, in a deterministic world:
// drainers take and hand over partitions while they join, leave, crash and freeze. To rewrite them:
//
//	go test ./workers/internal/core -run TestStories -rewrite
//
// A block has a duration and the events at its beginning; the world's observations are below the
// line. The block `end` runs the world to its end and judges it, as the simulation does.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := newStory(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.told.Reset()
			length, err := time.ParseDuration(d.Cmd)
			switch {
			case d.Cmd == "end":
				s.end()
			case err != nil:
				d.Fatalf(t, "want how long it lasts, or end: %v", err)
			default:
				for line := range strings.Lines(d.Input) {
					if !s.does(strings.Fields(line)) {
						d.Fatalf(t, "what is %q?", line)
					}
				}
				s.until(s.now + length)
			}
			return s.told.String()
		})
	})
}

type story struct {
	*world
	t      *testing.T
	told   strings.Builder
	backup *stream
}

// calm is a source of the largest values: no event is random, and every delay is the longest.
type calm struct{}

func (calm) Uint64() uint64 { return math.MaxUint64 }

func newStory(t *testing.T) *story {
	s := &story{world: emptyWorld(0, noSabotage), t: t}
	s.rng = rand.New(calm{})
	s.chronicle = func(format string, args ...any) {
		fmt.Fprintf(&s.told, "%7.3f  %s\n", s.now.Seconds(), fmt.Sprintf(format, args...))
	}
	return s
}

func (s *story) until(end time.Duration) {
	for len(s.queue) > 0 && s.queue[0].at <= end {
		e := s.queue.Remove(0)
		s.now = e.at
		e.do()
	}
	s.now = end
}

func (s *story) end() {
	for patience := s.now + 10*time.Minute; !s.settled() && s.now < patience; {
		s.until(s.now + time.Second)
	}
	s.judge()
	for _, law := range s.broken {
		s.t.Error(law)
	}
	s.says("of %d jobs, %d are left", len(s.accepted), s.left())
}

func (s *story) left() (n int) {
	for _, f := range s.accepted {
		if !f.final() {
			n++
		}
	}
	return n
}

func (s *story) does(words []string) bool {
	word := func(i int) string {
		if i >= len(words) {
			s.t.Fatalf("%q says too little", words)
		}
		return words[i]
	}
	length := func(i int) time.Duration {
		length, err := time.ParseDuration(word(i))
		if err != nil {
			s.t.Fatal(err)
		}
		return length
	}
	switch words[0] {
	case "policy": // api rate=1/s partitions=2 …
		s.define(word(1), words[2:])
	case "join":
		s.join()
	case "publish": // api k0 3
		n, err := strconv.Atoi(word(3))
		if err != nil {
			s.t.Fatal(err)
		}
		key := queue.Key(word(2))
		for range n {
			s.publish(word(1), key, partitionOf(key, s.policyOf(word(1)).Partitions))
		}
	case "crash": // d1
		s.says("%s crashes", word(1))
		s.drainer(word(1)).crash()
	case "freeze": // d1 20s
		s.says("%s freezes", word(1))
		s.drainer(word(1)).frozen = s.now + length(2)
	case "cut": // d1 2s
		s.says("%s loses its connection", word(1))
		s.drainer(word(1)).disconnect(length(2))
	case "mute": // d1 5s: loses its renewals only
		s.drainer(word(1)).mute = s.now + length(2)
	case "leave": // d1
		d := s.drainer(word(1))
		d.receive(func() {
			d.leaving = true
			d.core.Handle(Stopped{}, d.clock())
		})
	case "delete": // lease d1-1, owner api.0: with a marker
		s.revision++
		s.write(tablesByName[word(1)], word(2), Record{Revision: s.revision})
	case "lose": // lease d1-1, owner api.0: with its table
		delete(s.records[tablesByName[word(1)]], word(2))
		for _, d := range s.drainers {
			s.to(d, s.latency(), func() { d.watched(tablesByName[word(1)], word(2), Record{}) })
		}
	case "backup": // api
		s.backup = copyOf(s.streams[word(1)])
	case "restore": // api
		s.restore(word(1))
	case "own":
		s.own()
	default:
		return false
	}
	return true
}

var tablesByName = map[string]Table{"lease": TableDrainers, "owner": TablePartitions}

func (s *story) drainer(name string) *drainer {
	d := s.named(name)
	if d == nil {
		s.t.Fatalf("there is no %s", name)
	}
	return d
}

// define makes a policy; the defaults are small and simple.
func (s *story) define(name string, numbers []string) {
	p := policy.Policy{
		Name:    name,
		Rule:    policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 1000, Burst: 1},
		Workers: 16, Partitions: 1, Timeout: policy.Duration(20 * time.Second),
	}
	for _, n := range numbers {
		what, value, _ := strings.Cut(n, "=")
		var err error
		switch what {
		case "rate":
			p.Outflow, err = algorithms.ParseRate(value)
		case "burst":
			p.Burst, err = strconv.ParseInt(value, 10, 64)
		case "partitions":
			p.Partitions, err = strconv.Atoi(value)
		case "concurrency":
			p.Concurrency, err = strconv.Atoi(value)
		case "shared": // starts in any 10 s, of all policies that share it
			l := policy.Limit{Shared: "account", Rule: policy.Rule{Algorithm: policy.SlidingLog,
				Window: policy.Duration(10 * time.Second)}}
			l.Limit, err = strconv.ParseInt(value, 10, 64)
			p.Limits = policy.Limits{l}
		case "slow": // jobs take 2 s, in place of 200 ms
			s.set.slow[name] = true
		default:
			err = fmt.Errorf("a policy has no %s", what)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	p = p.WithDefaults()
	s.valid(p)
	s.add(p)
}

func (s *story) own() {
	for _, d := range s.alive() {
		var owned []string
		for _, share := range d.core.shares.order {
			if share.part != nil && share.part.Owned() {
				owned = append(owned, share.key())
			}
		}
		s.says("%s owns %s", d.core.options.Name, cmp.Or(strings.Join(owned, ", "), "nothing"))
	}
}

func copyOf(s *stream) *stream {
	backup := newStream(s.created)
	backup.seq = s.seq
	for seq, m := range s.messages {
		backup.messages[seq] = m
		backup.depth[m.Key]++
	}
	return backup
}

// restore replaces a stream by a backup. Jobs that it lacks are lost, and others may have ended.
func (s *story) restore(name string) {
	was := s.streams[name]
	for _, seq := range slices.Sorted(maps.Keys(was.messages)) {
		if s.backup.messages[seq] == nil {
			s.remove(s.fateOf(name, was.messages[seq]))
		}
	}
	s.says("%s is restored: %d jobs, the last is %d", name, len(s.backup.messages), s.backup.seq)
	s.streams[name] = copyOf(s.backup)
	for _, m := range s.backup.messages {
		f := s.fateOf(name, m)
		f.forgiven, f.stream = true, s.streams[name]
	}
	for _, consumers := range was.consumers {
		for _, c := range consumers {
			c.closed = true
			s.to(c.owner, s.latency(), func() {
				c.owner.core.Handle(Broken{c.part.Partition, c.epoch}, c.owner.clock())
			})
		}
	}
}

func (w *world) says(format string, args ...any) {
	if w.chronicle != nil {
		w.chronicle(format, args...)
	}
}

func (d *drainer) says(format string, args ...any) {
	d.w.says("%s "+format, append([]any{d.core.options.Name}, args...)...)
}

func (d *drainer) started(s *stint) {
	before := ""
	if s.Crashes > 0 {
		before = fmt.Sprintf(" (crashes: %d)", s.Crashes)
	}
	if s.Attempt > 1 {
		before += fmt.Sprintf(" (attempt %d)", s.Attempt)
	}
	d.says("starts %s of %s%s", job.ID(s.fate.policy, s.Seq), s.fate.key, before)
}

func (d *drainer) fences(was bool) {
	switch is := d.core.wasOpen; {
	case is && !was:
		d.says("may start jobs")
	case was && !is:
		d.says("may start nothing")
	}
}

type putResult int

const (
	putOK putResult = iota
	putConflict
	putUnknown
)

func (w *world) wrote(d *drainer, p Put, value []byte, before *Record, result putResult) {
	if w.chronicle == nil || p.Why == whyCheckpoint {
		return
	}
	name := d.core.options.Name
	switch {
	case result == putConflict:
		w.says("%s is refused: %s has changed", name, p.Key)
	case result == putUnknown:
		w.says("%s hears nothing of its write of %s", name, p.Key)
	case p.Why == WhyRenew:
		w.renewalWritten(name, p.Key, value, before)
	case p.Why == whyTombstone:
		w.says("%s declares %s dead", name, p.Key)
	default:
		w.ownerWritten(name, p.Key, value, before)
	}
}

func (w *world) renewalWritten(name, id string, value []byte, before *Record) {
	var was, is record.Lease
	w.decode(value, &is)
	if before != nil && before.Exists {
		w.decode(before.Value, &was)
	}
	switch {
	case is.Leaving && !was.Leaving:
		w.says("%s says in %s that it leaves", name, id)
	case was.V == 0:
		w.says("%s takes out the lease %s", name, id)
	}
}

func (w *world) ownerWritten(name, key string, value []byte, before *Record) {
	var was, is record.Owner
	w.decode(value, &is)
	if before != nil && before.Exists {
		w.decode(before.Value, &was)
	}
	var tells strings.Builder
	for _, r := range is.Running {
		fmt.Fprintf(&tells, "; %s runs %d", r.Holder, r.Seq)
	}
	if len(is.Done) > 0 {
		fmt.Fprintf(&tells, "; done: %v", is.Done)
	}
	switch {
	case is.Released:
		w.says("%s releases %s%s", name, key, &tells)
	case was.V == 0:
		w.says("%s takes %s, which nobody had%s", name, key, &tells)
	case was.Released:
		w.says("%s takes %s, which %s released%s", name, key, was.Owner, &tells)
	case was.Owner == is.Owner:
		w.says("%s takes its own %s again%s", name, key, &tells)
	default:
		w.says("%s takes %s, which dead %s had%s", name, key, was.Owner, &tells)
	}
}

func (w *world) decode(value []byte, into any) {
	if err := record.Decode(value, into); err != nil {
		w.fail("%q: %v", value, err)
	}
}
