package gates

import (
	"maps"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

func TestLostTimeIsReportedOnce(t *testing.T) {
	var ls Losses
	var late Lateness
	ls.note(&late, ByProcessor, time.Second, second)
	ls.note(&late, ByCooling, 0, second)
	told := map[string]time.Duration{}
	for range 2 {
		ls.TakeLost(func(cause string, lost time.Duration) { told[cause] += lost })
	}
	if want := map[string]time.Duration{job.LateByProcessor: time.Second}; !maps.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	by := func(now pace.Instant) map[string]int64 {
		ms, _ := ls.By(late, nil, nil, pace.Never, true, now)
		return ms
	}
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{0, 991}, {time.Minute, 364}, {time.Hour, 0}} {
		if got := by(second.Add(c.after)); got[job.LateByProcessor] != c.want {
			t.Errorf("after %v: %d ms, want %d", c.after, got[job.LateByProcessor], c.want)
		}
	}
	// at most the minute itself, in one piece or several
	now := second.Add(time.Hour)
	for _, piece := range []time.Duration{time.Hour, 45 * time.Second} {
		for range 20 {
			now = now.Add(piece)
			ls.note(&late, ByBreaker, piece, now)
		}
		if ms := by(now)[job.BlockedByBreaker]; ms < 59_000 || ms > 60_000 {
			t.Errorf("late all the time, %v long at a time: %v ms in the last minute", piece, ms)
		}
	}
}
