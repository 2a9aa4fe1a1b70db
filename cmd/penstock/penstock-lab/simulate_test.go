package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var drawn = regexp.MustCompile(`<canvas [^>]*style="display: block`)

func charts(t *testing.T, page string) int {
	t.Helper()
	dom, err := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox",
		"--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), "--dump-dom",
		"file://"+page).Output()
	if err != nil {
		t.Fatal(err)
	}
	return len(drawn.FindAll(dom, -1))
}

const fiveAtOnce = "time,key\n1893456000,a\n1893456000,a\n1893456000,a\n1893456000,a\n" +
	"1893456000,a\nyesterday,a\n"

func TestATraceIsPlayed(t *testing.T) {
	i := program(t)
	now := written(t, "now.yaml", `http: {listen: "127.0.0.1:0"}
policies:
  - {name: mail, algorithm: leaking_bucket, outflow: 2/s, capacity: 3}
  - {name: signup, algorithm: fixed_window, limit: 2, window: 1d}
`)
	then := written(t, "then.yaml",
		"policies: [{name: mail, algorithm: leaking_bucket, outflow: 1/s, capacity: 2}]\n")
	csv := written(t, "trace.csv", fiveAtOnce)
	i.Says(0, []string{"simulate", "--config", now, "--trace", csv},
		"5 requests of", "1 line skipped", `trace.csv:7: time "yesterday": want one such as`,
		"POLICY  REQUESTS  REFUSED         STALE  WAIT P50  P99   MAX   DEPTH  WORST 1s\n"+
			"mail    5         1        20.0%  0      500ms     1.5s  1.5s  3      2\n"+
			"signup  5         3        60.0%  0      0s        0s    0s    0      2\n")
	page := filepath.Join(t.TempDir(), "report.html")
	i.Says(0, []string{"simulate", "--config", now, "--config", then, "--trace", csv, "--policy",
		"mail", "--keys", "3", "--window", "1m", "--html", page}, "WORST 1m", "now: 1 key", "then")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<title>Simulation — Penstock</title>", "<td>20.0%",
		"The longest wait", "</html>"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if n := charts(t, page); n != 4 || strings.Contains(string(text), "<script src") {
		t.Errorf("the report has %d charts, want 4, and nothing from elsewhere", n)
	}

	var answer struct {
		Trace struct {
			Requests, Skipped int
			Problems          []struct{ Line int }
		}
		Results []struct {
			Policy, Config string
			Refusals       map[string]int
			Wait           map[string]float64
			Keys           []struct{ Key string }
		}
	}
	i.Document(0, &answer, "simulate", "--config", then, "--trace", csv, "--keys=1")
	if r := answer.Results[0]; answer.Trace.Skipped != 1 || answer.Trace.Problems[0].Line != 7 ||
		r.Config != then || r.Refusals["capacity"] != 2 || r.Wait["max_ms"] != 2000 ||
		r.Keys[0].Key != "a" {
		t.Errorf("the answer is %+v", answer)
	}
}

func TestABadTraceIsAnError(t *testing.T) {
	i := program(t)
	config := written(t, "now.yaml",
		"policies: [{name: mail, algorithm: leaking_bucket, outflow: 2/s, capacity: 3}]\n")
	csv := written(t, "trace.csv", fiveAtOnce)
	i.Says(2, []string{"simulate", "--config", config}, "want --trace FILE")
	i.Says(2, []string{"simulate", "--trace", csv}, "want --config FILE")
	i.Says(2, []string{"simulate", "--config", config, "--trace", config + "x"}, "no such file")
	i.Says(2, []string{"simulate", "--config", config, "--trace", "-"}, "-: no requests")
	i.Says(2, []string{"simulate", "--config", config, "--trace", csv, "--format", "xml"},
		`format "xml": want one of`)
	other := written(t, "other.ndjson", `{"time":1893456000,"tenant":"a"}`)
	i.Says(2, []string{"simulate", "--config", config, "--trace", other, "--key", "user"},
		"no line has the key user", "one of tenant")
	i.Says(0, []string{"simulate", "--config", config, "--trace", other, "--key", ""}, "1 request")
	i.Says(2, []string{"simulate", "--config", config, "--trace", csv, "--policy", "mai"},
		`no policy "mai"`, "did you mean mail?")
	bad := written(t, "bad.yaml", "policies:\n  - {name: mail, algorithm: leaking_bucket}\n")
	i.Says(2, []string{"simulate", "--config", bad, "--trace", csv}, "bad.yaml:2: policies[0]")
	i.Says(2, []string{"simulate", "--config", csv, "--trace", csv}, "trace.csv")
	for _, flag := range []string{"--keys=-1", "--workers=-1", "--duration=-1s", "--deadline=-1s",
		"--window=-1s"} {
		i.Says(2, []string{"simulate", "--config", config, "--trace", csv, flag},
			"must not be negative")
	}
	none := written(t, "none.yaml", "http: {}\n")
	i.Says(2, []string{"simulate", "--config", none, "--trace", csv}, "policies: is missing")
}

