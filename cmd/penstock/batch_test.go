package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "jobs.ndjson")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAFileOfJobsIsSubmittedAndBadLinesAreNamed(t *testing.T) {
	to := newTarget(t, 200)
	i := install(t, `
  - {name: mail, algorithm: leaking_bucket, outflow: 1000/s, capacity: 100, target: {http: {url: `+
		to.URL+`}}}
`, "--drain")
	const sent = `{"to":"<ann>",  "n":1.0}`
	file := write(t, "\ufeff"+strings.Join([]string{
		`{"key":"a","body":` + sent + `}`,
		`not json`,
		``,
		`[1]`,
		`null`,
		`{"key":7}`,
		`{"key":"a","headers":{"x":1}}`,
		`{"key":"a","colour":"red"}`,
		`{"key":"a","headers":{"Penstock-Cost":"0"}}`,
		`{"text":"hello"}`,
		`{"text":"` + strings.Repeat("x", lineBytes) + `"}`,
		`{"text":"` + strings.Repeat("y", 1<<20+1) + `"}`,
		`{"base64":"aGk="}`,
	}, "\n"))
	r := i.Feed("", "submit", "mail", "--file", file)
	if r.Status != 2 || !strings.HasPrefix(r.Out, "13 lines: 3 accepted, 9 bad, in ") {
		t.Errorf("status %d, want 2: %s%s", r.Status, r.Out, r.Err)
	}
	for _, want := range []string{
		"line 2: invalid JSON: invalid character", "line 4: want a JSON object",
		"line 5: want a JSON object", "line 6: ", "line 7: headers: want an object of strings",
		`line 8: job: cannot be read: json: unknown field "colour"`, "line 9: Penstock-Cost",
		"line 11: is longer than", "line 12: too large",
	} {
		if !strings.Contains(r.Err, want) {
			t.Errorf("stderr is\n%s\nwant %q in it", r.Err, want)
		}
	}
	waittest.Until(t, "the jobs arrive", func() bool { return len(to.got()) == 3 })
	if got := to.got(); !slices.Contains(got, sent) || !slices.Contains(got, "hello") ||
		!slices.Contains(got, "hi") {
		t.Errorf("the target got %q", got)
	}

	var totals map[string]any
	i.Document(2, &totals, "submit", "mail", "--file", file)
	if totals["accepted"] != 3.0 || totals["repeats"] != 3.0 || totals["bad"] != 9.0 ||
		totals["lines"] != 13.0 || totals["not_taken"] != 0.0 {
		t.Errorf("the second time the totals are %v", totals)
	}
	i.Document(2, &totals, "submit", "mail", "--file", file, "--run", "again")
	if totals["accepted"] != 3.0 || totals["repeats"] != 0.0 {
		t.Errorf("of another run the totals are %v", totals)
	}
}

func TestRefusedLinesAreSentAgain(t *testing.T) {
	to := newTarget(t, 200)
	i := install(t, `
  - {name: mail, algorithm: leaking_bucket, outflow: 50/s, capacity: 5, target: {http: {url: `+
		to.URL+`}}}
  - {name: stuck, algorithm: leaking_bucket, outflow: 50/s, capacity: 5}
`, "--drain")
	var lines strings.Builder
	for n := range 40 {
		fmt.Fprintf(&lines, "{\"key\":\"k%d\",\"body\":%d}\n", n%2, n)
	}
	r := i.Feed(lines.String(), "submit", "mail", "--file", "-")
	if r.Status != 0 || !strings.HasPrefix(r.Out, "40 lines: 40 accepted, in ") {
		t.Errorf("status %d: %s%s", r.Status, r.Out, r.Err)
	}
	waittest.Until(t, "the jobs arrive", func() bool { return len(to.got()) == 40 })

	r = i.Feed(lines.String(), "submit", "stuck", "--file", "-", "--wait", "1s")
	if r.Status != 3 || !strings.HasPrefix(r.Out, "40 lines: 10 accepted, 30 not taken, in ") ||
		!strings.Contains(r.Err, "run the same command again to continue") {
		t.Errorf("status %d, want 3: %s%s", r.Status, r.Out, r.Err)
	}
	i.Run(0, words("purge stuck --key k0")...)
	var totals map[string]any
	file := write(t, lines.String())
	i.Document(6, &totals, "submit", "stuck", "--file", file, "--wait", "1s")
	if totals["accepted"] != 10.0 || totals["repeats"] != 5.0 || totals["failed"] != 5.0 ||
		totals["not_taken"] != 25.0 {
		t.Errorf("after a purge, which repeats do not undo, the totals are %v", totals)
	}
	if out := i.Run(0, words("job stuck:1")...); strings.Contains(out, "key") {
		t.Errorf("a key that is not known any more is shown: %s", out)
	}
}

