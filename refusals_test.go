package penstock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

// hourly starts one job per hour and key: slow machines do not matter.
func hourly(capacity int64) policy.Policy {
	p := paced("mail", 1, capacity)
	p.Outflow = algorithms.Rate{Count: 1, Per: time.Hour}
	return p
}

type refused struct {
	Status        int
	Verdict       admission.Verdict
	Job           string
	Type, Reason  string
	RetryAfterMS  int64     `json:"retry_after_ms"`
	ExpectedStart time.Time `json:"expected_start"`
}

func read(t *testing.T, status int, body []byte) (r refused) {
	t.Helper()
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	if r.Status == 0 {
		r.Status = status
	}
	return r
}

func post(t *testing.T, url, body string, header ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, answer
}

func doors(t *testing.T, p *penstock.Penstock) map[string]func(deadline time.Time) refused {
	t.Helper()
	api := httptest.NewServer(p.Handler())
	t.Cleanup(api.Close)
	nc, err := p.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	form := func(deadline time.Time) string { return deadline.Format(time.RFC3339Nano) }
	return map[string]func(time.Time) refused{
		"Submit": func(deadline time.Time) refused {
			ticket, err := p.Submit(t.Context(),
				penstock.Job{Policy: "mail", Key: "a", Deadline: deadline})
			r := refused{Status: 202, Verdict: ticket.Verdict, Job: ticket.Job,
				ExpectedStart: ticket.Unreachable, RetryAfterMS: ticket.RetryAfter.Milliseconds()}
			if errors.Is(err, penstock.ErrDeadlineUnreachable) {
				r.Status, r.Reason = 429, "deadline-unreachable"
			} else if err != nil {
				t.Fatal(err)
			}
			return r
		},
		"HTTP": func(deadline time.Time) refused {
			response, body := post(t, api.URL+"/v1/jobs/mail/a", "letter",
				job.HeaderDeadline, form(deadline))
			return read(t, response.StatusCode, body)
		},
		"a line of a batch": func(deadline time.Time) refused {
			response, body := post(t, api.URL+"/v1/jobs:batch", fmt.Sprintf(
				`{"policy":"mail","key":"a","text":"letter","headers":{"Penstock-Deadline":%q}}`,
				form(deadline)))
			return read(t, response.StatusCode, body)
		},
		"NATS": func(deadline time.Time) refused {
			m := nats.NewMsg("penstock.submit.mail.a")
			m.Header.Set(job.HeaderDeadline, form(deadline))
			answer, err := nc.RequestMsg(m, waittest.Patience())
			if err != nil {
				t.Fatal(err)
			}
			status, err := strconv.Atoi(answer.Header.Get(job.HeaderStatus))
			if err != nil {
				t.Fatal(err)
			}
			return read(t, status, answer.Data)
		},
	}
}

// The refusal has the expected start, and the job is not stored. On a loaded machine the valve's
// answer may be late; then the job is accepted.
func TestADeadlineThatCannotBeMetIsRefusedAtEachDoor(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{hourly(10_000)}, ServeNATS: true})
	began := make(chan struct{})
	p.Handle("mail", func(context.Context, workers.Job) error {
		close(began)
		return nil
	})
	run(t, p)
	stored := 0
	accepted := func(id string) {
		t.Helper()
		if stored++; id != fmt.Sprintf("mail:%d", stored) {
			t.Errorf("job %d is %q", stored, id)
		}
	}
	submit := func() {
		t.Helper()
		ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail", Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		accepted(ticket.Job)
	}
	submit()
	waittest.Receive(t, began)
	deadline := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	for door, ask := range doors(t, p) {
		var r refused
		eventually(t, "it is refused by "+door, func() bool {
			if r = ask(deadline); r.Verdict != admission.Rejected {
				accepted(r.Job)
			}
			return r.Verdict == admission.Rejected
		})
		late := r.ExpectedStart.Sub(deadline)
		if r.Status != 429 || r.Reason != "deadline-unreachable" || r.Job != "" || late <= 0 ||
			r.RetryAfterMS < late.Milliseconds() || r.RetryAfterMS > late.Milliseconds()+1 ||
			door != "Submit" && r.Type != "urn:penstock:problem:deadline-unreachable" {
			t.Errorf("%s: %+v for a deadline at %v", door, r, deadline)
		}
		submit()
	}
}

