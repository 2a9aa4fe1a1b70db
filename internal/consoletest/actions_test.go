package consoletest

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

type bucket struct {
	Depth     int
	BlockedBy string `json:"blocked_by"`
	Override  struct {
		Outflow     string
		Concurrency int
		Paused      bool
	}
}

func (w *world) becomes(what, path string, so func(bucket) bool) {
	w.Helper()
	waittest.Until(w.T, what, func() bool {
		var b bucket
		return w.ask("GET", "/v1/buckets/"+path, "", &b) == 200 && so(b)
	})
}

func TestABucketIsPausedPacedAndPurged(t *testing.T) {
	w := quick(t)
	w.submit("mail", "acme", 300, "hello")
	b := visit(t, w.base, desk)
	b.open("policy/mail")
	b.open("bucket/mail/acme")
	b.press("Pause")
	b.sees("Pause mail/acme?", "will wait until it is resumed")
	value[bool](b, "(history.back(), true)")
	b.sees("Deepest buckets")
	b.holds(`!document.querySelector("dialog")`)
	b.open("bucket/mail/acme")
	b.press("Pause")
	b.sees("Pause mail/acme?", "will wait until it is resumed")
	b.press("Cancel")
	b.holds(`!document.querySelector("dialog")`)
	b.press("Pause")
	b.press("Pause")
	b.sees("mail/acme is paused.", "an operator paused the bucket", "Resume")
	w.becomes("it is paused", "mail/acme", func(b bucket) bool { return b.BlockedBy == "paused" })

	b.press("Own limits")
	b.sees("Limits of its own for acme")
	b.types("5/y")
	b.press("Save")
	b.expect("status of 400")
	b.sees("want a rate per s, m, h, d, w")
	b.selectAll()
	b.types("5/s")
	b.press("Save")
	b.sees("outflow the policy's → 5/s", "5/s, its own")
	w.becomes("its pace is its own", "mail/acme", func(b bucket) bool {
		return b.Override.Outflow == "5/s" && b.Override.Paused
	})

	b.press("Purge")
	b.sees("Purge mail/acme?", "dropped permanently", "Drop")
	b.press("Drop")
	b.sees("jobs of mail/acme dropped.")
	w.becomes("it is empty", "mail/acme", func(b bucket) bool { return b.Depth == 0 })
	b.holds(`document.getElementById("purge").disabled`)
	b.press("Resume")
	b.sees("mail/acme is resumed.", "It holds no jobs")
}

// One call has started, and two wait until it ends.
func TestCallsAreShownBesideJobs(t *testing.T) {
	w := settle(t, penstock.Options{Policies: policies(t,
		`api {"algorithm":"leaking_bucket","outflow":"20/s","capacity":50,"concurrency":1}`)}, nil)
	for range 3 {
		go func() {
			_, _ = w.Acquire(t.Context(),
				penstock.Call{Policy: "api", Key: "a", Wait: 5 * time.Minute})
		}()
	}
	w.submit("api", "a", 1, "hello")
	b := visit(t, w.base, desk)
	b.open("bucket/api/a")
	b.sees("It holds 1 of 50 jobs (1 waiting) and 3 calls (2 waiting, 1 running): its bucket " +
		"runs its maximum number of jobs (1)")
	b.open("policy/api")
	b.sees("1 bucket holds jobs or calls")
}

func TestAPolicyIsPaused(t *testing.T) {
	w := quick(t)
	w.submit("mail", "acme", longer, "hello")
	b := visit(t, w.base, phone)
	b.open("policy/mail")
	b.sees("acme")
	b.press("Pause")
	b.sees("Pause mail?", "1 bucket holds jobs")
	b.press("Pause")
	b.sees("mail is paused.", "policy paused")
	b.open("")
	b.sees("mail is paused by an operator")
	b.open("policy/mail")
	b.press("Resume")
	b.sees("mail is resumed.")
	w.becomes("it goes on", "mail/acme",
		func(b bucket) bool { return b.BlockedBy != "policy_paused" })
}

// The rate of a whole policy is changed for a while, and restored.
func TestTheRateOfAPolicyIsChangedForAWhile(t *testing.T) {
	w := quick(t)
	b := visit(t, w.base, desk)
	b.open("policy/mail")
	b.press("Change the rate")
	b.sees("The rate of mail", "what its file, or the API, says")
	b.types("5/y")
	b.press("Change it")
	b.expect("status of 400")
	b.sees("want a rate per s, m, h, d, w")
	b.selectAll()
	b.types("5/s")
	b.press("Change it")
	b.sees("→ 5/s", "overridden", "now 5/s by", "1h left")
	b.press("End overrides")
	b.press("End them")
	b.sees("mail is as its file, or the API, says.")
	b.holds(`!document.body.innerText.includes("now 5/s by")`)
}

func TestAKeyIsFoundByTheKeyboardAlone(t *testing.T) {
	w := quick(t)
	w.submit("mail", "a/b c", 40, "hello")
	b := visit(t, w.base, desk)
	b.open("policy/mail")
	b.sees("Deepest buckets")
	b.types("/")
	b.holds(`document.activeElement.matches("[data-search]")`)
	b.selectAll() // the driver types the slash although the page prevents it
	b.types("a/b c\r")
	b.sees("mail / a/b c", "allowed: at most")
	b.types("g")
	b.types("r")
	b.sees("Ownership")
	b.types("?")
	b.sees("Refresh now")
	b.types("\x1b")
	b.holds(`!document.querySelector("dialog")`)
	b.types("t")
	b.holds(`document.documentElement.dataset.theme === "light"`)
	b.types("t")
	b.holds(`document.documentElement.dataset.theme === "dark"`)
	b.legible()
}
