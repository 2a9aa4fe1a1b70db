package consoletest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/workers"
)

const page = "../../docs/troubleshoot.md"

var (
	rows    = regexp.MustCompile("(?m)^\\| `#/(.*?)` \\| (.*) \\|$")
	quotes  = regexp.MustCompile(`“(.*?)”`)
	numbers = regexp.MustCompile(`\d[\d,.]*`)
)

// TestTheConsoleShowsIncidentsAsDocumented provokes the six incidents of docs/troubleshoot.md, and
// looks for the documented texts in each view. Numbers and times may differ, and "…" matches any
// text. With -shots it takes the page's pictures.
func TestTheConsoleShowsIncidentsAsDocumented(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var up atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			http.Error(w, "maintenance", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(target.Close)
	w := settle(t, penstock.Options{
		DrainPolicies: []string{"mail", "stripe", "imports", "billing"},
		Policies: policies(t,
			`mail {"algorithm":"leaking_bucket","outflow":"20/s","outflow_total":"48/s","capacity":5000}`,
			`stripe {"algorithm":"leaking_bucket","outflow":"20/s","capacity":500,
				"retry":{"backoff":"1s"},"target":{"http":{"url":"`+target.URL+`"}}}`,
			`imports {"algorithm":"leaking_bucket","outflow":"10/m","capacity":500}`,
			`billing {"algorithm":"leaking_bucket","outflow":"20/s","capacity":500}`,
			`reports {"algorithm":"leaking_bucket","outflow":"2/s","capacity":300}`)},
		map[string]workers.Handler{"mail": done, "imports": done, "billing": done})
	w.ask("GET", "/v1/stats", "", nil)
	w.ask("PATCH", "/v1/policies/billing/override?because=the+partner+asked",
		`{"outflow":"20/h"}`, nil)
	w.submit("billing", "acme", 300, "x")
	w.submit("stripe", "acme", 60, "x")
	w.submit("reports", "globex", 40, "x")
	w.submit("mail", "acme", 4500, "x")
	for i := range 9 {
		w.submit("mail", fmt.Sprintf("customer-%d", i+1), 50-5*i, "x")
	}
	w.submit("imports", "acme", 500, "x")
	w.schedule("imports/acme", "poll", "@every 2s", "x")
	w.schedule("mail/acme", "report", "0 30 6 * * 1-5", "x")
	w.schedule("billing/globex", "invoices", "@monthly", "x")
	w.ask("POST", "/v1/run/billing/globex?name=invoices", "", nil)

	_, symptoms, _ := strings.Cut(string(text), "\n## By symptom\n")
	symptoms, _, _ = strings.Cut(symptoms, "\n## ")
	incidents := strings.Split(symptoms, "\n### ")[1:]
	if len(incidents) != 6 {
		t.Fatalf("%d incidents in %s", len(incidents), page)
	}
	b := visit(t, w.base, desk)
	for _, incident := range incidents {
		name, _, _ := strings.Cut(incident, "\n")
		w.submit("imports", "acme", 40, "x")
		steps := rows.FindAllStringSubmatch(incident, -1)
		if len(steps) == 0 {
			t.Errorf("%s: no views", name)
		}
		for _, step := range steps {
			b.open(step[1])
			for _, quote := range quotes.FindAllStringSubmatch(step[2], -1) {
				b.reads(name, quote[1])
			}
		}
	}
	pictures(t, w)
	up.Store(true)
	b.open("bucket/stripe/acme")
	b.sees("It holds no jobs", "done")
}

func (b *tab) reads(incident, text string) {
	b.Helper()
	like := numbers.ReplaceAllString(regexp.QuoteMeta(text), `\d[\d,.]*`)
	is := regexp.MustCompile(strings.ReplaceAll(like, "…", ".*"))
	defer func() {
		if b.Failed() {
			b.Logf("%s: %q is not in\n%s", incident, text, b.text())
		}
	}()
	waittest.Until(b.T, text, func() bool { return is.MatchString(b.text()) })
}

func pictures(t *testing.T, w *world) {
	if *shots == "" {
		return
	}
	for l, name := range map[look]string{{1400, 860, "light"}: "light", {1400, 860, "dark"}: "dark",
		phone: "phone-light", {390, 844, "dark"}: "phone-dark"} {
		w.submit("imports", "acme", 40, "x")
		b := visit(t, w.base, l)
		b.open("")
		b.sees("imports refused", "stripe/acme holds", "No drainer answers",
			"made no job", "invoices", "Last changes")
		b.do(chromedp.EmulateViewport(l.width, value[int64](b, "document.body.scrollHeight")))
		b.shoot("overview-" + name)
		b.do(chromedp.EmulateViewport(l.width, l.height))
		b.open("bucket/mail/acme")
		b.holds(`document.querySelector(".dots")?.getAttribute("d").split("M").length > 200`)
		b.shoot("bucket-" + name)
	}
}