func TestADeadlineIsAcceptedWhileTheStartIsUnknown(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{hourly(10)}, AdmitOnly: true,
		ServeNATS: true})
	run(t, p)
	stored := uint64(0)
	for door, ask := range doors(t, p) {
		stored++
		r := ask(time.Now().Add(10 * time.Minute))
		if want := fmt.Sprintf("mail:%d", stored); r.Status != 202 ||
			r.Verdict != admission.Queued || r.Job != want {
			t.Errorf("%s: %+v, want %s", door, r, want)
		}
	}
	if n := depth(t, p, "mail"); n != stored {
		t.Errorf("%d jobs are stored, want %d", n, stored)
	}
}

func TestACrowdAtAFullBucketGetsOnePlaceEach(t *testing.T) {
	const capacity = 6
	for name, admitOnly := range map[string]bool{"a drainer": false, "nobody": true} {
		t.Run(name, func(t *testing.T) {
			p := open(t, penstock.Options{Policies: []policy.Policy{hourly(capacity)},
				AdmitOnly: admitOnly})
			began := make(chan struct{})
			if !admitOnly {
				p.Handle("mail", func(context.Context, workers.Job) error {
					close(began)
					return nil
				})
			}
			run(t, p)
			if !admitOnly {
				if _, err := p.Submit(t.Context(),
					penstock.Job{Policy: "mail", Key: "a"}); err != nil {
					t.Fatal(err)
				}
				waittest.Receive(t, began)
				eventually(t, "the first job is done",
					func() bool { return depth(t, p, "mail") == 0 })
			}
			api := httptest.NewServer(p.Handler())
			defer api.Close()
			var hours []int64
			eventually(t, "the bucket is full", func() bool {
				response, body := post(t, api.URL+"/v1/jobs/mail/a", "letter")
				if response.StatusCode == http.StatusAccepted {
					return false
				}
				r := read(t, response.StatusCode, body)
				seconds, err := strconv.ParseInt(response.Header.Get("Retry-After"), 10, 64)
				if err != nil || r.Status != 429 || seconds != (r.RetryAfterMS+999)/1000 {
					t.Errorf("%d %v %s", response.StatusCode, response.Header, body)
				}
				hours = append(hours, (r.RetryAfterMS+time.Hour.Milliseconds()-1)/
					time.Hour.Milliseconds())
				return len(hours) == capacity
			})
			if got := fmt.Sprint(hours); got != "[1 2 3 4 5 6]" {
				t.Errorf("they are told to come back in the hours %s", got)
			}
		})
	}
}

func TestBucketsAreListedByRefusals(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{hourly(1)}, AdmitOnly: true})
	run(t, p)
	api := httptest.NewServer(p.Handler())
	defer api.Close()
	type list struct {
		Buckets []struct {
			Policy, Key    string
			Depth, Refused int
		}
		Total  int
		Window *int64 `json:"window_ms"`
	}
	ask := func() (l list) {
		t.Helper()
		response, err := http.Get(api.URL + "/v1/buckets?by=refused&limit=2")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(&l); err != nil {
			t.Fatal(response.Status, err)
		}
		return l
	}
	if l := ask(); l.Window == nil || l.Total != 0 {
		t.Errorf("before anything is refused: %+v", l)
	}
	for key, times := range map[string]int{"taken": 1, "once": 2, "three/times": 4, "twice": 3} {
		for n := range times {
			response, body := post(t, api.URL+"/v1/jobs/mail/"+key, "letter")
			if want := map[bool]int{true: 202, false: 429}[n == 0]; response.StatusCode != want {
				t.Fatalf("%s: %d %s", key, response.StatusCode, body)
			}
		}
	}
	l := ask()
	if got := fmt.Sprint(l.Buckets); got != "[{mail three/times 1 3} {mail twice 1 2}]" ||
		l.Total != 3 {
		t.Errorf("%s of %d", got, l.Total)
	}
}
