package consoletest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/workers"
)

// Without a valid token the console shows no data, with the right to read it offers no actions, and
// it keeps the token in the tab.
func TestTheConsoleHasTheRightsOfItsToken(t *testing.T) {
	boss, looker, one := access.NewToken(), access.NewToken(), access.NewToken()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	all := []string{"*"}
	lines := access.Line("boss", []string{"read", "operate", "submit"}, all, nil, boss) + "\n" +
		access.Line("looker", []string{"read"}, []string{"*"}, nil, looker) + "\n" +
		access.Line("one", []string{"read"}, []string{"batch"}, nil, one) + "\n"
	if err := os.WriteFile(file, []byte("clients:\n"+lines), 0o600); err != nil {
		t.Fatal(err)
	}
	w := settle(t, penstock.Options{HTTP: penstock.HTTP{Tokens: file}, Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"20/s","capacity":500}`,
		`batch {"algorithm":"leaking_bucket","outflow":"20/s","capacity":500}`)},
		map[string]workers.Handler{"mail": done, "batch": done})
	w.token = boss
	w.submit("mail", "acme", 200, "x")
	b := visit(t, w.base, desk)
	b.expect("status of 401", "status of 403")
	b.open("bucket/mail/acme")
	enter := func(token string) {
		t.Helper()
		b.sees("Enter a token")
		b.holds(`document.activeElement.name === "token"`)
		b.types(token + "\r")
	}
	b.sees("This admitter requires a token.")
	enter("pst_wrong")
	b.sees("The token belongs to no known client.")
	enter(looker)
	b.sees("looker", "keeps to its rate", "live")
	b.holds(`["pause", "pace", "purge"].every(id => document.getElementById(id).disabled)`)
	b.holds(`document.getElementById("pause").title.includes("operate")`)
	b.holds(`!JSON.stringify(localStorage).includes("pst_") && !document.cookie`)
	b.press("Forget token")
	enter(boss)
	b.sees("boss")
	b.holds(`document.getElementById("pause")?.disabled === false`)
	b.press("Forget token")
	enter(one)
	b.sees("Your token does not permit this.")
	b.open("")
	b.sees("batch", "Unowned?")
	b.holds(`!document.body.innerText.includes("mail")`)
}

type wire struct {
	address string
	mu      sync.Mutex
	cut     bool
	open    map[net.Conn]bool
}

func lay(t *testing.T, to string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: l.Addr().String(), open: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); w.set(true) })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil || !w.join(in, out) {
				in.Close()
				continue
			}
			go func() { _, _ = io.Copy(in, out); in.Close() }()
			go func() { _, _ = io.Copy(out, in); out.Close() }()
		}
	}()
	return w
}

func (w *wire) join(in, out net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[in], w.open[out] = true, true
	return !w.cut
}

func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut = cut; cut {
		for c := range w.open {
			c.Close()
		}
		clear(w.open)
	}
}

func TestALostConnectionIsShownAndRepaired(t *testing.T) {
	w := quick(t)
	wire := lay(t, strings.TrimPrefix(w.base, "http://"))
	w.submit("mail", "acme", longer, "x")
	b := visit(t, "http://"+wire.address, desk)
	b.expect("net::ERR_")
	b.open("bucket/mail/acme")
	b.sees("live", "started")
	wire.set(true)
	b.sees("lost at", "reconnecting", "the admitter does not answer. This is the state at")
	b.holds(`(([lost, state]) => Date.now() - lost > 4000 && state <= lost)(
		[/lost at ([\d:]+)/, /the state at ([\d:]+)/].map(at => Date.parse(
			new Date().toDateString() + " " + at.exec(document.body.innerText)?.[1])))`)
	b.legible()
	w.submit("mail", "acme", 333, "x")
	w.ask("POST", "/v1/pause/mail/acme", "", nil)
	wire.set(false)
	b.sees("Connected again. The connection was lost for", "an operator paused", "live")
	b.holds(`document.querySelector(".comb .gap")`)
	b.holds(`!document.body.innerText.includes("does not answer")`)
}

func TestAStandstillIsShownBehindDeeperBuckets(t *testing.T) {
	w := settle(t, penstock.Options{Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"20/s","capacity":500}`,
		`deep {"algorithm":"leaking_bucket","outflow":"1/h","capacity":500}`)},
		map[string]workers.Handler{"deep": done,
			"mail": func(context.Context, workers.Job) error {
				return workers.RetryAfter(time.Hour, errors.New("not now"))
			}})
	var lines strings.Builder
	for n := range 480 {
		fmt.Fprintf(&lines, `{"policy":"deep","key":"key-%d"}`+"\n", n%120)
	}
	if got := w.ask("POST", "/v1/jobs:batch", lines.String(), nil); got != 200 {
		t.Fatal(got)
	}
	w.submit("mail", "small", 1, "x")
	b := visit(t, w.base, desk)
	b.open("")
	b.sees("mail/small holds 1 of ", "the target asked for a pause")
}

