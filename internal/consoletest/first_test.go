package consoletest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/workers"
)

// Nobody has asked for statistics before the page is opened.
func TestAPageShowsWhatHappenedBeforeItWasOpened(t *testing.T) {
	w := settle(t, penstock.Options{Policies: policies(t,
		`bad {"algorithm":"leaking_bucket","outflow":"100/s","capacity":500}`,
		`small {"algorithm":"leaking_bucket","outflow":"1/h","capacity":2}`,
		`signup {"algorithm":"fixed_window","limit":1,"window":"1d"}`)},
		map[string]workers.Handler{"small": done,
			"bad": func(context.Context, workers.Job) error {
				return workers.Permanent(errors.New("no such customer"))
			}})
	w.submit("bad", "ann", 30, "x")
	w.submit("small", "bob", 8, "x")
	w.ask("POST", "/v1/check/signup/eve", "", nil)
	w.ask("POST", "/v1/check/signup/eve", "", nil)
	w.letters("bad", 30)
	b := visit(t, w.base, desk)
	b.open("")
	b.sees("small refused ", "30 jobs became dead letters",
		"30 dead letters wait to be replayed or dropped")
	b.open("doors")
	b.holds(`document.querySelector("tbody meter")?.textContent === "50 % refused"`)
	for _, l := range looks { // a minute may have passed
		b := visit(t, w.base, l)
		b.open("")
		b.sees("30 dead letters wait to be replayed or dropped")
		b.legible()
		b.shoot("first-" + l.String())
	}
}

func TestAYoungProcessDoesNotDenyWhatItCannotKnow(t *testing.T) {
	w := settle(t, penstock.Options{AdmitOnly: true, Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"1/h","capacity":2}`)}, nil)
	b := visit(t, w.base, desk)
	b.open("")
	b.sees("Unknown: watching for ", "and no job was refused since.",
		"and no attempt failed since.", "what was before is unknown")
	b.holds(`!document.body.innerText.includes("in the last minute")`)
}

func TestAPolicyThatIsFullByBytesIsAFinding(t *testing.T) {
	w := settle(t, penstock.Options{AdmitOnly: true, Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"1/h","capacity":500,"max_bytes":"2MiB"}`,
		`bulk {"algorithm":"leaking_bucket","outflow":"1/h","capacity":500,"max_bytes":"16MiB"}`)},
		nil)
	for range 5 {
		w.submit("mail", "acme", 5, strings.Repeat("x", 100_000))
		w.submit("bulk", "acme", 6, strings.Repeat("x", 100_000))
	}
	for _, l := range looks {
		b := visit(t, w.base, l)
		b.open("")
		b.sees("The jobs of mail take 1.91 MiB of 2 MiB, its max_bytes, so new ones are refused; " +
			"those of bulk take most, 2.86 MiB.")
		b.legible()
		b.shoot("bytes-" + l.String())
	}
}
