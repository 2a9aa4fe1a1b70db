package jet

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/queue"
)

// Counts of several processes are added per minute, with and without listeners of events; of depths
// the maximum counts.
func TestADayIsCountedByAllProcessesTogether(t *testing.T) {
	ctx := natstest.Context(t)
	a := newBroker(t)
	b, err := NewBroker(a.nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_900_000_000, 0).Truncate(time.Minute)
	for _, process := range []*Broker{a, b} {
		process.tally.now = func() time.Time { return now }
	}
	if day, err := a.tally.Day(ctx, "mail"); err != nil || len(day.Counts["started"]) != 0 {
		t.Fatalf("before anything was counted: %v, %v", day, err)
	}
	pass := func(minutes int) {
		a.tally.KeepMinutes()
		b.tally.KeepMinutes()
		now = now.Add(time.Duration(minutes) * time.Minute)
	}
	const many = 3 * gateFree
	for range many {
		a.events.Publish("mail", queue.Event{Type: queue.EventStarted, Key: "k"})
	}
	b.events.Publish("mail", queue.Event{Type: queue.EventStarted, Key: "k"})
	a.events.Publish("mail", queue.Event{Type: queue.EventFailed, Key: "k"})
	a.events.Publish("other", queue.Event{Type: queue.EventStarted, Key: "k"})
	b.tally.Count("mail", countDepth, 7)
	a.tally.Count("mail", countDepth, 5)
	a.tally.Count("mail", countDepth, 4)
	pass(2)
	a.events.Publish("mail", queue.Event{Type: queue.EventDone, Key: "k"})
	a.events.Publish("mail", queue.Event{Type: queue.EventDead, Key: "k"})
	b.tally.Count("mail", CountRefused, 3)
	b.tally.Count("mail", countLateMS, 1500)
	pass(1)
	a.events.Publish("mail", queue.Event{Type: queue.EventStarted, Key: "k"})
	a.tally.KeepMinutes()
	day, err := b.tally.Day(ctx, "mail")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("map[accepted:[0 0 0] dead:[0 0 1] depth:[7 0 0] ended:[0 0 2] "+
		"late_ms:[0 0 1500] refused:[0 0 3] started:[%d 0 0]]", many+1)
	if got := fmt.Sprint(day.Counts); got != want || !day.From.Equal(now.Add(-3*time.Minute)) {
		t.Errorf("from %v on\n%v, want\n%v", day.From, got, want)
	}
	now = now.Add(24*time.Hour - time.Minute)
	if day, err := b.tally.Day(ctx, "mail"); err != nil || len(day.Counts["depth"]) != 24*60 ||
		day.Counts["ended"][1] != 0 {
		t.Errorf("a day later: %d minutes, %v", len(day.Counts["depth"]), err)
	}
}

func BenchmarkTell(b *testing.B) {
	broker := newBroker(b)
	for b.Loop() {
		broker.events.Publish("mail", queue.Event{Type: queue.EventStarted, Key: "k"})
	}
}
