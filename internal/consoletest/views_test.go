package consoletest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/workers"
)

func refusing(t *testing.T) *world {
	return settle(t, penstock.Options{Policies: policies(t,
		`bad {"algorithm":"leaking_bucket","outflow":"100/s","capacity":500}`,
		`still {"algorithm":"leaking_bucket","outflow":"1/h","capacity":5000}`)},
		map[string]workers.Handler{"still": done,
			"bad": func(_ context.Context, job workers.Job) error {
				return workers.Permanent(errors.New("no such customer: " + string(job.Body)))
			}})
}

func (w *world) letters(policy string, n int) {
	w.Helper()
	waittest.Until(w.T, "the dead letters are there", func() bool {
		var page struct{ Letters []struct{ ID int } }
		return w.ask("GET", "/v1/dead/"+policy, "", &page) == 200 && len(page.Letters) == n
	})
}

func TestJobsAreListedShownAndCancelled(t *testing.T) {
	w := refusing(t)
	w.submit("still", "solo", 1, "x")
	w.submit("still", "acme", 130, `{"amount": 1, "note": "<img src=x onerror=alert(1)>"}`)
	for i, l := range []look{desk, phone} {
		id := fmt.Sprintf("still:%d", 5+i)
		b := visit(t, w.base, l)
		b.open("bucket/still/solo")
		b.sees("It holds no jobs; a job accepted now would start in 5")
		b.open("jobs/still/acme")
		b.sees("still:3", "waiting", "50 jobs here")
		b.legible()
		b.shoot("jobs-" + l.String())
		b.press("Next")
		b.sees("still:60")
		b.press("‹ Back")
		b.sees("still:3")
		b.press(id)
		b.sees("waits for its turn", `"note": "<img src=x onerror=alert(1)>"`, "ahead of it at")
		b.holds(`!document.querySelector("pre img")`)
		b.legible()
		b.shoot("job-" + l.String())
		b.press("Move to front")
		b.sees(id+" is changed.", "by an operator")
		b.press("Change…")
		b.sees("Change "+id, "Empty fields stay as they are")
		b.types("7")
		b.press("Change it")
		b.sees(id+" is changed.", "Priority")
		b.press("Cancel…")
		b.sees("Cancel "+id, "will be dropped permanently")
		b.press("Cancel the job")
		b.sees("is cancelled.", "Last events")
		if got := w.ask("GET", "/v1/jobs/"+id, "", nil); got != http.StatusNotFound {
			t.Errorf("the cancelled job: %d", got)
		}
	}
}

func TestJobsAreListedByTheirState(t *testing.T) {
	w := refusing(t)
	w.submit("still", "acme", 20, "x")
	if got := w.ask("POST", "/v1/jobs:batch", `{"policy":"still","key":"acme","text":"later",`+
		`"headers":{"Penstock-Not-Before":"1h"}}`, nil); got != http.StatusOK {
		t.Fatal(got)
	}
	b := visit(t, w.base, desk)
	b.open("jobs/still/acme")
	b.sees("still:2", "still:21")
	b.holds(`(s => { s.value = "delayed"; return s.dispatchEvent(new Event("change")) })(
		document.querySelector("select"))`)
	b.sees("still:21", "1 job here", "not before")
	b.holds(`!document.body.innerText.includes("still:2\t")`)
}

