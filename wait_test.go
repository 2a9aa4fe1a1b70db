package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// Submissions wait for a done job, a dead job, a job that does not run in time, a repeat, and a job
// whose process stops.
func TestASubmissionCanWaitForTheEndOfItsJob(t *testing.T) {
	slow := paced("slow", 1, 10)
	slow.Timeout = policy.Duration(time.Hour)
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1000, 10), slow}})
	p.Handle("mail", func(_ context.Context, j workers.Job) error {
		j.Reply(0, nil, append([]byte("got "), j.Body...))
		if string(j.Body) == "bad" {
			return workers.Permanent(errors.New("no such address"))
		}
		return nil
	})
	stop := run(t, p)
	submit := func(j penstock.Job) penstock.Ticket {
		t.Helper()
		ticket, err := p.Submit(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	long := waittest.Patience()
	done := submit(penstock.Job{Policy: "mail", Body: []byte("good"), Wait: long}).Result
	if done == nil || done.End != queue.EndDone || done.Job != "mail:1" ||
		string(done.Reply.Body) != "got good" {
		t.Errorf("a job that is done: %+v", done)
	}
	dead := submit(penstock.Job{Policy: "mail", Body: []byte("bad"), Wait: long}).Result
	if dead == nil || dead.End != queue.EndDead || dead.Reason != queue.ReasonPermanent ||
		dead.Error != "no such address" || dead.Attempts != 1 ||
		string(dead.Reply.Body) != "got bad" {
		t.Errorf("a job that is dead: %+v", dead)
	}
	late := submit(penstock.Job{Policy: "slow", Wait: long,
		Header: http.Header{job.HeaderDeadline: {"50ms"}}}).Result
	if late == nil || late.End != queue.EndDead || late.Reason != queue.ReasonDeadline {
		t.Errorf("a job that nobody ran: %+v", late)
	}
	one := penstock.Job{Policy: "slow", IdempotencyKey: "one", Wait: time.Millisecond}
	for _, why := range []string{admission.NoResultTime, admission.NoResultRepeat} {
		if got := submit(one); got.Result != nil || got.NoResult != why || got.Job != "slow:2" {
			t.Errorf("%+v, want it not to wait because of %s", got, why)
		}
	}
	waits := make(chan penstock.Ticket, 1)
	go func() {
		ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "slow", Wait: long})
		if err != nil {
			t.Error(err)
		}
		waits <- ticket
	}()
	waittest.Until(t, "the job that is waited for is stored",
		func() bool { return depth(t, p, "slow") == 2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := waittest.Receive(t, waits); got.NoResult != admission.NoResultStopping {
		t.Errorf("a submission that waits while the process stops: %+v", got)
	}
}

// Jobs run in the drainer and in another process. Their progress and results are shown to status
// requests, to waiting submitters, and in the history.
func TestProgressAndResultsAreShown(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(map[bool]string{false: "here", true: "elsewhere"}[elsewhere], func(t *testing.T) {
			mail := paced("mail", 1000, 1000)
			mail.ResultRetention = policy.Duration(time.Hour)
			p := open(t, penstock.Options{Policies: []policy.Policy{mail}})
			release := make(chan struct{})
			handle := func(ctx context.Context, j workers.Job) error {
				j.Progress(string(j.Body) + ", 20 %")
				j.Progress(string(j.Body) + ", 40 %")
				select {
				case <-release:
				case <-ctx.Done():
				}
				j.Reply(207, http.Header{"X-Kind": {"a"}}, append([]byte("sent "), j.Body...))
				return nil
			}
			if !elsewhere {
				p.Handle("mail", handle)
			} else {
				work(t, p, "mail", handle)
			}
			stop := run(t, p)
			ask := func(path string) string {
				w := httptest.NewRecorder()
				r := httptest.NewRequest("GET", path, nil)
				r.Host = "localhost"
				p.Handler().ServeHTTP(w, r)
				return w.Body.String()
			}
			ended := make(chan penstock.Ticket, 1)
			submit := func(j penstock.Job) penstock.Ticket {
				ticket, err := p.Submit(t.Context(), j)
				if err != nil {
					t.Error(err)
				}
				return ticket
			}
			go func() {
				ended <- submit(penstock.Job{Policy: "mail", Body: []byte("a"),
					Wait: waittest.Patience()})
			}()
			waittest.Until(t, "the progress is shown", func() bool {
				got := ask("/v1/jobs/mail:1")
				return strings.Contains(got, `"state":"running"`) &&
					strings.Contains(got, `"progress":"a, 40 %"`)
			})
			waittest.Until(t, "who waits in vain gets it", func() bool {
				return submit(penstock.Job{Policy: "mail", Key: "b", Body: []byte("b"),
					Wait: 300 * time.Millisecond}).Progress == "b, 40 %"
			})
			close(release)
			got := waittest.Receive(t, ended).Result
			if got == nil || got.End != queue.EndDone || got.Reply == nil ||
				got.Reply.Status != 207 || string(got.Reply.Body) != "sent a" ||
				http.Header(got.Reply.Header).Get("X-Kind") != "a" {
				t.Errorf("the result: %+v", got)
			}
			waittest.Until(t, "the history has it", func() bool {
				got := ask("/v1/jobs/mail:1")
				return strings.Contains(got, `"answer":"sent a"`) &&
					strings.Contains(got, `"status":207`) && !strings.Contains(got, "40 %")
			})
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func work(t *testing.T, p *penstock.Penstock, policy string, handle workers.Handler) {
	t.Helper()
	nc, err := p.Connect("worker")
	if err != nil {
		t.Fatal(err)
	}
	d, err := workers.New(nc, workers.Options{WorkerOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	d.Handle(policy, handle)
	ended := make(chan error, 1)
	ctx, end := context.WithCancel(t.Context())
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		nc.Close()
	})
}

// The answer must not contain credentials of the request.
func TestAWaitReturnsTheTargetsAnswer(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Seen", r.Header.Get("Authorization"))
		w.Header().Set("Set-Cookie", "session=1")
		w.WriteHeader(http.StatusCreated)
		switch string(body) {
		case "large":
			_, err = fmt.Fprintf(w, `{"x":%q,"used":7}`, strings.Repeat("x", queue.MaxReply))
		case "broken":
			_, err = io.WriteString(w, "a part")
			w.(http.Flusher).Flush()
			defer panic(http.ErrAbortHandler)
		default:
			_, err = io.WriteString(w, "made by "+r.Header.Get("Authorization"))
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer target.Close()
	pay := paced("pay", 1000, 10)
	pay.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: target.URL,
		CostFromResponse: policy.CostFromResponse{"tokens": {JSON: "used"}}}}
	pay.Limits = policy.Limits{{Name: "tokens", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.FixedWindow, Limit: 1000, Window: policy.Duration(time.Hour)}}}
	p := open(t, penstock.Options{Policies: []policy.Policy{pay},
		AllowTargets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	stop := run(t, p)
	nc, err := p.Connect("events")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	events, err := nc.SubscribeSync("penstock.event.pay.a")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	ask := func(query, body string) (int, string) {
		t.Helper()
		r := httptest.NewRequest("POST", "/v1/jobs/pay/a"+query, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Penstock-Forward-Authorization", "Bearer abcdefgh")
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	status, body := ask("?wait=1m", "pay")
	if status != 200 || !strings.Contains(body, `"end":"done"`) ||
		!strings.Contains(body, `"status":201`) ||
		!strings.Contains(body, `"body":"made by [redacted]"`) ||
		!strings.Contains(body, `"X-Seen":["[redacted]"]`) ||
		strings.Contains(body, "abcdefgh") || strings.Contains(body, "Cookie") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := ask("?wait=1m", "large"); status != 200 || len(body) > 1000 ||
		!strings.Contains(body, `"body_too_large":true`) {
		t.Errorf("a large answer: %d %.300s", status, body)
	}
	waittest.Until(t, "its cost is settled", func() bool {
		e, err := events.NextMsg(waittest.Patience())
		return err == nil && strings.Contains(string(e.Data), `"used":{"tokens":7}`)
	})
	if status, body := ask("?wait=1m", "broken"); status != 200 ||
		!strings.Contains(body, `"end":"done"`) || strings.Contains(body, "reply") {
		t.Errorf("an answer that breaks off: %d %.300s", status, body)
	}
	for _, query := range []string{"?wait=", "?wait=0s", "?wait=6m", "?wait=1s&wait=1s", "?x=1"} {
		if status, body := ask(query, ""); status != 400 {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Outcomes are published below penstock.outcome, to one token, for any header of a job.
func TestOutcomesGoToTheirOwnWaiters(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1000, 100)},
		Server: embedded.Options{Listen: "127.0.0.1:0"}})
	ran := make(chan workers.Job, 1)
	p.Handle("mail", func(_ context.Context, j workers.Job) error { ran <- j; return nil })
	stop := run(t, p)
	nc, err := p.Connect("producer")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	heard, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	const token = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, waiter := range []string{"x", "valve.mail.0", "*", ">", "../jobs", token + ".x",
		token + "A", "$JS.API.STREAM.DELETE.x", "abcdefghijklmnopqrstuvwxyz", token} {
		m := nats.NewMsg("penstock.jobs.mail.a")
		m.Header.Set(job.HeaderWaiter, waiter)
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		waittest.Receive(t, ran)
	}
	var told []string
	waittest.Until(t, "the last outcome is told", func() bool {
		m, err := heard.NextMsg(time.Second)
		if err == nil && m.Header.Get("Penstock-Outcome") != "" {
			told = append(told, m.Subject)
		}
		return len(told) > 0 && told[len(told)-1] == "penstock.outcome."+token
	})
	if len(told) != 1 {
		t.Errorf("outcomes were told on %q", told)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestKeepDone(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) == "bad" {
			w.WriteHeader(http.StatusNotFound)
		} else {
			w.WriteHeader(http.StatusCreated)
		}
		answer := "by " + r.Header.Get("Authorization") + strings.Repeat("ü", 1000)
		if _, err := io.WriteString(w, answer); err != nil {
			t.Error(err)
		}
	}))
	defer target.Close()
	pay := paced("pay", 1000, 10)
	pay.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: target.URL}}
	pay.ResultRetention = policy.Duration(time.Hour)
	p := open(t, penstock.Options{Policies: []policy.Policy{pay, paced("other", 1000, 10)},
		AllowTargets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	stop := run(t, p)
	ask := func(method, path, body string, header ...string) string {
		t.Helper()
		r := httptest.NewRequest(method, "/v1"+path, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Penstock-Forward-Authorization", "Bearer abcdefgh")
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
		}
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		return w.Body.String()
	}
	until := func(path string, words ...string) {
		t.Helper()
		waittest.Until(t, path+" says "+strings.Join(words, " and "), func() bool {
			answer := ask("GET", path, "")
			for _, word := range words {
				if !strings.Contains(answer, word) {
					return false
				}
			}
			return !strings.Contains(answer, "abcdefgh")
		})
	}
	ask("POST", "/jobs/pay/a", "good")
	until("/jobs/pay:1", `"state":"done"`, `"key":"a"`, `"status":201`, `"duration_ms":`,
		`"attempts":0`, `"answer":"by [redacted]ü`, `ü"`)
	ask("POST", "/jobs/pay/b", "bad")
	until("/jobs/pay:2", `"state":"dead"`, `"letter":1`, `"reason":"permanent"`, `"ended_at":`)
	ask("POST", "/jobs/pay/a", "", "Penstock-Not-Before", "1h")
	until("/jobs/pay:3", `"state":"delayed"`)
	ask("DELETE", "/jobs/pay:3", "")
	until("/jobs/pay:3", `"state":"cancelled"`, `"accepted_at":"2`)
	until("/history/pay/a", `{"jobs":[{"job":"pay:3",`, `,{"job":"pay:1",`, `"key":"a"`)
	until("/history/pay", `{"jobs":[{"job":"pay:3",`, `,{"job":"pay:2",`, `,{"job":"pay:1",`)
	until("/history/pay?limit=1", `{"jobs":[{"job":"pay:3",`, `"next":3}`)
	until("/history/pay?before=2", `{"jobs":[{"job":"pay:1",`, `}]}`)
	until("/history/other", `{"jobs":[]}`)
	if err := stop(); err != nil {
		t.Error(err)
	}
}
