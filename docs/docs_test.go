// Package docs tests the documentation: it runs every command of the pages, in order, against real
// processes, and compares the output.
//
// Words, fields and their order must match; numbers and times may differ, and "…" matches any text.
// Ports are replaced by free ones, and /run/secrets by a temporary directory. `curl`, `nats` and
// `systemctl` are stand-ins (tools_test.go, systemd_test.go) with the options of the pages. The
// test runs a page's commands in one shell, and commands that end in "&" in the background, until
// the end of their block.
package docs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

var pictures = flag.String("pictures", "", "a directory for pictures of tools.md; without, none")

// tools are the stand-ins: this test binary under other names.
var tools = map[string]func(args []string) error{"curl": curl, "nats": natsCLI,
	"systemctl": systemctl}

func TestMain(m *testing.M) {
	if tool := filepath.Base(os.Args[0]); tools[tool] != nil {
		if err := tools[tool](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, tool+":", err)
			os.Exit(1)
		}
		return
	}
	proctest.Main(m, "../cmd/admitter", "../cmd/drainer", "../cmd/penstock",
		"../cmd/penstock/penstock-lab", "github.com/nats-io/nats-server/v2")
}

type reader struct {
	t     *testing.T
	dir   string
	here  *strings.Replacer
	shell *proctest.Process
	in    io.Writer
	count int
}

// newReader makes the reader of a page in an empty directory. exchange has pairs of texts in the
// page and what they are here, in addition to ports.
func newReader(t *testing.T, exchange ...string) *reader {
	t.Helper()
	r := &reader{t: t, dir: t.TempDir()}
	exchange = append(exchange, "/run/secrets", r.dir)
	for _, port := range []string{"8080", "8081", "4222", "4223", "4224", "4225", "6222", "6223",
		"6224"} {
		free, err := proctest.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		exchange = append(exchange, ":"+port, ":"+strconv.Itoa(free))
	}
	r.here = strings.NewReplacer(exchange...)

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for tool := range tools {
		if err := os.Symlink(self, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	path := []string{bin, filepath.Dir(proctest.Program("admitter")), os.Getenv("PATH")}
	shell := exec.Command("sh", "-c", "exec sh 2>&1")
	shell.Dir = r.dir
	shell.Env = append(os.Environ(), "PATH="+strings.Join(path, ":"),
		"NATS_URL="+r.here.Replace("nats://127.0.0.1:4222"),
		"PENSTOCK_SERVER="+r.here.Replace("http://127.0.0.1:8080"))
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.in, r.shell = in, proctest.Start(t, shell)
	t.Cleanup(func() {
		// Kill processes that the page left running.
		fmt.Fprintln(in, `for p in $STARTED; do kill -9 $p 2>/dev/null; done; wait; exit`)
		in.Close()
		for range r.shell.Lines {
		}
	})
	return r
}

func (r *reader) say(command string) string {
	r.t.Helper()
	r.count++
	end := fmt.Sprintf("end of command %d", r.count)
	fmt.Fprintf(r.in, "%s\necho '%s'\n", command, end)
	var out strings.Builder
	for deadline := time.After(waittest.Patience()); ; {
		select {
		case line, open := <-r.shell.Lines:
			if !open {
				r.t.Fatalf("the shell has ended; the last command:\n%s\n%s", command, &out)
			}
			if line == end {
				return out.String()
			}
			out.WriteString(line + "\n")
		case <-deadline:
			r.t.Fatalf("no end after %v of\n%s\n%s", waittest.Patience(), command, &out)
		}
	}
}

// background starts a command and waits until it is ready. It returns the file of its later output.
func (r *reader) background(command string) (file string) {
	r.t.Helper()
	r.count++
	file = filepath.Join(r.dir, fmt.Sprintf("output-%d", r.count))
	r.say(fmt.Sprintf("READY=%s.ready %s >%s 2>%s.log & STARTED=\"$STARTED $!\"", file, command,
		file, file))
	var out, log []byte
	if !waittest.Eventually(func() bool {
		_, err := os.Stat(file + ".ready")
		out, _ = os.ReadFile(file)
		log, _ = os.ReadFile(file + ".log")
		return err == nil || strings.HasPrefix(string(out), "ready ") && r.settled(command) ||
			bytes.Contains(log, []byte("Server is ready"))
	}) {
		r.t.Fatalf("not ready: %s\n%s%s", command, out, log)
	}
	return file
}

// settled reports whether all partitions have an owner, because readers are slower than the test.
func (r *reader) settled(command string) bool {
	if !strings.Contains(command, "--drain") {
		return true
	}
	api := r.here.Replace("http://127.0.0.1:8080/v1/")
	get := func(path string, answer any) bool {
		response, err := http.Get(api + path)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusConflict ||
			json.NewDecoder(response.Body).Decode(answer) == nil
	}
	var all struct {
		Policies []struct{ Policy struct{ Name string } }
	}
	if !get("policies", &all) {
		return false
	}
	for _, p := range all.Policies {
		var buckets struct{ Unanswered []int }
		if !get("buckets/"+p.Policy.Name, &buckets) || len(buckets.Unanswered) > 0 {
			return false
		}
	}
	return true
}

type step struct {
	line          int
	command, want string
}

func (r *reader) follow(page string) {
	r.t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		r.t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	commands := 0
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "```") {
			continue
		}
		begin := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		block := lines[begin:min(i, len(lines))]
		if name := fileOf(block); name != "" {
			content := r.here.Replace(strings.Join(block, "\n") + "\n")
			if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600); err != nil {
				r.t.Fatal(err)
			}
			continue
		}
		commands += r.block(page, steps(block, begin))
	}
	if commands == 0 {
		r.t.Errorf("%s shows no command", page)
	}
}