func TestOneCauseIsOneLine(t *testing.T) {
	const buckets = 41
	w := settle(t, penstock.Options{Policies: policies(t,
		`mail {"algorithm":"leaking_bucket","outflow":"20/s","capacity":500,"retry":{"backoff":"1s"}}`)},
		map[string]workers.Handler{"mail": func(context.Context, workers.Job) error {
			return workers.Unavailable(errors.New("maintenance"))
		}})
	for n := range buckets {
		w.submit("mail", fmt.Sprintf("key-%d", n), 3, "x")
	}
	waittest.Until(t, "all buckets are late for their target", func() bool {
		var list struct {
			Buckets []struct {
				BlockedBy string           `json:"blocked_by"`
				LateMS    map[string]int64 `json:"late_ms"`
			}
		}
		w.ask("GET", "/v1/buckets?by=late&limit=100", "", &list)
		late := 0
		for _, b := range list.Buckets {
			if b.BlockedBy == "breaker" && b.LateMS["breaker"] >= 500 {
				late++
			}
		}
		return late == buckets
	})
	b := visit(t, w.base, desk)
	b.open("")
	b.sees("the target is down; one job at a time probes it", "maintenance",
		"and 40 other buckets wait for the same reason.",
		"Starts of other targets are on time.")
	b.holds(`[...document.querySelectorAll(".finding")].every(f => f.querySelectorAll("li").length < 3)`)
}

func TestATargetThatIsBackIsProbed(t *testing.T) {
	var back atomic.Bool
	w := settle(t, penstock.Options{Policies: policies(t, `mail {"algorithm":"leaking_bucket",`+
		`"outflow":"100/s","capacity":500,"retry":{"backoff":"1h","max_backoff":"1h"}}`)},
		map[string]workers.Handler{"mail": func(context.Context, workers.Job) error {
			if back.Load() {
				return nil
			}
			return workers.Misconfigured(errors.New("no key"))
		}})
	w.submit("mail", "acme", 3, "x")
	w.becomes("a breaker is open", "mail/acme", func(b bucket) bool {
		return b.BlockedBy == "breaker"
	})
	b := visit(t, w.base, desk)
	b.open("")
	b.sees("mail/acme holds 3 of ", "its drainer cannot call the target",
		"a mistake at the drainer, not the target's: no key")
	b.open("bucket/mail/acme")
	b.sees("a mistake at the drainer, not the target's: no key", "breaker",
		"its drainer cannot call the target; one job at a time probes it")
	b.holds(`!document.body.innerText.includes("target is down")`)
	b.legible()
	back.Store(true)
	b.press("Probe the target now")
	b.sees("A job of mail/acme probes the target.", "It holds no jobs")

	back.Store(false)
	for _, key := range []string{"acme", "globex"} {
		w.submit("mail", key, 3, "x")
		w.becomes("a breaker is open", "mail/"+key, func(b bucket) bool {
			return b.BlockedBy == "breaker"
		})
	}
	b.open("")
	b.sees("its drainer cannot call the target", "and 1 other bucket waits for the same reason.")
	b.open("policy/mail")
	b.sees("breaker")
	back.Store(true)
	b.press("Probe the target now")
	b.sees("Probe the target of mail?", "Pauses that the target asked for end, too.")
	b.press("Probe it")
	b.sees("2 jobs probe the target of mail.", "No bucket holds jobs or calls.")
	b.holds(`!document.getElementById("probe")`)
}