func TestAFileIsRefusedAsAWhole(t *testing.T) {
	i := install(t, "  - {name: mail, algorithm: leaking_bucket, outflow: 1/s, capacity: 9}\n")
	i.Says(2, words("submit mail --file /nowhere"), "no such file")
	i.Says(2, words("submit mail body --file -"), "want either BODY")
	i.Says(2, words("submit mail --file - --id x"), "--id is for a single job")
	i.Says(2, words("submit mail --run x"), "--run requires --file")
	i.Says(2, words("submit mail --file - --wait -1s"), "want 0 or more")
	i.Says(0, words("submit mail --file -"), "0 lines: 0 accepted")
	i.Says(2, []string{"submit", "--file", write(t, "{\"key\":\"a\"}\n")},
		"line 1: policy: missing")
	i.Says(4, []string{"submit", "--file",
		write(t, "{\"policy\":\"nope\"}\n{\"policy\":\"no\"}\n")},
		`line 1: unknown policy: "nope" [404]`+"\npenstock: line 2: unknown policy")
	away := at(t, "http://127.0.0.1:1")
	away.Says(7, []string{"submit", "mail", "--file", write(t, "{}\n")}, "no answer from")
}

func TestALongWaitIsSaidOnce(t *testing.T) {
	var since time.Time
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if asked++; asked == 2 || asked == 3 {
			w.WriteHeader(503)
			fmt.Fprint(w, `{"status":503,"detail":"temporarily unavailable","reason":"nats"}`)
			since = time.Now()
			return
		}
		all := time.Since(since) > stall+3*time.Second
		for i := range bytes.Count(body, []byte("\n")) {
			if all && asked > 4 || i == 0 && (asked == 1 || asked == 4) {
				fmt.Fprintln(w, `{"status":202,"verdict":"queued","job":"mail:1"}`)
			} else {
				fmt.Fprintln(w, `{"status":429,"retry_after_ms":100}`)
			}
		}
	}))
	defer server.Close()
	r := at(t, server.URL).Feed("{}\n{}\n{}\n", "submit", "mail", "--file", "-")
	const want = "penstock: temporarily unavailable (nats) [503]: retrying\n" +
		"penstock: lines are accepted again\n" +
		"penstock: no line was accepted for 5s: retrying\n" +
		"penstock: lines are accepted again\n"
	if r.Status != 0 || r.Err != want {
		t.Errorf("status %d, stderr is\n%swant\n%s", r.Status, r.Err, want)
	}
	if asked < 10 {
		t.Errorf("it asked %d times", asked)
	}
}

func TestARefusedLineIsSentAgainWhenItsRefusalSaysSo(t *testing.T) {
	const after = 300 * time.Millisecond
	var refused time.Time
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies = append(bodies, string(body))
		if len(bodies) == 2 {
			if waited := time.Since(refused); waited < after {
				t.Errorf("it waited %v, want %v", waited, after)
			}
			fmt.Fprintln(w, `{"status":202,"verdict":"queued","job":"mail:1"}`)
			return
		}
		refused = time.Now()
		fmt.Fprintf(w, `{"status":429,"retry_after_ms":%d}`, after.Milliseconds())
		fmt.Fprintln(w, `{"status":202,"verdict":"queued","job":"mail:2"}`)
	}))
	defer server.Close()
	i := at(t, server.URL)
	i.Says(0, []string{"submit", "mail", "--file", write(t, "{\"key\":\"a\"}\n{\"key\":\"b\"}\n")},
		"2 lines: 2 accepted")
	if len(bodies) != 2 || strings.Count(bodies[1], "\n") != 1 ||
		!strings.Contains(bodies[1], `"key":"a"`) {
		t.Errorf("it sent %q", bodies)
	}
}

func TestLinesOfABucketKeepTheirOrder(t *testing.T) {
	var taken []string
	asked, lines := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		full := map[string]bool{}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		in := json.NewDecoder(bytes.NewReader(body))
		for in.More() {
			var one struct {
				Key  string
				Text string
			}
			if err := in.Decode(&one); err != nil {
				t.Error(err)
			}
			lines++
			if full[one.Key] {
				fmt.Fprintln(w, `{"status":429,"retry_after_ms":1}`)
				continue
			}
			full[one.Key] = one.Key != "open"
			taken = append(taken, one.Text)
			fmt.Fprintln(w, `{"status":202,"verdict":"queued","job":"mail:1"}`)
		}
	}))
	defer server.Close()
	var file strings.Builder
	for n := range 9 {
		for _, key := range []string{"a", "b"} {
			fmt.Fprintf(&file, "{\"key\":%q,\"text\":\"%[1]s%d\"}\n", key, n)
		}
	}
	for n := range 2000 {
		fmt.Fprintf(&file, "{\"key\":\"open\",\"text\":\"open %d\"}\n", n)
	}
	i := at(t, server.URL)
	i.Says(0, []string{"submit", "mail", "--file", write(t, file.String())},
		"2018 lines: 2018 accepted")
	var a, b strings.Builder
	for _, text := range taken {
		switch text[0] {
		case 'a':
			a.WriteString(text)
		case 'b':
			b.WriteString(text)
		}
	}
	if a.String() != "a0a1a2a3a4a5a6a7a8" || b.String() != "b0b1b2b3b4b5b6b7b8" {
		t.Errorf("taken were %s and %s", a.String(), b.String())
	}
	if asked > 20 || lines > 2018+100 {
		t.Errorf("it asked %d times for %d lines", asked, lines)
	}
}
