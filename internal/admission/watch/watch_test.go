package watch

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func all(api.Event) bool { return true }

func open(t *testing.T) (*Watch, *jet.Broker) {
	t.Helper()
	_, nc := brokertest.Start(t, embedded.Options{})
	broker, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := New(broker)
	t.Cleanup(w.Close)
	return w, broker
}

var (
	operator  = admit.Client{Operator: true}
	listeners atomic.Int32
)

func listen(t *testing.T, w *Watch, after string, wants func(api.Event) bool) *Listener {
	t.Helper()
	l, err := w.Listen(admit.Client{Name: fmt.Sprint(listeners.Add(1))}, after, 0, wants)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Leave)
	return l
}

func (l *Listener) next(t *testing.T) api.Event {
	t.Helper()
	select {
	case e, open := <-l.Events:
		if !open {
			t.Fatalf("the listener was ended: %s", l.Reason())
		}
		return e
	case <-time.After(waittest.Patience()):
		t.Fatal("no event")
		panic("not reached")
	}
}

func (w *Watch) tell(t *testing.T, broker *jet.Broker, n int) {
	t.Helper()
	w.mu.Lock()
	want := w.number + uint64(n)
	w.mu.Unlock()
	for i := range n {
		broker.Events().Publish("mail", queue.Event{Type: queue.EventStarted, Key: "k",
			Job: fmt.Sprintf("mail:%d", i+1), WaitMS: int64(i)})
	}
	waittest.Until(t, "the events are heard", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.number == want
	})
}

func TestAListenerGetsItsEvents(t *testing.T) {
	w, broker := open(t)
	everything := listen(t, w, "", all)
	dead := listen(t, w, "", func(e api.Event) bool { return e.Type == queue.EventDead })
	broker.Events().Publish("mail", queue.Event{Type: queue.EventStarted, Job: "mail:1",
		Key: "a%20b", WaitMS: 7, Attempt: 1})
	broker.Events().Publish("bulk", queue.Event{Type: queue.EventDead, Job: "bulk:1", Key: "_",
		Reason: "deadline"})
	first, second := everything.next(t), everything.next(t)
	if first.Policy != "mail" || first.Key != "a b" || first.WaitMS != 7 || first.At.IsZero() {
		t.Errorf("the first event is %+v", first)
	}
	if second.Policy != "bulk" || second.Key != "" || second.Reason != "deadline" ||
		second.ID == first.ID {
		t.Errorf("the second event is %+v", second)
	}
	if e := dead.next(t); !reflect.DeepEqual(e, second) {
		t.Errorf("who wants letters hears %+v", e)
	}
}

func TestAReconnectReplaysKeptEvents(t *testing.T) {
	w, broker := open(t)
	first := listen(t, w, "", all)
	w.tell(t, broker, 3)
	last := first.next(t)
	first.Leave()
	back := listen(t, w, last.ID, all)
	if e := back.next(t); back.Missed || e.Job != "mail:2" {
		t.Errorf("after the first it hears %+v, missed: %t", e, back.Missed)
	}
	w.tell(t, broker, kept-2)
	if l := listen(t, w, last.ID, all); l.Missed || l.next(t).Job != "mail:2" {
		t.Error("it missed an event that is kept")
	}
	w.tell(t, broker, 1)
	if l := listen(t, w, last.ID, all); !l.Missed || l.next(t).Job != "mail:3" {
		t.Error("it is not told that it missed an event")
	}
	for _, id := range []string{"nonsense", "-1", last.ID + "00000", "x" + last.ID,
		strings.Repeat("9", 1000)} {
		if l := listen(t, w, id, all); !l.Missed || len(l.Events) > 0 {
			t.Errorf("after %.20q it hears something, or missed nothing", id)
		}
	}
}

func TestASlowListenerIsDropped(t *testing.T) {
	w, broker := open(t)
	slow, quick := listen(t, w, "", all), listen(t, w, "", all)
	for range 3 * (behind + kept) / 600 {
		w.tell(t, broker, 600)
		for range 600 {
			quick.next(t)
		}
	}
	if slow.Reason() != Slow {
		t.Fatalf("it listens on, %d events behind, or was ended because: %s", len(slow.Events),
			slow.Reason())
	}
	heard := 0
	for range slow.Events {
		heard++
	}
	if heard != behind+kept {
		t.Errorf("it heard %d events", heard)
	}
}

