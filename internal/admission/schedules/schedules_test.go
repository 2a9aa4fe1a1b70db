package schedules_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func tickSink(take func(outcome string)) queue.Sink {
	return queue.SinkFunc(func(e queue.Event) {
		if e.Type == jet.EventTicked {
			take(e.Name)
		}
	})
}

type scheduled struct {
	mu   sync.Mutex
	jobs map[string]string
}

func (s *scheduled) run(_ context.Context, j workers.Job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[j.ID] = string(j.Body)
	return nil
}

func (s *scheduled) count(body string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.jobs {
		if b == body {
			n++
		}
	}
	return n
}

func TestEachTickBecomesOneJob(t *testing.T) {
	dir := t.TempDir()
	ran := &scheduled{jobs: map[string]string{}}
	var mu sync.Mutex
	submitted := map[string]int{}
	sink := tickSink(func(outcome string) {
		mu.Lock()
		defer mu.Unlock()
		submitted[outcome]++
	})
	begin := func() (first, second *penstock.Penstock) {
		first = open(t, penstock.Options{Sink: sink,
			Server:   embedded.Options{Dir: dir, Listen: "127.0.0.1:0"},
			Policies: []policy.Policy{paced("report", 100, 1000)}})
		first.Handle("report", ran.run)
		run(t, first)
		second = open(t, penstock.Options{URL: first.NATSURL(), AdmitOnly: true,
			Sink: sink})
		run(t, second)
		return first, second
	}
	first, second := begin()
	status, body := ask(t, first, "POST", "/v1/schedules/report/acme", "tick",
		"Penstock-Schedule", "@every 1s", "Penstock-Priority", "3")
	if status != http.StatusCreated || !strings.Contains(body, `"name":"default"`) {
		t.Fatalf("%d %s", status, body)
	}
	at := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
	if status, body := ask(t, second, "POST", "/v1/schedules/report/acme", "once",
		"Penstock-Schedule", "@at "+at, "Penstock-Schedule-Name", "later"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	eventually(t, "ticks became jobs", func() bool {
		return ran.count("tick") >= 3 && ran.count("once") == 1
	})
	second.Close()
	first.Close()
	before := ran.count("tick")
	first, second = begin()
	eventually(t, "the schedule goes on", func() bool { return ran.count("tick") >= before+3 })

	if status, body := ask(t, second, "PATCH", "/v1/schedules/report/acme?paused=1", ""); status !=
		200 || !strings.Contains(body, `"paused":true`) {
		t.Fatalf("%d %s", status, body)
	}
	var listed struct {
		Schedules []struct {
			Key, Name, When string
			Paused          bool
		}
	}
	list := func() string {
		t.Helper()
		status, body := ask(t, first, "GET", "/v1/schedules/report", "")
		if err := json.Unmarshal([]byte(body), &listed); err != nil || status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		return fmt.Sprintf("%v", listed.Schedules)
	}
	if got := list(); got != "[{acme default @every 1s true}]" {
		t.Errorf("listed %s", got)
	}
	for _, paused := range []string{"1", "0"} {
		if status, body := ask(t, first, "PATCH", "/v1/schedules/report/acme?paused="+paused,
			""); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	resumed := ran.count("tick")
	eventually(t, "it goes on", func() bool { return ran.count("tick") > resumed })
	if status, _ := ask(t, first, "DELETE", "/v1/schedules/report/acme", ""); status != 204 {
		t.Errorf("deleted: %d", status)
	}
	if status, _ := ask(t, first, "DELETE", "/v1/schedules/report/acme", ""); status != 404 {
		t.Errorf("deleted again: %d", status)
	}
	if got := list(); got != "[]" {
		t.Errorf("listed %s", got)
	}
	eventually(t, "each tick is one job", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return submitted["submitted"] == ran.count("tick")+ran.count("once")
	})
	mu.Lock()
	defer mu.Unlock()
	if len(submitted) != 1 {
		t.Errorf("outcomes %v", submitted)
	}
}

func TestATickThatComesTwiceIsOneJob(t *testing.T) {
	ran := &scheduled{jobs: map[string]string{}}
	outcomes := make(chan string, 1000)
	p := open(t, penstock.Options{
		Sink:     tickSink(func(outcome string) { outcomes <- outcome }),
		Policies: []policy.Policy{paced("report", 100, 100)}})
	p.Handle("report", ran.run)
	run(t, p)
	nc, err := p.Connect("the server")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	yesterday := time.Now().UTC().Add(-24 * time.Hour).Format(time.RFC3339)
	for i, body := range []string{"twice", "twice", "other"} {
		if i != 1 {
			status, answer := ask(t, p, "POST", "/v1/schedules/report/k", body, "Penstock-Schedule",
				"@daily", "Penstock-Schedule-Name", body)
			if status != http.StatusCreated {
				t.Fatalf("%d %s", status, answer)
			}
		}
		m := nats.NewMsg("penstock.schedule.due.report." + body + ".k")
		m.Header.Set("Penstock-Schedule-After", yesterday)
		if _, err = js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if got := waittest.Receive(t, outcomes); got != "submitted" {
			t.Errorf("%s: %s", body, got)
		}
	}
	eventually(t, "the last one has run", func() bool { return ran.count("other") == 1 })
	if n := ran.count("twice"); n != 1 {
		t.Errorf("%d jobs of one tick", n)
	}
}

func TestATickAtAFullBucketIsReported(t *testing.T) {
	outcomes := make(chan string, 1000)
	p := open(t, penstock.Options{AdmitOnly: true,
		Sink:     tickSink(func(outcome string) { outcomes <- outcome }),
		Policies: []policy.Policy{paced("report", 1, 1)}})
	run(t, p)
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "report", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	if status, body := ask(t, p, "POST", "/v1/schedules/report/k", "x", "Penstock-Schedule",
		"@every 2s"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	for _, want := range []string{"refused", "missed"} {
		for waittest.Receive(t, outcomes) != want {
		}
	}
	if s := allSchedules(t, p, "").Schedules[0]; s.Last == nil || s.Last.Outcome != "missed" ||
		!strings.Contains(s.Last.Reason, "the bucket is full") || s.Last.Job != "" {
		t.Errorf("the last run: %+v", s.Last)
	}
}

func TestBadSchedulesAreRefused(t *testing.T) {
	p := open(t, penstock.Options{AdmitOnly: true,
		Policies: []policy.Policy{paced("report", 1, 1), door("api")}})
	run(t, p)
	for _, one := range []struct {
		path   string
		header []string
		status int
		says   string
	}{
		{"report/k", nil, 400, "cron pattern"},
		{"report/k", []string{"Penstock-Schedule", "now and then"}, 400, "cron pattern"},
		{"report/k", []string{"Penstock-Schedule", "@every 1ms"}, 400, "cron pattern"},
		{"report/k", []string{"Penstock-Schedule", "0 6 * * *", "Penstock-Schedule-Zone",
			"Europe/Atlantis"}, 400, "Atlantis"},
		{"report/k", []string{"Penstock-Schedule", "@daily", "Penstock-Schedule-Name", "A B"}, 400,
			"a-z"},
		{"report/k", []string{"Penstock-Schedule", "@daily", "Idempotency-Key", "a"}, 400,
			"each tick"},
		{"report/k", []string{"Penstock-Schedule", "@daily", "Penstock-Wait", "5s"}, 400,
			"nobody waits"},
		{"report/k", []string{"Penstock-Schedule", "@daily", "Penstock-Cost", "2"}, 400, "Cost"},
		{"nothing/k", []string{"Penstock-Schedule", "@daily"}, 404, "nothing"},
		{"api/k", []string{"Penstock-Schedule", "@daily"}, 409, "queue"},
		{"report/k", []string{"Penstock-Schedule", "30 6 * * 1-5", "Penstock-Schedule-Zone",
			"Europe/Berlin"}, 201, `"when":"0 30 6 * * 1-5"`},
		{"report/k", []string{"Penstock-Schedule", "@every 1d"}, 201, `"when":"@every 1d"`},
		{"report/k", []string{"Penstock-Schedule", "@every 90s"}, 201, `"when":"@every 90s"`},
	} {
		status, body := ask(t, p, "POST", "/v1/schedules/"+one.path, "x", one.header...)
		if status != one.status || !strings.Contains(body, one.says) {
			t.Errorf("%s %q: %d %s", one.path, one.header, status, body)
		}
	}
	for _, path := range []string{"report/k?paused=1&name=none", "report/k?paused=maybe"} {
		if status, _ := ask(t, p, "PATCH", "/v1/schedules/"+path, ""); status != 404 &&
			status != 400 {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// A client with the right to submit replaces only its own schedules, and storing a paused schedule
// again does not resume it.
func TestAScheduleIsItsClients(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	text := "clients:\n"
	for name, rights := range map[string][]string{"one": {"submit"}, "two": {"submit"},
		"operator": {"submit", "operate", "read"}} {
		text += access.Line(name, rights, []string{"*"}, nil, name) + "\n"
	}
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1000, 10)},
		AdmitOnly: true, HTTP: penstock.HTTP{Tokens: tokens}})
	put := func(client, when string) int {
		t.Helper()
		status, _ := ask(t, p, "POST", "/v1/schedules/mail/acme", "report",
			"Authorization", "Bearer "+client, "Penstock-Schedule", when)
		return status
	}
	for _, c := range []struct {
		client string
		want   int
	}{{"one", 201}, {"one", 201}, {"two", 403}, {"operator", 201}, {"one", 403}} {
		if got := put(c.client, "@daily"); got != c.want {
			t.Errorf("%s: %d, want %d", c.client, got, c.want)
		}
	}
	const operator = "Bearer operator"
	if status, body := ask(t, p, "PATCH", "/v1/schedules/mail/acme?paused=1", "", "Authorization",
		operator); status != 200 {
		t.Fatal(status, body)
	}
	put("operator", "@hourly")
	_, body := ask(t, p, "GET", "/v1/schedules/mail/acme", "", "Authorization", operator)
	if !strings.Contains(body, `"paused":true`) || !strings.Contains(body, "hourly") {
		t.Errorf("stored again it is %s", body)
	}
}

func TestNoNameReachesTheSchedulesOfOthers(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	all := []string{"submit", "read", "operate"}
	text := "clients:\n" + access.Line("operator", all, []string{"*"}, nil, "operator") + "\n" +
		access.Line("dev", all, []string{"*-dev"}, nil, "dev") + "\n" +
		access.Line("acme", all, []string{"mail"}, []string{"acme"}, "acme") + "\n"
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1000, 10)},
		AdmitOnly: true, HTTP: penstock.HTTP{Tokens: tokens}})
	for _, one := range [][2]string{{"acme", "default"}, {"x.acme", "default"}, {"k", "n-dev"}} {
		if status, body := ask(t, p, "POST", "/v1/schedules/mail/"+one[0], "x", "Authorization",
			"Bearer operator", "Penstock-Schedule", "@daily", "Penstock-Schedule-Name",
			one[1]); status != 201 {
			t.Fatal(status, body)
		}
	}
	for _, c := range [][3]string{{"dev", "GET", "mail.n-dev"}, {"dev", "GET", "*.n-dev"},
		{"operator", "GET", "*"}, {"acme", "GET", "mail/acme?name=default.x"},
		{"acme", "DELETE", "mail/acme?name=*"}, {"acme", "DELETE", "mail/acme?name=default.x"},
		{"acme", "PATCH", "mail/acme?paused=1&name=default.x"}} {
		status, body := ask(t, p, c[1], "/v1/schedules/"+c[2], "", "Authorization", "Bearer "+c[0])
		if status != 404 {
			t.Errorf("%q: %d %s", c, status, body)
		}
	}
}
