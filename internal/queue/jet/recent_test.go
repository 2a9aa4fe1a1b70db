package jet

import (
	"log/slog"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

func TestCountsOfTheLastMinuteAreForgottenAfterwards(t *testing.T) {
	js, err := jsapi.New(natstest.New(t), "")
	if err != nil {
		t.Fatal(err)
	}
	tally := newTally(js, Names{}, 1, slog.Default())
	now := time.Unix(1_900_000_000, 0)
	tally.born, tally.now = now, func() time.Time { return now }
	for range 7 {
		tally.Count("mail", CountStarted, 1)
	}
	tally.Count("mail", CountFailed, 1)
	now = now.Add(59 * time.Second)
	for _, what := range countedBy[queue.EventDone] {
		tally.Count("mail", what, 1)
	}
	all := tally.Recents()
	if n := all.Policies["mail"].N; n[CountStarted] != 7 || n[CountFailed] != 1 ||
		n[CountDone] != 1 || n[countEnded] != 1 || all.ForMS != 59_000 {
		t.Errorf("within a minute: %+v", all)
	}
	if starts := all.Policies["mail"].Starts; starts[len(starts)-1] != 0 ||
		starts[len(starts)-30] != 7 {
		t.Errorf("starts: %v", starts)
	}
	now = now.Add(3 * time.Second)
	if all := tally.Recents(); all.Policies["mail"].N[CountStarted] != 0 ||
		all.Policies["mail"].N[CountDone] != 1 || all.ForMS != 60_000 {
		t.Errorf("after a minute: %+v", all)
	}
	now = now.Add(-2 * time.Hour) // the clock is set
	if all := tally.Recents(); len(all.Policies) != 0 {
		t.Errorf("after the clock was set: %+v", all)
	}
}