func TestLimitsShowWhatIsUnanswered(t *testing.T) {
	answers := make(chan struct{})
	w := settle(t, penstock.Options{Policies: policies(t,
		`strict {"algorithm":"leaking_bucket","capacity":500,"limits":[{"name":"calls",`+
			`"algorithm":"sliding_log","limit":3,"window":"1h","count_from":"answer"}]}`)},
		map[string]workers.Handler{"strict": func(_ context.Context, j workers.Job) error {
			if string(j.Body) == "slow" {
				<-answers
			}
			return nil
		}})
	t.Cleanup(func() { close(answers) })
	w.submit("strict", "acme", 1, "quick")
	w.submit("strict", "acme", 9, "slow")
	for _, l := range []look{desk, phone} {
		b := visit(t, w.base, l)
		b.open("bucket/strict/acme")
		b.sees("the limit calls is exhausted: 2 unanswered, 1 answered within 1h",
			"sliding log: 3 in 1h", "answer")
		b.legible()
		b.shoot("limits-" + l.String())
		b.open("policy/strict")
		b.sees("Limits, in the bucket acme", "sliding log: 3 in 1h", "answer")
		b.holds(`/calls\s+sliding log: 3 in 1h\s+answer\s+2\s+1\s+0/.test(
			document.querySelector("[aria-label^=Limits]").innerText.replaceAll(/Keeps to|Counts from|` +
			`Unanswered|Counted|Left/g, ""))`)
		b.legible()
	}
}

