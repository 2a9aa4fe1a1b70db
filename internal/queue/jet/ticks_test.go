package jet

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

func TestTheLastRunIsNotedBesideTheLastTick(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2030, 1, 1, 6, minute, 0, 0, time.UTC) }
	tick := func(minute int) string {
		return "schedule nightly 0 * * * * * " + at(minute).Format(time.RFC3339Nano)
	}
	const hand, other = "schedule nightly run x 2030-01-01T07:00:00Z", "schedule nightly run y "
	type note struct {
		id  string
		ran Ran
	}
	job1, job2 := Ran{At: at(0), Job: 1}, Ran{At: at(1), Job: 2}
	done := func(r Ran) Ran { r.End = queue.EndDone; return r }
	missed := Ran{At: at(2), Missed: "full"}
	for name, test := range map[string]struct {
		notes []note
		tick  string
		ran   Ran
	}{
		"a job ends": {[]note{{tick(1), job1}, {tick(1), done(job1)}}, tick(1), done(job1)},
		"a job ends before the admitter notes it": {
			[]note{{tick(1), done(job1)}, {tick(1), job1}}, tick(1), done(job1)},
		"an earlier job ends late": {
			[]note{{tick(1), job1}, {tick(2), job2}, {tick(1), done(job1)}}, tick(2), job2},
		"a missed tick may come again": {
			[]note{{tick(1), done(job1)}, {tick(3), missed}}, tick(1), missed},
		"an earlier job ends after a missed tick": {
			[]note{{tick(1), job1}, {tick(3), missed}, {tick(1), done(job1)}}, tick(1), missed},
		"a policy made again has its first job again": {
			[]note{{tick(1), done(job1)}, {tick(2), Ran{At: at(1), Job: 1}}}, tick(2),
			Ran{At: at(1), Job: 1}},
		"a run by hand leaves the tick": {
			[]note{{tick(1), job1}, {hand, job2}, {hand, done(job2)}}, tick(1), done(job2)},
		"a tick follows a run by hand": {
			[]note{{tick(1), job1}, {hand, job2}, {tick(3), missed}}, tick(1), missed},
		"an earlier run by hand ends late": {
			[]note{{hand, job1}, {other, job2}, {hand, done(job1)}}, "", job2},
	} {
		var noted notedTick
		for _, n := range test.notes {
			noted.note(n.id, n.ran, n.id == hand || n.id == other)
		}
		if noted.Tick != test.tick || noted.Ran != test.ran {
			t.Errorf("%s: %+v", name, noted)
		}
	}
}

func TestNextTimesAreTheServers(t *testing.T) {
	stored := time.Date(2030, 1, 1, 6, 0, 0, 4e8, time.UTC)
	last := LastRun{next: stored.Add(20 * time.Minute).Round(time.Second)}
	for _, test := range []struct {
		when, zone string
		after      time.Duration
		want       string
	}{
		{"0 30 6 * * *", "", 0, "06:30:00"},
		{"0 30 9 * * *", "Europe/Berlin", 0, "08:30:00"},
		{"@at 2030-01-01T07:00:00+01:00", "", -time.Second, "06:00:00"},
		{"@at 2030-01-01T07:00:00+01:00", "", time.Second, ""},
		{"@every 10m0s", "", time.Second, "06:10:00"},
		{"@every 10m0s", "", 11 * time.Minute, "06:20:00"},
		{"@every 10m0s", "", 21 * time.Minute, ""}, // a server that was away counts anew
	} {
		s := Schedule{Name: "n", When: test.when, Zone: test.zone, stored: stored}
		got := ""
		if at := s.Next(stored.Add(test.after), last); !at.IsZero() {
			got = at.Format(time.TimeOnly)
		}
		s.Paused = true
		if paused := s.Next(stored, last); got != test.want || !paused.IsZero() {
			t.Errorf("%s after %v: %s, want %s; paused: %v", test.when, test.after, got, test.want,
				paused)
		}
	}
}