func TestAWatchSubscribesOnlyWhileInUse(t *testing.T) {
	w, broker := open(t)
	heard := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.stop != nil
	}
	w.Take(queue.Event{Type: jet.EventAdmitted, Policy: "mail", Key: "a", Name: "rejected"})
	if heard() {
		t.Error("it hears events before anybody asks")
	}
	l := listen(t, w, "", all)
	w.rest()
	if !heard() {
		t.Error("it rests while somebody listens")
	}
	w.tell(t, broker, 1)
	before := l.next(t).ID
	l.Leave()
	if w.rest(); heard() {
		t.Error("it hears events while nobody listens")
	}
	l = listen(t, w, before, all)
	if w.tell(t, broker, 1); !l.Missed || l.next(t).ID == before {
		t.Error("an event of before has the name of one of now")
	}
	w.Close()
	if _, open := <-l.Events; open || l.Reason() != Stopping {
		t.Errorf("at the end a listener hears on, or does not know why not: %q", l.Reason())
	}
	if _, err := w.Listen(operator, "", 0, all); err == nil {
		t.Error("it listens after its end")
	}
}

func TestAClientListensWithinItsShare(t *testing.T) {
	w, _ := open(t)
	weak := admit.Client{Name: "weak"}
	var err error
	for n := 0; err == nil; n++ {
		var l *Listener
		if l, err = w.Listen(weak, "", 0, all); err == nil {
			t.Cleanup(l.Leave)
		} else if !errors.Is(err, admit.ErrBusy) || n < MaxListeners/2 {
			t.Errorf("%d listen, and one more does not: %v", n, err)
		}
	}
	l, err := w.Listen(operator, "", 0, all)
	if err != nil {
		t.Fatal("an operator is deaf:", err)
	}
	for range MaxListeners {
		l.Leave()
		if l, err = w.Listen(operator, "", 0, all); err != nil {
			t.Fatal(err)
		}
	}
	l.Leave()
}

// Counts run before anybody asks, in every process; quantiles need a watch.
// What began in the part before may have been counted half a second ago.
func TestStartsReachBackAsFarAsCounted(t *testing.T) {
	var r jet.Recent
	last := len(r.Starts) - 1
	for part := range r.Starts {
		r.Starts[part] = 2
	}
	for ms, parts := range map[int64]int{1: 2, 500: 2, 2000: 2, 2001: 3, 2500: 3, 58_000: 30,
		60_000: last + 1} {
		if got := len(statOf("mail", r, ms).Starts); got != 2*parts {
			t.Errorf("counted for %d ms: %d seconds, want %d", ms, got, 2*parts)
		}
	}
}

