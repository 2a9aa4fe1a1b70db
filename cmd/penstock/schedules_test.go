package main

import (
	"testing"

	"github.com/penstock-mq/penstock/api"
)

func TestSchedulesAreMadePausedAndEnded(t *testing.T) {
	i := install(t, `
  - {name: mail, algorithm: leaking_bucket, outflow: 1/s, capacity: 9}
  - {name: news, algorithm: leaking_bucket, outflow: 1/s, capacity: 9}
schedules:
  - {policy: news, when: '@daily', zone: Europe/Berlin, body: paper}
`)
	i.Says(0, []string{"schedules", "set", "mail", "30 6 * * 1-5", "report", "--key", "acme",
		"--priority", "3", "-H", "Content-Type: text/plain", "--tag", "nightly"},
		"schedule default of acme of mail: 0 30 6 * * 1-5, UTC")
	i.Says(0, []string{"schedules", "add", "mail", "@every 90s", "--key", "acme", "--name", "ping"},
		"schedule ping of acme of mail: @every 90s")
	i.Feed("a \x1b[31mred\x1b[0m word", "schedules", "set", "mail", "@hourly", "-")
	i.Says(0, words("schedules ls"), "mail    acme  ping     @every 90s", "OUTCOME\n",
		`news    ""    default  @daily          Europe/Berlin  active  default  `)
	i.Says(0, words("schedule ls mail"), `mail    ""    default  @hourly`, "active  api")
	i.Says(0, words("schedules show mail --key acme"), "report\n", "Penstock-Priority  3", "UTC",
		"Penstock-Tag       nightly", "from               api")
	i.Says(0, words("schedules show mail"), `"a \x1b[31mred\x1b[0m word"`)
	i.Says(0, words("schedules pause mail --key acme --name ping"),
		"schedule ping of acme of mail is paused")
	i.Says(0, words("schedules ls mail"), "paused")
	var s api.ScheduleDetail
	i.Document(0, &s, "schedules", "show", "mail", "--key", "acme", "--name", "ping")
	if !s.Paused || s.When != "@every 90s" || s.Body == nil {
		t.Errorf("got %+v", s)
	}
	i.Says(0, words("schedules resume mail --key acme --name ping"), "is resumed")
	i.Document(0, &s, "schedules", "resume", "mail", "--key", "acme", "--name", "ping")
	var all api.Schedules
	i.Document(0, &all, "schedules", "ls")
	if len(all.Schedules) != 4 || s.Paused {
		t.Errorf("got %+v, %+v", all, s)
	}

	i.Says(0, words("schedules run news"), "news:1")
	i.Until("stored news:1", "schedules", "ls")
	i.Says(0, words("schedules show news"), "last", "stored news:1", "next")
	i.Says(0, words("schedules pause news"), "is paused")
	i.Says(0, words("schedules run news"), "news:2")
	for range 7 {
		i.Says(0, words("schedules run news"), "news:")
	}
	i.Says(3, words("schedules run news"), "refused, retry in")
	i.Says(4, words("schedules run news --name x"), "the key has --name default")
	i.Says(4, words("schedules rm mail --key acme --name pong"), "did you mean ping?")
	i.Says(4, words("schedules rm mail --key acmee"), "did you mean acme?")
	i.Says(4, words("schedules pause news --name x"), "the key has --name default")
	i.Says(4, words("schedules show mial --key acme"), "no such schedule")
	i.Says(4, words("schedules set maill @daily"), "did you mean mail?")
	i.Says(4, words("schedules ls maill"), "did you mean mail?")
	i.Says(2, words("schedules set mail 30 6 * * 1-5"), "quote WHEN")
	i.Says(2, []string{"schedules", "set", "mail", "30 6 * * 1-8"}, "day of the week")
	i.Says(2, words("schedules set mail @daily --zone Europe/Berlim"), "Europe/Berlin?")
	i.Says(2, words("schedules puase mail"), "did you mean pause?")
	i.Says(0, words("schedules rm mail --key acme --name ping"), "is gone")
	i.Says(4, words("schedules rm mail --key acme --name ping"), "no such schedule")
	i.Says(0, []string{"__complete", "schedules", "pause", ""}, "mail", "news")
}
