package schedules_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func scheduleStream(t *testing.T, p *penstock.Penstock) (jetstream.Stream, *jetstream.StreamInfo) {
	t.Helper()
	nc, err := p.Connect("a look")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var stream jetstream.Stream
	eventually(t, "the stream is there", func() bool {
		stream, err = js.Stream(t.Context(), "PENSTOCK_SCHEDULES")
		return err == nil
	})
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream, info
}

func listed(t *testing.T, p *penstock.Penstock) string {
	t.Helper()
	var list struct {
		Schedules []struct {
			Key, When string
			Paused    bool
			Set       string
		}
	}
	status, body := ask(t, p, "GET", "/v1/schedules/report", "")
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	return fmt.Sprint(list.Schedules)
}

func everyHour(key string) schedules.Entry {
	return schedules.Entry{Policy: "report", Key: key, When: "@every 1h", Body: key}
}

// Changes over the API since then stay until the text changes, and no message is published again.
func TestASchedulesTextInTheFileCountsOnce(t *testing.T) {
	o := penstock.Options{AdmitOnly: true, Server: embedded.Options{Dir: t.TempDir()},
		Policies:  []policy.Policy{paced("report", 100, 100)},
		Schedules: []schedules.Entry{everyHour("a"), everyHour("b"), everyHour("c")}}
	p := open(t, o)
	expect := func(what, want string) {
		t.Helper()
		if got := listed(t, p); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	do := func(method, path string, header ...string) {
		t.Helper()
		if status, body := ask(t, p, method, "/v1/schedules/report/"+path, "",
			header...); status/100 != 2 {
			t.Fatalf("%s %s: %d %s", method, path, status, body)
		}
	}
	restart := func(entries ...schedules.Entry) {
		t.Helper()
		p.Close()
		o.Schedules = entries
		p = open(t, o)
	}
	run(t, p)
	do("PATCH", "a?paused=1")
	do("DELETE", "b")
	do("POST", "d", "Penstock-Schedule", "@daily")
	const changed = "[{a @every 1h true default} {d @daily false }]"
	_, before := scheduleStream(t, p)
	restart(everyHour("a"), everyHour("b"))
	expect("c has left", changed)
	_, after := scheduleStream(t, p)
	if n := after.State.LastSeq - before.State.LastSeq; n != 1 {
		t.Errorf("%d messages are new", n)
	}
	a := everyHour("a")
	a.Cost = 2
	restart(a, everyHour("b"))
	expect("a pause outlives another text", changed)
	a.Paused = new(false)
	restart(a, everyHour("b"))
	expect("the file ends a pause",
		"[{a @every 1h false default} {d @daily false }]")
	do("PATCH", "a?paused=1")
	do("POST", "e", "Penstock-Schedule", "@daily")
	restart(a, everyHour("b"), everyHour("e"))
	expect("the file has one that the API had",
		"[{a @every 1h true default} {d @daily false } {e @every 1h false default}]")
	restart()
	expect("no list", "[{a @every 1h true default} {d @daily false } {e @every 1h false default}]")
	o.Set = "other"
	p.Close()
	o.Policies = []policy.Policy{paced("report", 100, 100)}
	o.Policies[0].Name = "mine"
	o.Schedules = []schedules.Entry{{Policy: "mine", Key: "k", When: "@daily"}}
	p = open(t, o)
	expect("a file of another set",
		"[{a @every 1h true default} {d @daily false } {e @every 1h false default}]")
	p.Close()
	o.Set, o.Policies = "", []policy.Policy{paced("report", 100, 100)}
	o.Schedules = []schedules.Entry{}
	p = open(t, o)
	expect("an empty list", "[{d @daily false }]")
}

func TestAdmittersWithOneFileWriteItOnce(t *testing.T) {
	policies := []policy.Policy{paced("report", 100, 100)}
	first := open(t, penstock.Options{AdmitOnly: true, Policies: policies,
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}})
	run(t, first)
	_, before := scheduleStream(t, first)
	var entries []schedules.Entry
	for i := range 20 {
		e := everyHour(fmt.Sprint("k", i))
		e.Paused = new(true) // without a timer's message
		entries = append(entries, e)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			p, err := penstock.Open(t.Context(), penstock.Options{URL: first.NATSURL(),
				AdmitOnly: true, Policies: policies, Schedules: entries})
			if err != nil {
				t.Error(err)
				return
			}
			p.Close()
		})
	}
	all.Wait()
	_, after := scheduleStream(t, first)
	if n := after.State.LastSeq - before.State.LastSeq; n != 21 {
		t.Errorf("%d messages for 20 schedules", n)
	}
	if got := listed(t, first); strings.Count(got, "default") != 20 {
		t.Errorf("listed %s", got)
	}
}