func TestStatsCoverTheLastMinuteOfAllProcesses(t *testing.T) {
	w, broker := open(t)
	other, err := jet.NewBroker(broker.Conn(), jet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	every := func(string) bool { return true }
	stats := func() api.Stats {
		t.Helper()
		s, err := w.Stats(t.Context(), every, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 30 {
		other.Events().Publish("mail", queue.Event{Type: queue.EventDead, Key: "k"})
		broker.Events().Publish("mail", queue.Event{Type: queue.EventStarted, Key: "k"})
	}
	for range 5 {
		rejected := queue.Event{Type: jet.EventAdmitted, Policy: "mail", Name: "rejected"}
		broker.Events().Take(rejected)
		other.Events().Take(rejected)
	}
	broker.Events().Take(queue.Event{Type: jet.EventChecked, Policy: "signup", Key: "a",
		Value: 1})
	other.Events().Take(queue.Event{Type: jet.EventChecked, Policy: "signup", Key: "a"})
	waittest.Until(t, "the other process has told", func() bool {
		s := stats()
		return len(s.Policies) == 2 && s.Policies[0].Dead == 30
	})
	s := stats()
	mail, signup := s.Policies[0], s.Policies[1]
	if mail.Policy != "mail" || mail.Started != 30 || mail.Refused != 10 || mail.Wait != nil {
		t.Errorf("mail: %+v", mail)
	}
	sum := int64(0)
	for _, n := range mail.Starts {
		sum += n
	}
	if sum != 30 {
		t.Errorf("%d starts by second: %v", sum, mail.Starts)
	}
	if signup.ChecksAllowed != 1 || signup.ChecksRefused != 1 {
		t.Errorf("signup: %+v", signup)
	}
	w.tell(t, broker, 100)
	if p := stats().Policies[0]; p.Started != 130 || p.Wait.P50 < 49 || p.Wait.P50 > 56 {
		t.Errorf("mail, heard: %+v", p)
	}
	if s, err := w.Stats(t.Context(), func(p string) bool { return p == "signup" },
		0); err != nil || len(s.Policies) != 1 {
		t.Errorf("a client of one policy sees %+v, %v", s, err)
	}
	w.mu.Lock()
	w.now = func() time.Time { return time.Now().Add(61 * time.Second) }
	w.mu.Unlock()
	broker.Conn().Close()
	if s := stats(); s.WindowMS != 0 || s.Policies[0].Dead != 0 || s.Policies[0].Refused != 5 {
		t.Errorf("cut off, a minute later: %+v", s)
	}
}

func TestPoliciesThatAreGoneMakeRoomForOthers(t *testing.T) {
	w, _ := open(t)
	now := time.Unix(1_800_000_000, 0)
	w.now = func() time.Time { return now }
	if _, err := w.Stats(t.Context(), func(string) bool { return true }, 0); err != nil {
		t.Fatal(err)
	}
	name := ""
	for i := range 2 * maxPolicies {
		w.mu.Lock()
		now = now.Add(time.Second)
		w.mu.Unlock()
		name = fmt.Sprint("new-", i)
		w.Take(queue.Event{Type: jet.EventAdmitted, Policy: name, Key: "a", Name: "rejected"})
	}
	seen, err := w.Refusals(func(p string) bool { return p == name })
	if err != nil || len(seen.Keys[name]) != 1 || seen.Keys[name][0].Refused != 1 {
		t.Errorf("the last policy has %+v, %v", seen, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.figures); n > window+2 {
		t.Errorf("%d policies have figures, a minute after most of them", n)
	}
}

func TestStatsIncludeShadowLimits(t *testing.T) {
	w, broker := open(t)
	stats := func() api.Stats {
		s, err := w.Stats(t.Context(), func(string) bool { return true }, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	stats()
	w.Take(queue.Event{Type: jet.EventShadowed, Policy: "mail", Name: "next"})
	w.Take(queue.Event{Type: jet.EventShadowed, Policy: "mail", Name: "next", Value: 1,
		For: 2 * time.Second})
	w.Take(queue.Event{Type: jet.EventShadowed, Policy: "mail", Name: "next", Value: 1,
		For: time.Second})
	broker.Events().Publish("mail", queue.Event{Type: queue.EventStarted, Key: "k", Job: "mail:1",
		Shadow: map[string]int64{"pace": 250}})
	waittest.Until(t, "the event is heard", func() bool {
		s := stats()
		return len(s.Policies) == 1 && s.Policies[0].Shadow["pace"].Over == 1
	})
	if s := stats().Policies[0].Shadow; s["next"] != (api.Shadow{Over: 2, ByMS: 3000}) ||
		s["pace"] != (api.Shadow{Over: 1, ByMS: 250}) {
		t.Errorf("%+v", s)
	}
}

func TestQuantilesAreAtMostAnEighthTooLarge(t *testing.T) {
	for ms := int64(0); ms < 9*3_600_000; ms += 1 + ms/100 {
		if got := most(bin(ms)); got < ms || got > ms+ms/8 {
			t.Errorf("%d is counted as %d", ms, got)
		}
	}
	if bin(-1) != 0 || bin(1<<62) != bins-1 {
		t.Error("what no job can wait is counted somewhere else")
	}
}

func TestANewListenerGetsRecentEvents(t *testing.T) {
	w, broker := open(t)
	listen(t, w, "", all)
	w.tell(t, broker, kept+50)
	l, err := w.Listen(operator, "", 3, func(e api.Event) bool { return e.WaitMS%2 == 0 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Leave)
	for _, want := range []string{"mail:1069", "mail:1071", "mail:1073"} {
		if got := l.next(t); got.Job != want {
			t.Errorf("told of %s, want %s", got.Job, want)
		}
	}
	everything, err := w.Listen(operator, "", MaxRecent, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(everything.Leave)
	if n := len(everything.Events); n != kept || everything.Missed {
		t.Errorf("told of %d events, want the %d that are kept", n, kept)
	}
}

func TestAStartHasItsInstant(t *testing.T) {
	w, broker := open(t)
	l := listen(t, w, "", all)
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	broker.Events().Publish("mail", queue.Event{Type: queue.EventStarted, Job: "mail:1", Key: "k",
		At: at})
	if e := l.next(t); !e.At.Equal(at) {
		t.Errorf("told of a start at %v, want %v", e.At, at)
	}
}
