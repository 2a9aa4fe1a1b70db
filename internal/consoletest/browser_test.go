package consoletest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// browser is shared by all tests, because a start takes a second or two.
var browser context.Context

var shots = flag.String("shots", "", "a directory for pictures of the views; without, none")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(start(m))
}

func start(m *testing.M) int {
	program, err := exec.LookPath("chromium")
	if err != nil {
		fmt.Fprintln(os.Stderr, "want Chromium, which make setup installs:", err)
		return 1
	}
	profile, err := os.MkdirTemp("", "penstock-console")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(profile)
	flags := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program),
		chromedp.UserDataDir(profile), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(waittest.Patience())}
	for _, flag := range []string{"disable-quic", "disable-background-networking",
		"disable-component-update", "disable-sync", "hide-scrollbars", "mute-audio",
		"disable-background-timer-throttling", "disable-renderer-backgrounding",
		"disable-backgrounding-occluded-windows", "disable-dev-shm-usage"} {
		flags = append(flags, chromedp.Flag(flag, true))
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), flags...)
	defer end()
	var quit context.CancelFunc
	browser, quit = chromedp.NewContext(allocator)
	defer quit()
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, "start Chromium:", err)
		return 1
	}
	return m.Run()
}

type look struct {
	width, height int64
	theme         string
}

var (
	desk  = look{1280, 800, "light"}
	night = look{1280, 800, "dark"}
	phone = look{390, 844, "light"}
	looks = []look{desk, night, phone, {390, 844, "dark"}}
)

func (l look) String() string { return fmt.Sprintf("%dx%d-%s", l.width, l.height, l.theme) }

// tab is a page of the browser. Errors of scripts, violations of the content security policy and
// requests to other hosts fail the test.
type tab struct {
	*testing.T
	ctx  context.Context
	base string

	mu       sync.Mutex
	problems []string
	expected []string
}

func visit(t *testing.T, base string, l look) *tab {
	t.Helper()
	b := &tab{T: t, base: base}
	var end context.CancelFunc
	b.ctx, end = chromedp.NewContext(browser, chromedp.WithNewBrowserContext(),
		chromedp.WithListener(b.heard))
	t.Cleanup(end)
	b.do(chromedp.EmulateViewport(l.width, l.height))
	call(b, log.Enable, cdp.Empty{})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: l.theme},
			{Name: "prefers-reduced-motion", Value: "reduce"}}})
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			expected := func(words string) bool { return strings.Contains(p, words) }
			if !slices.ContainsFunc(b.expected, expected) {
				t.Errorf("the page: %s", p)
			}
		}
	})
	return b
}

func (b *tab) expect(words ...string) { b.expected = append(b.expected, words...) }

func (b *tab) heard(event any) {
	var problem string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = "exception: " + fmt.Sprintf("%+v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		problem = fmt.Sprintf("console.%s: %+v", e.Type, e.Args)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			problem = fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Scheme != "data" && u.Hostname() != "127.0.0.1" {
			problem = "asks another host: " + e.Request.URL
		}
	}
	if problem != "" {
		b.mu.Lock()
		b.problems = append(b.problems, problem)
		b.mu.Unlock()
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

func call[P any](b *tab, command cdp.Command[P, cdp.Empty], params P) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.Fatal(err)
	}
}

func (b *tab) open(view string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base + "/console/#/" + view))
}

func value[T any](b *tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (b *tab) text() string { return value[string](b, "document.body.innerText") }

func (b *tab) holds(expression string) {
	b.Helper()
	defer func() {
		if b.Failed() {
			b.Logf("not so: %s\n%s", expression, b.text())
		}
	}()
	waittest.Until(b.T, expression, func() bool { return value[bool](b, "!!("+expression+")") })
}

func (b *tab) sees(texts ...string) {
	b.Helper()
	quoted, err := json.Marshal(texts)
	if err != nil {
		b.Fatal(err)
	}
	b.holds(fmt.Sprintf("%s.every(text => document.body.innerText.includes(text))", quoted))
}

func (b *tab) press(name string) {
	b.Helper()
	const find = `[...(document.querySelector("dialog") ?? document).querySelectorAll("button, a")]
		.filter(e => e.textContent.trim().startsWith(%[1]q) && !e.disabled)
		.sort((a, b) => (b.textContent.trim() === %[1]q) - (a.textContent.trim() === %[1]q))[0]`
	button := fmt.Sprintf(find, name)
	b.holds(button)
	// New data may move the button away from under the mouse.
	waittest.Until(b.T, name+" is pressed", func() bool {
		at := value[[]float64](b, fmt.Sprintf(`(() => {
			const e = %s
			if (!e) return []
			sessionStorage.pressed = ""
			document.addEventListener("click", c => sessionStorage.pressed =
				c.target.closest("button, a")?.textContent.trim().startsWith(%q) ? "yes" : "",
				{capture: true, once: true})
			e.scrollIntoView({block: "center"})
			const r = e.getBoundingClientRect()
			return [r.x + r.width / 2, r.y + r.height / 2]
		})()`, button, name))
		if len(at) == 0 {
			return false
		}
		b.do(chromedp.MouseClickXY(at[0], at[1]))
		return value[bool](b, `sessionStorage.pressed === "yes"`)
	})
}

func (b *tab) types(text string) { b.Helper(); b.do(chromedp.KeyEvent(text)) }

func (b *tab) selectAll() {
	b.Helper()
	b.do(chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
}

func (b *tab) shoot(name string) {
	b.Helper()
	if *shots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(*shots, name+".png"), picture, 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
}
