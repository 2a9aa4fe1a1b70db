package queue

import (
	"testing"
	"time"
)

func TestCountsOfTheLastMinuteAreForgottenAfterwards(t *testing.T) {
	b := newBroker(t)
	now := time.Unix(1_900_000_000, 0)
	b.tally.born, b.tally.now = now, func() time.Time { return now }
	for range 7 {
		b.events.Publish("mail", Event{Type: EventStarted, Key: "k"})
	}
	b.events.Publish("mail", Event{Type: EventFailed, Key: "k"})
	now = now.Add(59 * time.Second)
	b.events.Publish("mail", Event{Type: EventDone, Key: "k"})
	all := b.tally.Recents()
	if n := all.Policies["mail"].N; n[CountStarted] != 7 || n[CountFailed] != 1 ||
		n[CountDone] != 1 || n[countEnded] != 1 || all.ForMS != 59_000 {
		t.Errorf("within a minute: %+v", all)
	}
	if starts := all.Policies["mail"].Starts; starts[len(starts)-1] != 0 ||
		starts[len(starts)-30] != 7 {
		t.Errorf("starts: %v", starts)
	}
	now = now.Add(3 * time.Second)
	if all := b.tally.Recents(); all.Policies["mail"].N[CountStarted] != 0 ||
		all.Policies["mail"].N[CountDone] != 1 || all.ForMS != 60_000 {
		t.Errorf("after a minute: %+v", all)
	}
	now = now.Add(-2 * time.Hour) // the clock is set
	if all := b.tally.Recents(); len(all.Policies) != 0 {
		t.Errorf("after the clock was set: %+v", all)
	}
}