func TestAHalfWrittenSetIsNotRepeated(t *testing.T) {
	o := penstock.Options{AdmitOnly: true, Server: embedded.Options{Dir: t.TempDir()},
		Policies:  []policy.Policy{paced("report", 100, 100)},
		Schedules: []schedules.Entry{everyHour("a"), everyHour("b")}}
	p := open(t, o)
	stream, before := scheduleStream(t, p)
	if err := stream.Purge(t.Context(),
		jetstream.WithPurgeSubject("penstock.schedule.file.default")); err != nil {
		t.Fatal(err)
	}
	p.Close()
	p = open(t, o)
	_, after := scheduleStream(t, p)
	if n := after.State.LastSeq - before.State.LastSeq; n != 1 {
		t.Errorf("%d messages are new", n)
	}
}

func TestAnInstantOfTheFileIsOneJob(t *testing.T) {
	ran := &scheduled{jobs: map[string]string{}}
	o := penstock.Options{Server: embedded.Options{Dir: t.TempDir()},
		Policies: []policy.Policy{paced("report", 100, 100)}}
	at := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
	once := schedules.Entry{Policy: "report", Key: "k", When: "@at " + at, Body: "once"}
	tick := schedules.Entry{Policy: "report", Key: "k", Name: "tick", When: "@every 1s",
		Body: "tick"}
	o.Schedules = []schedules.Entry{once, tick}
	begin := func() *penstock.Penstock {
		p := open(t, o)
		p.Handle("report", ran.run)
		run(t, p)
		return p
	}
	p := begin()
	eventually(t, "both tick", func() bool {
		return ran.count("once") == 1 && ran.count("tick") > 1
	})
	for i := range 3 {
		once.Name = fmt.Sprint("again-", i)
		o.Schedules = append(o.Schedules, once)
		if i == 1 {
			p.Close()
			p = begin()
		} else if err := p.Reload(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		ticks := ran.count("tick")
		eventually(t, "it ticks", func() bool { return ran.count("tick") > ticks+1 })
	}
	if n := ran.count("once"); n != 1 {
		t.Errorf("%d jobs of one instant", n)
	}
}

func TestBadSchedulesInAFileAreRefused(t *testing.T) {
	policies := []policy.Policy{paced("report", 1, 1)}
	first := open(t, penstock.Options{AdmitOnly: true, Policies: policies,
		Server:    embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"},
		Schedules: []schedules.Entry{everyHour("a")}})
	run(t, first)
	never := everyHour("b")
	never.When = "0 0 30 2 *"
	for _, one := range []struct {
		entry schedules.Entry
		says  string
	}{
		{schedules.Entry{Policy: "report", When: "now"}, "options: Schedules[0].when"},
		{schedules.Entry{Policy: "repotr", When: "@daily"}, "did you mean report?"},
		{never, "options: Schedules[0].when"},
	} {
		p, err := penstock.Open(t.Context(), penstock.Options{URL: first.NATSURL(),
			AdmitOnly: true, Policies: policies, Schedules: []schedules.Entry{one.entry}})
		if err == nil {
			p.Close()
		}
		if err == nil || !strings.Contains(err.Error(), one.says) {
			t.Errorf("%+v: %v", one.entry, err)
		}
	}
	if got := listed(t, first); got != "[{a @every 1h false default}]" {
		t.Errorf("listed %s", got)
	}
}
