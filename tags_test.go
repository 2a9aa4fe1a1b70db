package penstock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers"
)

func askAPI(t *testing.T, p *penstock.Penstock, method, path string, into any) {
	t.Helper()
	status, answer := ask(t, p, method, path, "")
	if err := json.Unmarshal([]byte(answer), into); err != nil || status != http.StatusOK {
		t.Fatalf("%s %s: %d %s, %v", method, path, status, answer, err)
	}
}

func tagged(t *testing.T, p *penstock.Penstock, name, key string, tags ...string) {
	t.Helper()
	ticket, err := p.Submit(t.Context(), penstock.Job{Policy: name, Key: key,
		Header: http.Header{job.HeaderTag: tags}})
	if err != nil || ticket.Job == "" {
		t.Fatalf("submitted: %+v, %v", ticket, err)
	}
}

func TestTagsGoWithTheirJob(t *testing.T) {
	slow := paced("slow", 1, 10)
	slow.Outflow.Per = 24 * time.Hour
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1000, 10), slow}})
	seen := make(chan []string, 1)
	p.Handle("mail", func(_ context.Context, j workers.Job) error {
		seen <- j.Tags()
		return workers.Permanent(errors.New("no such address"))
	})
	events := make(chan queue.Event, 20)
	stop, err := beside(t, p).Listen("*", ">", func(_ string, e queue.Event) { events <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	run(t, p)
	tagged(t, p, "mail", "a", "campaign-7, eu", "x")
	want := []string{"campaign-7", "eu", "x"}
	if got := receive(t, seen); !slices.Equal(got, want) {
		t.Errorf("the handler sees %q", got)
	}
	for last := ""; last != queue.EventDead; {
		e := receive(t, events)
		if last = e.Type; !slices.Equal(e.Tags, want) {
			t.Errorf("an event has the tags %q: %+v", e.Tags, e)
		}
	}
	type withTags struct{ Tags []string }
	var letters struct{ Letters []withTags }
	askAPI(t, p, "GET", "/v1/dead/mail", &letters)
	var ended withTags
	askAPI(t, p, "GET", "/v1/jobs/mail:1", &ended)
	for _, got := range append(letters.Letters, ended) {
		if !slices.Equal(got.Tags, want) {
			t.Errorf("what became of it has the tags %q", got.Tags)
		}
	}

	for i := range 6 {
		tagged(t, p, "slow", "a", fmt.Sprintf("n-%d", i%2))
	}
	var page struct{ Jobs []struct{ Job string } }
	askAPI(t, p, "GET", "/v1/jobs/slow/a?tag=n-1", &page)
	if got := fmt.Sprint(page.Jobs); got != "[{slow:2} {slow:4} {slow:6}]" {
		t.Errorf("the jobs of a tag are %s", got)
	}
}

// Jobs are cancelled in one bucket or the whole policy, waiting in memory or deep, but not while
// they run. The bodies exceed the valve's memory, so most jobs are deep.
func TestJobsAreCancelledByTheirTag(t *testing.T) {
	slow := paced("slow", 1, 10_000)
	slow.Outflow.Per = 24 * time.Hour
	p := open(t, penstock.Options{Policies: []policy.Policy{slow}, Memory: workers.LeastMemory})
	release := make(chan struct{})
	defer close(release)
	running := make(chan struct{}, 1)
	p.Handle("slow", func(context.Context, workers.Job) error {
		running <- struct{}{}
		<-release
		return nil
	})
	run(t, p)
	tagged(t, p, "slow", "runs", "odd")
	receive(t, running)
	const jobs = 1200 // more than a page of them
	body := []byte(strings.Repeat("x", 4096))
	for i := range jobs {
		header := http.Header{}
		if i%2 == 1 {
			header[job.HeaderTag] = []string{"odd", "of-" + fmt.Sprint(i%3)}
		}
		if _, err := p.Submit(t.Context(), penstock.Job{Policy: "slow", Key: fmt.Sprint(i % 5),
			Header: header, Body: body}); err != nil {
			t.Fatal(err)
		}
		if i < 5 {
			receive(t, running)
		}
	}
	cancel := func(query string) (answer struct {
		Cancelled, Left int
		Next            *uint64
	}) {
		t.Helper()
		askAPI(t, p, "POST", "/v1/cancel/slow"+query, &answer)
		return answer
	}
	left := func(want uint64) {
		t.Helper()
		waittest.Until(t, fmt.Sprintf("%d jobs are left", want),
			func() bool { return depth(t, p, "slow") == want })
	}
	left(1 + jobs)
	if got := cancel("/1?tag=odd"); got.Cancelled != jobs/10-1 || got.Left != 1 || got.Next != nil {
		t.Errorf("one bucket: %+v", got)
	}
	left(1 + jobs - (jobs/10 - 1))
	if got := cancel("?tag=none"); got.Cancelled != 0 || got.Left != 0 || got.Next != nil {
		t.Errorf("a tag that no job has: %+v", got)
	}
	if got := cancel("?tag=odd"); got.Cancelled != jobs/2-jobs/10-1 || got.Left != 3 ||
		got.Next != nil {
		t.Errorf("the policy: %+v", got)
	}
	left(1 + jobs/2 + 2)
}