func TestTheHistoryShowsHowJobsEnded(t *testing.T) {
	w := settle(t, penstock.Options{Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"100/s","capacity":500,"result_retention":"1h"}`)},
		map[string]workers.Handler{"mail": func(_ context.Context, j workers.Job) error {
			j.Reply(201, nil, append([]byte("sent to "), j.Body...))
			if string(j.Body) == "nobody" {
				return workers.Permanent(errors.New("no such address"))
			}
			return nil
		}})
	w.submit("mail", "globex", 1, "nobody")
	ended := func(n int) {
		waittest.Until(t, "jobs have ended", func() bool {
			var page struct{ Jobs []struct{ Job string } }
			return w.ask("GET", "/v1/history/mail", "", &page) == 200 && len(page.Jobs) == n
		})
	}
	ended(1)
	w.submit("mail", "acme", 60, "ann")
	ended(61)
	for _, l := range []look{desk, phone} {
		b := visit(t, w.base, l)
		b.open("policy/mail")
		b.press("History")
		b.sees("mail:61", "201 sent to ann", "50 jobs here", "last 1h")
		b.legible()
		b.shoot("history-" + l.String())
		b.press("Next")
		b.sees("globex", "no such address", "dead", "11 jobs here")
		b.open("bucket/mail/acme")
		b.press("Jobs that have ended")
		b.sees("History of mail / acme", "mail:61", "201 sent to ann")
		b.holds(`!document.body.innerText.includes("no such address")`)
		b.press("mail:61")
		b.sees("It is done.", "Reply", "sent to ann", "Took")
		b.legible()
	}
}

func TestAJobShowsItsProgressAndItsResult(t *testing.T) {
	w := settle(t, penstock.Options{Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"100/s","capacity":500,"result_retention":"1h"}`)},
		nil)
	nc, err := w.Connect("worker")
	if err != nil {
		t.Fatal(err)
	}
	d, err := workers.New(nc, workers.Options{WorkerOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	further := make(chan string)
	d.Handle("mail", func(ctx context.Context, j workers.Job) error {
		for {
			select {
			case text := <-further:
				if text == "" {
					j.Reply(0, nil, append([]byte("sent to "), j.Body...))
					return nil
				}
				j.Progress(text)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	w.submit("mail", "acme", 1, "ann")
	further <- "20 %"
	b := visit(t, w.base, desk)
	b.open("job/mail:1")
	b.sees("It runs now: 20 %.", "Progress", "20 %")
	further <- "half of it"
	b.sees("half of it")
	b.legible()
	b.shoot("progress")
	further <- ""
	b.sees("It is done.", "Reply", "sent to ann", "progress")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTheAuditListShowsWhoChangedWhat(t *testing.T) {
	w := refusing(t)
	for range 60 {
		w.ask("POST", "/v1/pause/bad/acme", "", nil)
	}
	if got := w.ask("PATCH", "/v1/policies/still", `{"outflow":"2/h"}`, nil); got != 200 {
		t.Fatal(got)
	}
	for _, l := range []look{desk, phone} {
		b := visit(t, w.base, l)
		b.open("audit")
		b.sees("policy overridden", "outflow 1/h → 2/h", "127.0.0.1",
			"50 changes here")
		b.legible()
		b.press("Next")
		b.sees("policy written by the file", "file of set default", "outflow 100/s")
		b.open("policy/still")
		b.press("Change history")
		b.sees("Changes of still", "outflow 1/h → 2/h", "2 changes here")
	}
}

func TestDeadLettersAreSearchedReplayedAndDropped(t *testing.T) {
	w := refusing(t)
	w.submit("bad", "ann", 3, "7")
	w.letters("bad", 3) // before bob's, which could be the first otherwise
	w.submit("bad", "bob", 1, "8")
	w.letters("bad", 4)
	for _, l := range []look{desk, phone} {
		t.Run(l.String(), func(t *testing.T) {
			b := visit(t, w.base, l)
			b.open("dead")
			b.sees("Jobs that will not be tried again", "Oldest", "4")
			b.holds(`document.querySelectorAll("tbody tr").length === 1`)
			b.legible()
			b.shoot("dead-policies-" + l.String())
			b.press("bad")
			b.sees("no such customer: 7", "permanent", "4 letters here")
			b.legible()
			b.shoot("dead-" + l.String())
			b.types("/")
			b.selectAll()
			b.types("customer: 8\r")
			b.sees("1 letter with “customer: 8”")
			b.holds(`!document.body.innerText.includes("customer: 7")`)
			b.holds(`document.getElementById("drop-all").disabled`)
			b.open("dead/bad/1")
			b.sees("It was tried 1 time", "no such customer: 7", "Contents")
			b.legible()
			b.shoot("letter-" + l.String())
		})
	}
	b := visit(t, w.base, desk)
	b.open("dead/bad/1")
	b.press("Replay…")
	b.sees("It becomes a new job at the end of bad/ann")
	b.press("Replay it")
	b.sees("Letter 1 was replayed as bad:5.")
	w.letters("bad", 4)
	b.open("dead/bad/2")
	b.press("Drop…")
	b.press("Drop it")
	b.sees("Letter 2 is dropped.")
	b.open("dead/bad")
	b.sees("3 letters here")
	b.press("Replay all…")
	b.sees("3 letters become new jobs")
	b.press("Replay all")
	b.sees("3 jobs replayed.")
	w.letters("bad", 3)
	b.holds(`[...document.querySelectorAll("tbody th")].map(e => e.textContent).join() === "6,7,8"`)
	b.press("Drop these…")
	b.sees("Drop 3 letters of bad?", "will be dropped permanently")
	b.press("Drop 3 letters")
	b.sees("3 letters dropped.", "There are no dead letters")
	w.letters("bad", 0)
}

func TestTheConsoleKeepsInputOverARefresh(t *testing.T) {
	w := quick(t)
	b := visit(t, w.base, desk)
	b.open("policy/mail")
	b.sees("No bucket holds jobs or calls.")
	b.holds(`document.querySelector("[data-search]").focus() ?? true`)
	b.types("half a k")
	w.submit("mail", "acme", 300, "x")
	b.sees("acme")
	b.holds(`document.activeElement.value === "half a k"`)
}

// An operator who opens the console after an incident still sees it.
func TestAPolicyShowsItsLastDay(t *testing.T) {
	w := settle(t, penstock.Options{Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"1/s","capacity":10}`)},
		map[string]workers.Handler{"mail": done})
	w.submit("mail", "acme", 30, "x")
	waittest.Until(t, "a minute with starts and refusals is over", func() bool {
		var day struct{ Counts map[string][]int64 }
		w.ask("GET", "/v1/minutes/mail", "", &day)
		return slices.ContainsFunc(day.Counts["started"], func(n int64) bool { return n > 0 }) &&
			slices.ContainsFunc(day.Counts["refused"], func(n int64) bool { return n > 0 }) &&
			slices.Max(day.Counts["depth"]) > 0
	})
	for _, l := range []look{desk, phone} {
		b := visit(t, w.base, l)
		b.open("policy/mail")
		b.sees("The last hour", "starts per minute", "jobs held", "refused per minute")
		b.legible()
		b.shoot("day-" + l.String())
	}
}
