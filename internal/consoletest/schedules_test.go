package consoletest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/workers"
)

func (w *world) schedule(place, name, when, body string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), "POST", w.base+"/v1/schedules/"+place,
		strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Penstock-Schedule", when)
	r.Header.Set("Penstock-Schedule-Name", name)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		w.Fatalf("schedule %s of %s: %s", name, place, answer.Status)
	}
}

// rowSays waits until the row of a schedule has a text.
func (b *tab) rowSays(row, text string) {
	b.Helper()
	b.holds(`[...document.querySelectorAll("tbody tr")].some(r => r.innerText.includes("` + row +
		`") && r.innerText.includes("` + text + `"))`)
}

func TestSchedulesAreRunAndPausedOnTheOverview(t *testing.T) {
	w := settle(t, penstock.Options{Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"20/s","capacity":500}`,
		`full {"algorithm":"leaking_bucket","outflow":"1/h","capacity":1}`)},
		map[string]workers.Handler{"mail": func(_ context.Context, j workers.Job) error {
			if string(j.Body) == "wrong" {
				return workers.Permanent(errors.New("no such address"))
			}
			return nil
		}})
	b := visit(t, w.base, desk)
	b.open("")
	b.sees("Policies", "mail")
	b.holds(`!document.body.innerText.includes("Schedules")`) // nothing is shown where there are none
	w.schedule("mail/acme", "nightly", "0 30 2 * * *", "right")
	b.sees("Schedules", "nightly", "none known")
	b.press("Run now")
	b.sees("Run nightly of mail / acme now?", "beside those of its times")
	b.press("Cancel")
	b.press("Run now")
	b.press("Run it")
	b.sees("The schedule nightly of mail / acme has made mail:1.")
	b.rowSays("nightly", "done")
	b.press("Pause")
	b.sees("Pause nightly of mail / acme?", "are not made up for")
	b.press("Pause")
	b.sees("The schedule nightly of mail / acme is paused.")
	b.rowSays("nightly", "paused")
	b.press("Resume")
	b.sees("The schedule nightly of mail / acme is resumed.")

	w.schedule("mail/globex", "cleanup", "@every 1h", "wrong")
	w.submit("full", "acme", 2, "x")
	w.schedule("full/acme", "hourly", "@every 2s", "x")
	if got := w.ask("POST", "/v1/run/mail/globex?name=cleanup", "", nil); got != 202 {
		t.Fatal(got)
	}
	if got := w.ask("PATCH", "/v1/schedules/mail/acme?name=nightly&paused=1", "", nil); got != 200 {
		t.Fatal(got)
	}
	for _, l := range looks {
		b := visit(t, w.base, l)
		b.open("")
		b.sees("The schedule hourly of full/acme made no job at")
		b.rowSays("hourly", "missed: the bucket is full")
		b.rowSays("cleanup", "dead")
		b.legible()
		b.shoot("schedules-" + l.String())
		b.open("policy/mail")
		b.rowSays("nightly", "done")
		b.rowSays("cleanup", "the API")
		b.legible()
		b.shoot("schedules-of-a-policy-" + l.String())
		b.press("dead")
		b.sees("mail:2", "no such address")
	}
	for i := range 9 {
		w.schedule("mail/"+strings.Repeat("x", i+1), "daily", "@daily", "x")
	}
	b.open("")
	b.press("All 12 schedules")
	b.sees("mail / xxxxxxxxx")
	b.holds(`document.querySelectorAll("tbody tr").length === 12`)
	b.legible()
}