// block runs the commands of a block, and compares the output. Commands that only read, or that get
// a Retry-After, are repeated.
func (r *reader) block(page string, all []step) int {
	later := map[string]step{}
	for _, s := range all {
		command := r.here.Replace(s.command)
		if before, background := strings.CutSuffix(command, " &"); background {
			later[r.background(before)] = s
			continue
		}
		var got string
		waittest.Eventually(func() bool {
			got = r.say(command)
			return matches(s.want, got) || !asks(command) && !strings.HasPrefix(got, "503\n")
		})
		r.compare(page, s, got)
	}
	for file, s := range later {
		var got string
		waittest.Eventually(func() bool {
			data, err := os.ReadFile(file)
			if err != nil {
				r.t.Fatal(err)
			}
			got = string(data)
			return matches(s.want, got)
		})
		r.compare(page, s, got)
	}
	return len(all)
}

// fileOf returns the name of the file that a block shows; empty: the block has commands. A comment
// in the first line has the name, or in the second one below "#!".
func fileOf(block []string) string {
	if len(block) > 1 && strings.HasPrefix(block[0], "#!") {
		block = block[1:]
	}
	first := strings.Join(block[:min(1, len(block))], "")
	if name, is := strings.CutPrefix(strings.TrimLeft(first, "#/ "), "file: "); is {
		return name
	}
	return ""
}

func asks(command string) bool {
	return looks.MatchString(command) || strings.HasPrefix(command, "curl ") &&
		!strings.Contains(command, " -X ") && !strings.Contains(command, " -d ")
}

func (r *reader) compare(page string, s step, got string) {
	r.t.Helper()
	if !matches(s.want, got) {
		r.t.Errorf("%s:%d: $ %s\nprints\n%s\nand not\n%s", page, s.line, s.command, got, s.want)
	}
}

// steps reads the commands of a block: lines that begin with "$ ", and continue within quotes or
// after a backslash.
func steps(block []string, line int) (all []step) {
	for i := 0; i < len(block); i++ {
		command, begins := strings.CutPrefix(block[i], "$ ")
		if !begins {
			if len(all) > 0 {
				all[len(all)-1].want += block[i] + "\n"
			}
			continue
		}
		s := step{line: line + i + 1, command: command}
		for i+1 < len(block) &&
			(strings.Count(s.command, "'")%2 == 1 || strings.HasSuffix(s.command, `\`)) {
			i++
			s.command += "\n" + block[i]
		}
		all = append(all, s)
	}
	return all
}

var (
	number = regexp.MustCompile(`-?[0-9]+(\.[0-9]+)?`)
	blank  = regexp.MustCompile(`\s+`)
	field  = regexp.MustCompile(`^[A-Z][A-Za-z-]*: `)
	looks  = regexp.MustCompile(
		`^penstock (why|job|buckets|drainers|(policies|dead|schedules) (ls|show))`)
)

func plain(s string) string { return number.ReplaceAllString(blank.ReplaceAllString(s, ""), "0") }

// matches compares a page with the output. The page may omit header fields of an answer.
func matches(want, got string) bool {
	wantFields, want := fields(want)
	gotFields, got := fields(got)
	for _, line := range wantFields {
		found := false
		for _, other := range gotFields {
			found = found || plain(line) == plain(other)
		}
		if !found {
			return false
		}
	}
	parts := strings.Split(plain(want), "…")
	rest, begins := strings.CutPrefix(plain(got), parts[0])
	if !begins {
		return false
	}
	for i, part := range parts[1:] {
		if i == len(parts)-2 {
			return strings.HasSuffix(rest, part)
		}
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return rest == ""
}

func fields(answer string) (header []string, rest string) {
	for line := range strings.Lines(answer) {
		if field.MatchString(line) {
			header = append(header, line)
		} else {
			rest += line
		}
	}
	return header, rest
}

func TestExamplesOfPagesRun(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"guide.md", "operate.md", "troubleshoot.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			newReader(t).follow(page)
		})
	}
}

// TestSimulating follows docs/tools.md, which draws a simulation. With -pictures it updates the
// page's pictures.
func TestSimulating(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	r.follow("tools.md")
	for name, from := range map[string]struct {
		page string
		nth  int
	}{"starts": {"report.html", 0}, "waits": {"report.html", 3}, "advice": {"a.html", 0}} {
		text, err := os.ReadFile(filepath.Join(r.dir, from.page))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("<canvas")); n <= from.nth {
			t.Fatalf("%s has %d pictures", from.page, n)
		}
		if *pictures == "" {
			continue
		}
		picture := canvas(t, text, from.nth)
		file := filepath.Join(*pictures, name+".png")
		if err := os.WriteFile(file, picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func canvas(t *testing.T, report []byte, nth int) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	report = fmt.Appendf(report, `<script>
		const c = canvases[%d], ink = c.getContext("2d");
		ink.globalCompositeOperation = "destination-over";
		ink.fillStyle = "#fff";
		ink.fillRect(0, 0, c.width, c.height);
		document.documentElement.textContent = c.toDataURL();
	</script>`, nth)
	if err := os.WriteFile(file, report, 0o600); err != nil {
		t.Fatal(err)
	}
	dom, err := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox",
		"--disable-gpu", "--disable-dev-shm-usage", "--window-size=1000,800",
		"--force-device-scale-factor=1.5", "--user-data-dir="+t.TempDir(), "--dump-dom",
		"file://"+file).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, data, _ := strings.Cut(string(dom), "base64,")
	data, _, _ = strings.Cut(data, "<")
	picture, err := base64.StdEncoding.DecodeString(strings.TrimSpace(data))
	if err != nil || len(picture) == 0 {
		t.Fatalf("no picture in %.200q: %v", dom, err)
	}
	return picture
}
