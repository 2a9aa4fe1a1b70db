package penstock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func TestASubmittedJobIsRunByItsHandler(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 100, 10)}})
	jobs := make(chan workers.Job, 1)
	p.Handle("mail", func(_ context.Context, job workers.Job) error {
		jobs <- job
		return nil
	})
	stop := run(t, p)
	ticket, err := p.Submit(t.Context(), penstock.Job{
		Policy: "mail", Key: "customer 1", Body: []byte("letter"), IdempotencyKey: "order-7",
		Cost: 2, Priority: 3,
		Deadline: time.Now().Add(time.Hour), Header: http.Header{"Content-Type": {"text/plain"}}})
	if err != nil || ticket.Job != "mail:1" {
		t.Fatalf("%+v, %v", ticket, err)
	}
	job := waittest.Receive(t, jobs)
	if job.ID != ticket.Job || job.Key.Raw() != "customer 1" || string(job.Body) != "letter" ||
		job.IdempotencyKey != "order-7" || job.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("the handler got %+v", job)
	}
	if err := p.Health(); err != nil {
		t.Errorf("not healthy: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestARefusalIsAnErrorWithTheTimeToComeBack(t *testing.T) {
	signup := door("signup")
	signup.Queue = &policy.Queue{Capacity: 10}
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 2), signup}})
	for name, want := range map[string]error{
		"mail": penstock.ErrQueueFull, "signup": penstock.ErrRateLimited} {
		for i := range 3 {
			ticket, err := p.Submit(t.Context(), penstock.Job{Policy: name, Key: "a"})
			refused, ok := errors.AsType[*penstock.RefusedError](err)
			if ok != (i == 2) || ok != (ticket.Job == "") ||
				ok && (!errors.Is(err, want) || refused.Policy != name ||
					refused.RetryAfter <= 0 || refused.RetryAfter != ticket.RetryAfter) {
				t.Errorf("job %d of %s: %+v, %v", i+1, name, ticket, err)
			}
		}
	}
}

func TestAnExternalServerServesLikeAnEmbeddedOne(t *testing.T) {
	elsewhere := open(t, penstock.Options{AdmitOnly: true,
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}})
	for name, url := range map[string]string{"inside": "", "elsewhere": elsewhere.NATSURL()} {
		t.Run(name, func(t *testing.T) {
			p := open(t, penstock.Options{URL: url,
				Policies: []policy.Policy{paced("mail", 100, 2), door("signup")}})
			if got := p.NATSURL(); got != url {
				t.Errorf("NATS is at %q, want %q", got, url)
			}
			jobs := make(chan workers.Job, 2)
			p.Handle("mail", func(_ context.Context, job workers.Job) error {
				jobs <- job
				return nil
			})
			for i, want := range []admission.Verdict{
				admission.Queued, admission.Queued, admission.Rejected} {
				ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"})
				if ticket.Verdict != want || (want == admission.Rejected) != (err != nil) {
					t.Errorf("job %d: %+v, %v", i+1, ticket, err)
				}
			}
			for i, want := range []bool{true, true, false} {
				checked, err := p.Check(t.Context(), penstock.Request{Policy: "signup"})
				if err != nil || checked.Allowed != want {
					t.Errorf("check %d: %+v, %v", i+1, checked, err)
				}
			}
			stop := run(t, p)
			for _, want := range []string{"mail:1", "mail:2"} {
				if job := waittest.Receive(t, jobs); job.ID != want {
					t.Errorf("%s ran, want %s", job.ID, want)
				}
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A loaded machine may prevent an answer of the valve in time.
func TestATicketHasItsPosition(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{{Name: "mail",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Capacity: 10_000, Outflow: algorithms.Rate{Count: 1, Per: time.Hour}}}}})
	began := make(chan struct{})
	p.Handle("mail", func(context.Context, workers.Job) error {
		close(began)
		return nil
	})
	run(t, p)
	submitted := 0
	submit := func() penstock.Ticket {
		ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail", Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		submitted++
		return ticket
	}
	submit()
	waittest.Receive(t, began)
	submit()
	eventually(t, "no ticket tells when its job starts", func() bool {
		ticket := submit()
		if ticket.DelayKnown && ticket.Position != submitted-2 {
			t.Errorf("job %d: %+v", submitted, ticket)
		}
		return ticket.DelayKnown
	})
}

func TestAWrongRequestIsAnError(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 2), door("signup")}})
	wrong := new(*admission.RequestError)
	for name, job := range map[string]penstock.Job{
		"a key that is no text":        {Policy: "mail", Key: "\xff"},
		"a cost beyond the capacity":   {Policy: "mail", Cost: 3},
		"a deadline that has passed":   {Policy: "mail", Deadline: time.Now().Add(-time.Second)},
		"a priority that there is not": {Policy: "mail", Priority: 10},
		"a header that there is not": {Policy: "mail",
			Header: http.Header{"Penstock-Colour": {"red"}}},
		"a time that never comes": {Policy: "mail", Deadline: time.Now().Add(time.Hour),
			NotBefore: time.Now().Add(2 * time.Hour)},
	} {
		if _, err := p.Submit(t.Context(), job); !errors.As(err, wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "nobody"}); !errors.Is(err,
		admission.ErrUnknownPolicy) {
		t.Error(err)
	}
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "signup"}); !errors.Is(err,
		admission.ErrConflict) {
		t.Error(err)
	}
	for _, r := range []penstock.Request{
		{Policy: "signup", Key: "\xff"}, {Policy: "signup", Cost: 3}, {Policy: "signup", Cost: -1},
	} {
		if _, err := p.Check(t.Context(), r); !errors.As(err, wrong) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := p.Check(t.Context(), penstock.Request{Policy: "mail"}); !errors.Is(err,
		admission.ErrConflict) {
		t.Error(err)
	}
}

