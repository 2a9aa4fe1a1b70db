package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/policy"
)

func TestAnswerRulesThatMakeNoSenseAreRefused(t *testing.T) {
	const paths = "want names, * or ** separated by single dots"
	for _, c := range [][2]string{
		{`"means": "throttled"`,
			": requires a status or a place: header, json or body"},
		{`"status": [99], "means": "done"`,
			".status: must be 200 to 599, not 99"},
		{`"status": [403]`,
			`.means: "": want throttled, retry, permanent or done`},
		{`"status": [403], "means": "wait"`,
			`.means: "wait": want throttled, retry, permanent or done`},
		{`"status": [403], "means": "done", "values": ["x"]`,
			".values: requires a place: header, json or body"},
		{`"means": "done", "body": true`,
			".values: is required with body"},
		{`"means": "done", "body": true, "json": "x", "values": ["y"]`,
			".body: cannot be combined with header " +
				"or json"},
		{`"means": "done", "header": "a b"`,
			`.header: "a b" is not a header name`},
		{`"means": "done", "json": "a..b"`,
			`.json: "a..b": ` + paths},
		{`"means": "done", "json": "**.a.**"`,
			`.json: "**.a.**": must not have ** twice`},
		{`"means": "done", "json": "a", "values": [""]`,
			".values: must have 1 to 256 bytes"},
		{`"means": "done", "json": "a", "wait": {"default": "1m"}`,
			".wait: applies only to answers that " +
				"mean throttled or retry"},
		{`"means": "retry", "json": "a", "wait": {"unit": "ms"}`,
			".wait.unit: requires a place: header, " +
				"json or body"},
		{`"means": "retry", "json": "a", "wait": {"json": "a", "unit": "y"}`,
			`.wait.unit: "y": want ms, s, ` +
				`m, h or /s`},
		{`"means": "retry", "json": "a", "wait": {"need": "a"}`,
			".wait: requires all of need, have and rate, " +
				"or none"},
		{`"means": "retry", "json": "a", "wait": {"need": "a", "have": "b", "rate": "c", "json": "d"}`,
			".wait: cannot combine need, have and rate with another place"},
		{`"means": "retry", "json": "a", "wait": {"need": "a", "have": "b", "rate": "c."}`,
			`.wait.rate: "c.": ` + paths},
		{`"means": "throttled", "json": "error.*", "values": ["x*"], "wait": {"header": "X", "unit": "/s"}`,
			""},
	} {
		text, want := c[0], c[1]
		var r policy.AnswerRule
		if err := json.Unmarshal([]byte("{"+text+"}"), &r); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := ""
		policy.CheckAnswers("", []policy.AnswerRule{r}, func(field, format string, args ...any) {
			got += strings.TrimPrefix(field, "answers[0]") + ": " + fmt.Sprintf(format, args...)
		})
		if got != want {
			t.Errorf("%s\n%s, want\n%s", text, got, want)
		}
	}
	got := ""
	policy.CheckAnswers("githob", nil, func(field, format string, args ...any) {
		got = field + ": " + fmt.Sprintf(format, args...)
	})
	if !strings.HasPrefix(got, `like: "githob": want airtable, `) ||
		!strings.HasSuffix(got, `did you mean github?`) {
		t.Error(got)
	}
}