// Starts before the page was opened are unknown, not zero.
func TestABucketShowsOnlyReceivedStarts(t *testing.T) {
	var started atomic.Int64
	w := settle(t, penstock.Options{Policies: policies(t,
		`slow {"algorithm":"leaking_bucket","outflow":"2/h","capacity":500}`)},
		map[string]workers.Handler{"slow": func(context.Context, workers.Job) error {
			started.Add(1)
			return nil
		}})
	w.submit("slow", "acme", 4, "x")
	waittest.Until(t, "a job has started", func() bool { return started.Load() == 1 })
	b := visit(t, w.base, desk)
	b.open("bucket/slow/acme")
	b.sees("0 starts since", "when recording began")
	b.holds(`document.querySelector(".gap.before").getAttribute("width") > 500`)
}

func TestABadAddressIsReported(t *testing.T) {
	b := visit(t, quick(t).base, desk)
	b.open("bucket/mail/%ff")
	b.sees("Not found.", "the address of this page is not valid UTF-8")
	b.open("policy/mail")
	b.sees("Deepest buckets")
	b.open("constructor")
	b.sees("Stuck?")
}

// "constructor" is a property of every JavaScript object.
func TestAPolicyMayBeNamedConstructor(t *testing.T) {
	w := settle(t, penstock.Options{AdmitOnly: true, Policies: policies(t,
		`constructor {"algorithm":"leaking_bucket","outflow":"1/s","capacity":500}`)}, nil)
	b := visit(t, w.base, desk)
	b.open("")
	b.sees("constructor", "Stuck?")
	b.holds(`!/NaN|function/.test(document.body.innerText)`)
	w.submit("constructor", "acme", 1, "x")
	b.open("")
	b.sees("No drainer answers for constructor: 1 job waits.")
	b.open("drainers")
	b.sees("no drainer owns 1 of 1 partition")
}

func TestTheListOfPoliciesIsReadOnce(t *testing.T) {
	b := visit(t, quick(t).base, desk)
	b.open("")
	const sizes = `performance.getEntriesByType("resource").filter(e => e.name.endsWith("/v1/policies"))
		.map(e => e.transferSize)`
	b.holds(sizes + `.length > 3`)
	all := value[[]int](b, sizes)
	if first, last := all[0], all[len(all)-1]; first < 1000 || last > 500 {
		t.Errorf("the list's answers have %v bytes, want all but the first to be small", all)
	}
}

func TestAHundredThousandBucketsAreNotAHundredThousandRows(t *testing.T) {
	w := quick(t)
	w.ask("POST", "/v1/pause/batch", "", nil)
	for n := 0; n < 100_000; n += 10_000 {
		var lines strings.Builder
		for key := n; key < n+10_000; key++ {
			fmt.Fprintf(&lines, `{"policy":"batch","key":"key-%06d"}`+"\n", key)
		}
		if got := w.ask("POST", "/v1/jobs:batch", lines.String(), nil); got != 200 {
			t.Fatal(got)
		}
	}
	w.submit("batch", "key-077777", 9, "x")
	b := visit(t, w.base, desk)
	b.open("")
	b.sees("100,009", "key-077777", "10 of 10,000",
		"batch is paused by an operator: 100,009 jobs wait.")
	few := func() {
		t.Helper()
		if n := value[int](b, `document.querySelectorAll("*").length`); n > 2500 {
			t.Errorf("%d elements", n)
		}
	}
	few()
	b.open("policy/batch")
	b.sees("100,000 buckets hold jobs", "key-077777", "1 to 50 of 100,000")
	few()
	b.press("Next")
	b.sees("51 to 100 of 100,000")
	few()
	b.types("/")
	b.selectAll()
	b.types("key-054321\r")
	b.sees("batch / key-054321", "an operator paused the policy")
}