// manyBursts is ten minutes of a request per second, and bursts of ten, the last one larger.
func manyBursts() string {
	var b strings.Builder
	for s := range 600 {
		n := 1
		switch {
		case s%60 == 30:
			n = 10
		case s == 595:
			n = 14
		}
		b.WriteString(strings.Repeat(fmt.Sprintf("%d,a\n", 1893456000+s), n))
	}
	return b.String()
}

func TestAdviceMeetsItsGoals(t *testing.T) {
	i := program(t)
	csv := written(t, "trace.csv", manyBursts())
	page := filepath.Join(t.TempDir(), "advice.html")
	goal := "refused <= 0.1%, wait p99 <= 20s, outflow <= 4/s"
	out := i.Run(0, "advise", "--trace", csv, "--goal", goal, "--policy", "api", "--html", page)
	for _, want := range []string{"policies played", ">  leaking_bucket", "\npolicies:\n",
		"- name: api\n", "algorithm: leaking_bucket\n", "sliding_log", "count_from: answer\n",
		"At the target no window of 1s has more than 2 requests. The price is the time until the " +
			"answer: give its mean with --duration, such as 110ms."} {
		if !strings.Contains(out, want) {
			t.Errorf("it says\n%s\nwant %q in it", out, want)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || charts(t, page) != 2 ||
		!strings.Contains(string(text), "algorithm: leaking_bucket") {
		t.Errorf("the page has %d bytes, %v", len(text), err)
	}
	_, advised, _ := strings.Cut(out, "\npolicies:\n")
	config := written(t, "advised.yaml", "policies:\n"+advised)
	i.Says(0, []string{"simulate", "--config", config, "--trace", csv}, "703", " 0%")

	var answer struct {
		Meets  bool
		Chosen int
		Tried  []struct {
			Policy  struct{ Name, Algorithm string }
			Refused int
		}
	}
	i.Document(0, &answer, "advise", "--trace", csv, "--goal", goal)
	if c := answer.Tried[answer.Chosen]; !answer.Meets || c.Policy.Name != "advised" ||
		c.Refused != 0 {
		t.Errorf("the answer is %+v", answer)
	}
	i.Says(3, []string{"advise", "--trace", csv, "--goal",
		"refused <= 0.1%, wait max <= 10s, outflow <= 3/m"},
		"no tried policy meets the goals")
	i.Says(0, []string{"advise", "--trace", csv, "--goal", goal, "--duration", "110ms"},
		"with 110ms, 1.8/s start in the long run, and not 2/s.")
	i.Says(0, []string{"advise", "--trace", csv, "--goal", goal, "--duration", "3s"},
		"It counts starts", "A limit of 4 in 1s that counts from the answer", "at 1/s")
	i.Says(0, []string{"advise", "--trace", csv, "--goal", "refused <= 0.1%"}, "burst 25")
	i.Says(2, []string{"advise", "--trace", csv, "--goal", "speed <= 3"}, `goal "speed <= 3"`)
	i.Says(2, []string{"advise", "--goal", goal}, "want --trace FILE")
}