func TestACheckTakesPeeksAndGivesBack(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{door("signup")}})
	ask := penstock.Request{Policy: "signup", Key: "203.0.113.7"}
	for i, want := range []bool{true, true, false} {
		peeked, err := p.Peek(t.Context(), ask)
		if err != nil || peeked.Allowed != want {
			t.Errorf("peek %d: %+v, %v", i+1, peeked, err)
		}
		checked, err := p.Check(t.Context(), ask)
		if err != nil || checked.Allowed != want || want == (checked.RetryAfter > 0) {
			t.Errorf("check %d: %+v, %v", i+1, checked, err)
		}
	}
	if err := p.Refund(t.Context(), ask); err != nil {
		t.Error(err)
	}
	if checked, err := p.Check(t.Context(), ask); err != nil || !checked.Allowed {
		t.Errorf("after a refund: %+v, %v", checked, err)
	}
}

func TestOneJobOfANameWaits(t *testing.T) {
	server, _ := brokertest.Start(t, embedded.Options{Listen: "127.0.0.1:0"})
	slow := paced("slow", 1000, 100)
	slow.ResultRetention = policy.Duration(time.Hour)
	o := penstock.Options{URL: server.URL(), Policies: []policy.Policy{slow}}
	drains := open(t, o)
	ran := make(chan string, 100)
	drains.Handle("slow", func(_ context.Context, j workers.Job) error {
		ran <- string(j.Body)
		return nil
	})
	run(t, drains)
	o.AdmitOnly = true
	other := open(t, o)
	run(t, other)
	due := time.Now().Add(time.Hour)
	submit := func(p *penstock.Penstock, body string, replace bool) penstock.Ticket {
		ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "slow", Key: "tenant",
			Unique: "reindex", Replace: replace, NotBefore: due, Body: []byte(body)})
		if err != nil {
			t.Error(err)
		}
		return ticket
	}
	var submissions sync.WaitGroup
	for i := range 20 {
		for _, p := range []*penstock.Penstock{drains, other} {
			submissions.Go(func() { submit(p, fmt.Sprint(i), false) })
		}
	}
	submissions.Wait()
	get := func(path string) string {
		w := httptest.NewRecorder()
		drains.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/v1/"+path, nil))
		return w.Body.String()
	}
	is := func(id string, words ...string) {
		t.Helper()
		waittest.Until(t, id+" is "+strings.Join(words, " and "), func() bool {
			return !slices.ContainsFunc(words, func(word string) bool {
				return !strings.Contains(get("jobs/"+id), word)
			})
		})
	}
	var first string
	waittest.Until(t, "all but one are cancelled", func() bool {
		ticket := submit(other, "late", false)
		first = ticket.Job
		return ticket.Duplicate && strings.Contains(get("buckets/slow/tenant"), `"depth":1,`)
	})
	is(first, `"state":"delayed"`)
	due = time.Time{}
	ticket := submit(other, "last", true)
	if got := waittest.Receive(t, ran); got != "last" || ticket.Job == first || ticket.Duplicate {
		t.Errorf("%q ran, ticket %+v", got, ticket)
	}
	is(first, `"state":"cancelled"`, "it was replaced by "+ticket.Job)
}

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
	stop, err := beside(t, p).Events().Listen("*", ">",
		func(_ string, e queue.Event) { events <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	run(t, p)
	tagged(t, p, "mail", "a", "campaign-7, eu", "x")
	want := []string{"campaign-7", "eu", "x"}
	if got := waittest.Receive(t, seen); !slices.Equal(got, want) {
		t.Errorf("the handler sees %q", got)
	}
	for last := ""; last != queue.EventDead; {
		e := waittest.Receive(t, events)
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
	waittest.Receive(t, running)
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
			waittest.Receive(t, running)
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
