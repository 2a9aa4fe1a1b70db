package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
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
		process.minutes.now = func() time.Time { return now }
	}
	if day, err := a.Day(ctx, "mail"); err != nil || len(day.Counts["started"]) != 0 {
		t.Fatalf("before anything was counted: %v, %v", day, err)
	}
	pass := func(minutes int) {
		a.KeepMinutes()
		b.KeepMinutes()
		now = now.Add(time.Duration(minutes) * time.Minute)
	}
	const many = 3 * gateFree
	for range many {
		a.PublishEvent("mail", Event{Type: EventStarted, Key: "k"})
	}
	b.PublishEvent("mail", Event{Type: EventStarted, Key: "k"})
	a.PublishEvent("mail", Event{Type: EventFailed, Key: "k"})
	a.PublishEvent("other", Event{Type: EventStarted, Key: "k"})
	b.Count("mail", CountDepth, 7)
	a.Count("mail", CountDepth, 5)
	a.Count("mail", CountDepth, 4)
	pass(2)
	a.PublishEvent("mail", Event{Type: EventDone, Key: "k"})
	a.PublishEvent("mail", Event{Type: EventDead, Key: "k"})
	b.Count("mail", CountRefused, 3)
	b.Count("mail", CountLateMS, 1500)
	pass(1)
	a.PublishEvent("mail", Event{Type: EventStarted, Key: "k"})
	a.KeepMinutes()
	day, err := b.Day(ctx, "mail")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("map[accepted:[0 0 0] dead:[0 0 1] depth:[7 0 0] ended:[0 0 2] "+
		"late_ms:[0 0 1500] refused:[0 0 3] started:[%d 0 0]]", many+1)
	if got := fmt.Sprint(day.Counts); got != want || !day.From.Equal(now.Add(-3*time.Minute)) {
		t.Errorf("from %v on\n%v, want\n%v", day.From, got, want)
	}
	now = now.Add(24*time.Hour - time.Minute)
	if day, err := b.Day(ctx, "mail"); err != nil || len(day.Counts["depth"]) != 24*60 ||
		day.Counts["ended"][1] != 0 {
		t.Errorf("a day later: %d minutes, %v", len(day.Counts["depth"]), err)
	}
}

func BenchmarkTell(b *testing.B) {
	broker := newBroker(b)
	for b.Loop() {
		broker.PublishEvent("mail", Event{Type: EventStarted, Key: "k"})
	}
}
