package gates

import (
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // tests must not depend on installed zones

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

func quietAt(t *testing.T, at string, spans ...policy.Quiet) (q *Quiet, wall *time.Time) {
	t.Helper()
	now, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	q = NewQuiet(func(i pace.Instant) time.Time { return now.Add(i.Since(second)) })
	q.Set(spans)
	return q, &now
}

func TestQuietTimeIsWhatClocksShow(t *testing.T) {
	night := policy.Quiet{From: "22:00", To: "07:00", Zone: "Europe/Berlin"}
	for _, c := range []struct {
		at    string
		spans []policy.Quiet
		want  string // hours to the begin and to the end of the next stretch
	}{
		{"2026-11-30T20:30:00+01:00", []policy.Quiet{night}, "1.5 10.5"},
		{"2026-11-30T22:00:00+01:00", []policy.Quiet{night}, "0 9"},
		{"2026-11-30T06:59:00+01:00", []policy.Quiet{night}, "0 0.016666666666666666"},
		{"2026-11-30T07:00:00+01:00", []policy.Quiet{night}, "15 24"},
		// clocks go forward, and back, at two or three
		{"2026-03-28T21:00:00+01:00", []policy.Quiet{night}, "1 9"},
		{"2026-10-24T21:00:00+02:00", []policy.Quiet{night}, "1 11"},
		{"2026-03-29T00:00:00+01:00",
			[]policy.Quiet{{From: "02:30", To: "04:00", Zone: "Europe/Berlin"}}, "2 3"},
		{"2026-10-25T01:00:00+02:00",
			[]policy.Quiet{{From: "02:00", To: "02:30", Zone: "Europe/Berlin"}}, "1 1.5"},
		{"2026-10-25T02:31:00+02:00",
			[]policy.Quiet{{From: "02:00", To: "02:30", Zone: "Europe/Berlin"}},
			"0.48333333333333334 0.9833333333333333"},
		// spans that meet are one stretch
		{"2026-11-30T11:00:00Z", []policy.Quiet{{From: "12:00", To: "13:00"},
			{From: "13:00", To: "14:00"}, {From: "13:30", To: "15:00"},
			{From: "18:00", To: "19:00"}}, "1 4"},
		{"2026-11-30T15:00:00Z", []policy.Quiet{{From: "12:00", To: "13:00"},
			{From: "18:00", To: "19:00"}}, "3 4"},
	} {
		q, _ := quietAt(t, c.at, c.spans...)
		got := fmt.Sprint(q.Begins(second).Since(second).Hours(), " ",
			q.ends.Since(second).Hours())
		if got != c.want {
			t.Errorf("at %s, %v: %s, want %s", c.at, c.spans, got, c.want)
		}
	}
}

func TestQuietTimeIsReadAgainAfterAClockWasSet(t *testing.T) {
	q, wall := quietAt(t, "2026-11-30T12:30:00Z", policy.Quiet{From: "12:00", To: "13:00"})
	if h := q.Hold(second); h.By != ByQuiet || h.Until != second.Add(30*time.Minute) {
		t.Errorf("it holds by %s for %v", h.By, h.Until.Since(second))
	}
	*wall = wall.Add(time.Hour)
	q.Forget()
	if h := q.Hold(second); h.Until > second {
		t.Errorf("it holds for %v after its end", h.Until.Since(second))
	}
}

func TestAForecastLeavesQuietTimeOut(t *testing.T) {
	q, _ := quietAt(t, "2026-11-30T12:00:00Z", policy.Quiet{From: "13:00", To: "23:00"})
	b, at := bucket(), func(hours int) pace.Instant {
		return second.Add(time.Duration(hours) * time.Hour)
	}
	for _, c := range []struct {
		slots     int64
		from, ask int
		want      pace.Instant
	}{
		{1, 0, 0, at(0)}, {1, 0, 1, at(11)}, {1, 0, 3, at(13)}, {1, 0, 30, at(60)},
		{0, 0, 2, at(11)}, {0, 0, 12, at(12)},
		{1, 2, 11, at(11)}, {1, 2, 12, at(12)}, // the present stretch is in it
		{1, 0, 24 * 1000, pace.Never},
	} {
		q.Forget()
		b.Now = at(c.from)
		if got := q.After(b, &Ahead{Slots: c.slots}, at(c.ask)); got != c.want {
			t.Errorf("%+v: after %v, want %v", c, got.Since(second), c.want.Since(second))
		}
	}
}
