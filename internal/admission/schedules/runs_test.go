package schedules_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func addSchedule(t *testing.T, p *penstock.Penstock, place, name, when, body string,
	header ...string) {
	t.Helper()
	if status, said := ask(t, p, "POST", "/v1/schedules/"+place, body, append(header,
		"Penstock-Schedule", when, "Penstock-Schedule-Name", name)...); status != 201 {
		t.Fatalf("%d %s", status, said)
	}
}

func allSchedules(t *testing.T, p *penstock.Penstock, query string,
	header ...string) (all api.Schedules) {
	t.Helper()
	status, body := ask(t, p, "GET", "/v1/schedules"+query, "", header...)
	if err := json.Unmarshal([]byte(body), &all); err != nil || status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	return all
}

// outcomes are "<name>: <outcome> <job>".
func outcomes(all api.Schedules) (text []string) {
	for _, s := range all.Schedules {
		last := "none"
		if s.Last != nil {
			last = strings.TrimSpace(s.Last.Outcome + " " + s.Last.Job)
		}
		text = append(text, s.Name+": "+last)
	}
	return text
}

func runNow(t *testing.T, p *penstock.Penstock, place, name string, want int) string {
	t.Helper()
	status, body := ask(t, p, "POST", "/v1/run/"+place+"?name="+name, "")
	if status != want {
		t.Fatalf("%s %s: %d %s", place, name, status, body)
	}
	var accepted struct{ Job string }
	if err := json.Unmarshal([]byte(body), &accepted); err != nil {
		t.Fatal(err)
	}
	return accepted.Job
}

// The results of jobs that are done are kept in the server's memory, for two minutes.
func TestAScheduleSaysHowItsLastRunEnded(t *testing.T) {
	dir, further := t.TempDir(), make(chan struct{})
	begin := func() (p *penstock.Penstock, stop func() error) {
		p = open(t, penstock.Options{Server: embedded.Options{Dir: dir},
			Policies: []policy.Policy{paced("mail", 100, 100), paced("slow", 1, 1)}})
		p.Handle("mail", func(ctx context.Context, j workers.Job) error {
			if string(j.Body) == "wrong" {
				return workers.Permanent(errors.New("no such address"))
			}
			if string(j.Body) == "long" {
				select {
				case <-further:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
		return p, run(t, p)
	}
	p, stop := begin()
	addSchedule(t, p, "mail/acme", "alright", "@yearly", "right")
	addSchedule(t, p, "mail/acme", "bad", "@yearly", "wrong")
	addSchedule(t, p, "mail/acme", "held", "@yearly", "long")
	addSchedule(t, p, "mail/", "idle", "@yearly", "")
	addSchedule(t, p, "slow/x/y", "late", "@yearly", "")
	becomes := func(want ...string) {
		t.Helper()
		eventually(t, fmt.Sprint(want), func() bool {
			return fmt.Sprint(outcomes(allSchedules(t, p, ""))) == fmt.Sprint(want)
		})
	}
	becomes("alright: none", "bad: none", "held: none", "idle: none", "late: none")
	runNow(t, p, "mail/acme", "none", 404)
	runNow(t, p, "nothing/acme", "bad", 404)
	runNow(t, p, "mail/acme", "bad", 202)
	becomes("bad: dead mail:1", "alright: none", "held: none", "idle: none", "late: none")
	runNow(t, p, "mail/acme", "alright", 202)
	runNow(t, p, "mail/acme", "held", 202)
	late := runNow(t, p, "slow/x/y", "late", 202)
	runNow(t, p, "slow/x/y", "late", 429)
	becomes("bad: dead mail:1", "alright: done mail:2", "held: running mail:3", "idle: none",
		"late: waiting slow:1")
	if status, body := ask(t, p, "DELETE", "/v1/jobs/"+late, ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	further <- struct{}{}
	rest := []string{"bad: dead mail:1", "alright: done mail:2", "held: done mail:3", "idle: none",
		"late: cancelled slow:1"}
	becomes(rest...)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	p.Close()
	p, _ = begin()
	becomes(rest...)

	next := time.Date(time.Now().UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	all := allSchedules(t, p, "?limit=2")
	if all.Total != 5 || len(all.Schedules) != 2 || !all.Schedules[1].NextAt.Equal(next) {
		t.Errorf("got %+v", all)
	}
	status, body := ask(t, p, "GET", "/v1/audit/mail", "")
	if status != 200 || !strings.Contains(body, `"schedule run"`) ||
		!strings.Contains(body, `"mail:3"`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestAPausedScheduleRunsByHandOnly(t *testing.T) {
	ran := &scheduled{jobs: map[string]string{}}
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("report", 100, 100)}})
	p.Handle("report", ran.run)
	run(t, p)
	addSchedule(t, p, "report/k", "paused", "@every 1s", "paused")
	if status, body := ask(t, p, "PATCH", "/v1/schedules/report/k?name=paused&paused=1",
		""); status != 200 || strings.Contains(body, "next_at") {
		t.Fatalf("%d %s", status, body)
	}
	before := ran.count("paused")
	addSchedule(t, p, "report/k", "goes-on", "@every 1s", "goes on")
	runNow(t, p, "report/k", "paused", 202)
	runNow(t, p, "report/k", "paused", 202)
	eventually(t, "other ticks come, and the runs", func() bool {
		return ran.count("goes on") > 2 && ran.count("paused") >= before+2
	})
	if n := ran.count("paused") - before; n > 3 { // a tick may have been on its way
		t.Errorf("%d jobs of a paused schedule, want 2", n)
	}
	all := allSchedules(t, p, "")
	if s := all.Schedules[1]; s.Name != "paused" || !s.Paused || !s.NextAt.IsZero() {
		t.Errorf("paused: %+v", s)
	}
	if s := all.Schedules[0]; s.Last == nil || time.Until(s.NextAt) > 2*time.Second {
		t.Errorf("active: %+v", s)
	}
}

func TestAClientSeesTheSchedulesOfItsPolicies(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	rights, mail := []string{"submit", "operate", "read"}, []string{"mail"}
	text := "clients:\n" + access.Line("all", rights, []string{"*"}, nil, "all") + "\n" +
		access.Line("one", []string{"read"}, mail, nil, "one") + "\n" +
		access.Line("key", []string{"read", "operate"}, mail, []string{"k"}, "key") + "\n"
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1000, 10),
		paced("news", 1000, 10)}, AdmitOnly: true, HTTP: penstock.HTTP{Tokens: tokens}})
	for _, place := range []string{"mail/a", "mail/k", "news/k"} {
		addSchedule(t, p, place, "default", "@daily", "x", "Authorization", "Bearer all")
	}
	for client, want := range map[string]int{"all": 3, "one": 2, "key": 0} {
		all := allSchedules(t, p, "", "Authorization", "Bearer "+client)
		if len(all.Schedules) != want || all.Total != want {
			t.Errorf("%s sees %+v", client, all)
		}
	}
	for _, c := range []struct {
		client, place string
		want          int
	}{{"one", "mail/a", 403}, {"key", "mail/a", 403}, {"key", "news/k", 403},
		{"key", "mail/k", 202}, {"all", "news/k", 202}} {
		if status, body := ask(t, p, "POST", "/v1/run/"+c.place, "", "Authorization",
			"Bearer "+c.client); status != c.want {
			t.Errorf("%s at %s: %d %s", c.client, c.place, status, body)
		}
	}
}
