package answers

import (
	"bufio"
	"bytes"
	"net/http"
	"net/textproto"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

var length = regexp.MustCompile(`\d[\w.]*`)

// said describes a verdict as the test data do.
func said(v Verdict) string {
	wait, text := v.Wait, string(v.Means)
	if v.Means == Done || v.Means == Permanent {
		wait = v.Left
	}
	if wait > 0 {
		text += " " + wait.String()
	}
	if v.Doubtful {
		text += ", doubtful"
	}
	return text
}

func TestAnswersOfWellKnownAPIs(t *testing.T) {
	data, err := os.ReadFile("testdata/answers.txt")
	if err != nil {
		t.Fatal(err)
	}
	ruled := map[string]bool{}
	for _, block := range strings.Split(string(data), "\n== ")[1:] {
		title, block, _ := strings.Cut(block, "\n")
		in := bufio.NewReader(strings.NewReader(block + "\n\n"))
		line := func(prefix string) string {
			text, err := in.ReadString('\n')
			value, found := strings.CutPrefix(strings.TrimSuffix(text, "\n"), prefix)
			if err != nil || !found {
				t.Fatalf("%s: %q does not begin with %q", title, text, prefix)
			}
			return value
		}
		if from := line("from "); !strings.HasPrefix(from, "https://") {
			t.Errorf("%s: from %s", title, from)
		}
		host, want := line("at "), line("want ")
		status, err := strconv.Atoi(line(""))
		if err != nil {
			t.Fatalf("%s: %v", title, err)
		}
		header, err := textproto.NewReader(in).ReadMIMEHeader()
		if err != nil {
			t.Fatalf("%s: %v", title, err)
		}
		var body bytes.Buffer
		if _, err := in.WriteTo(&body); err != nil {
			t.Fatal(err)
		}
		v := For(nil, "", host).Judge(status, http.Header(header), body.Bytes(), now)
		want = length.ReplaceAllStringFunc(want, func(text string) string {
			d, err := time.ParseDuration(text)
			if err != nil {
				t.Fatalf("%s: %v", title, err)
			}
			return d.String()
		})
		if got := said(v); got != want {
			t.Errorf("%s: %s by %q and %q, want %s", title, got, v.Rule, v.From, want)
		}
		api, _, _ := strings.Cut(v.Rule, "[")
		ruled[api] = true
	}
	for _, name := range policy.AnswerAPIs {
		if !ruled[name] {
			t.Errorf("no answer is judged by a rule of %s", name)
		}
	}
}
