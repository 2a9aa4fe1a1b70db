package consoletest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/workers"
)

// legible returns problems of a page's legibility: violated rules of axe, and elements wider than
// the page.
//
//go:embed legible.js
var legible string

var axe = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "penstock-axe")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS("testdata/axe")); err != nil {
		return "", err
	}
	npm := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm: %w\n%s", err, out)
	}
	source, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	return string(source), err
})

func (b *tab) legible() {
	b.Helper()
	source, err := axe()
	if err != nil {
		b.Fatal(err)
	}
	wrong, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](source+";"+legible,
		chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatal(err)
	}
	for _, w := range wrong {
		b.Errorf("%s: %s", value[string](b, "location.hash"), w)
	}
}

// longer is more jobs than quick's policy mail starts while a slow browser loads.
const longer = 4000

func quick(t *testing.T) *world {
	return settle(t, penstock.Options{Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"20/s","capacity":5000}`,
		`batch {"algorithm":"leaking_bucket","outflow_total":"50/s","capacity":10000}`,
		`signup {"algorithm":"fixed_window","limit":10,"window":"1d"}`)},
		map[string]workers.Handler{"mail": done, "batch": done})
}

func TestEachViewInEachLook(t *testing.T) {
	w := quick(t)
	w.submit("mail", "acme", longer, "hello")
	w.submit("mail", "with space/and slash", 3, "hello")
	for range 12 {
		w.ask("POST", "/v1/check/signup/203.0.113.7", "", nil)
	}
	for _, l := range looks {
		t.Run(l.String(), func(t *testing.T) {
			b := visit(t, w.base, l)
			b.open("")
			b.sees("Refused?", "Late?", "Deep?", "Failing?", "Stuck?", "Unowned?", "mail",
				"20/s per key", "acme", "50/s in total")
			b.legible()
			b.shoot("overview-" + l.String())
			b.open("policy/mail")
			b.sees("Deepest buckets", "leaking bucket", "acme", "on pace")
			b.legible()
			b.shoot("policy-" + l.String())
			b.open("bucket/mail/acme")
			b.sees("keeps to its rate of 20/s", "allowed: at most 21 in any second",
				"started", "live")
			b.holds(`document.querySelector(".teeth").getAttribute("d").length > 100`)
			b.legible()
			b.shoot("bucket-" + l.String())
			b.open("drainers")
			b.sees("Ownership", "alive", "mail")
			b.legible()
			b.shoot("drainers-" + l.String())
			b.open("doors")
			b.sees("fixed window: 10 in 1d")
			w.ask("GET", "/v1/stats", "", nil)
			for range 3 {
				w.ask("POST", "/v1/check/signup/eve", "", nil)
			}
			b.sees("Busiest keys", "eve")
			b.legible()
			b.shoot("doors-" + l.String())
			b.open("policy/signup") // which has no starts
			b.sees("fixed window: 10 in 1d", "Allowed", "It only answers checks")
			b.holds(`!/Starts|Accepted|unpaced/.test(document.querySelector("main").innerText)`)
			b.legible()
		})
	}
}
