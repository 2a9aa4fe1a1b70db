package answers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

func at(path string) Place { return Place{JSON: path} }

func field(name string) Place { return Place{Header: name} }

func TestAnswersWithoutARule(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
		silent bool
		want   string
	}{
		{200, "", false, "done"}, {204, "Retry-After: 3", false, "done"},
		{200, "RateLimit-Remaining: 0\nRateLimit-Reset: 5", false, "done 5s"},
		{200, "RateLimit-Remaining: 0\nRateLimit-Reset: 5", true, "done"},
		{302, "Retry-After: 3", false, "permanent"}, {101, "", false, "permanent"},
		{400, "", false, "permanent"}, {408, "", false, "retry"},
		{429, "", false, "throttled"}, {429, "Retry-After: 7", false, "throttled 7s"},
		{429, "Retry-After: 3\nRateLimit-Remaining: 0\nRateLimit-Reset: 5", false, "throttled 3s"},
		{429, "RateLimit-Remaining: 0\nRateLimit-Reset: 5", false, "throttled 5s"},
		{429, "RateLimit-Remaining: 0\nRateLimit-Reset: 5", true, "throttled"},
		{429, "RateLimit-Reset: 5", false, "throttled 5s"},
		{429, "RateLimit-Remaining: 9\nRateLimit-Reset: 5", false, "throttled"},
		{403, "", false, "permanent"}, {403, "Retry-After: 2", true, "throttled 2s, doubtful"},
		{403, "RateLimit-Remaining: 0\nRateLimit-Reset: 5", false, "throttled 5s, doubtful"},
		{403, "RateLimit-Remaining: 0\nRateLimit-Reset: 5", true, "permanent"},
		{400, "RateLimit-Remaining: 0\nRateLimit-Reset: 5", false, "permanent 5s"},
		{500, "", false, "retry"}, {500, "Retry-After: 4", false, "throttled 4s, doubtful"},
		{503, "", false, "retry"}, {503, "Retry-After: 4", false, "throttled 4s"},
		{503, "Retry-After: soon", false, "retry"}, {599, "", false, "retry"},
	} {
		header := http.Header{}
		for line := range strings.Lines(c.header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			header.Set(name, value)
		}
		got := said(Set{Silent: c.silent}.Judge(c.status, header, nil, now))
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// A target's own rules come before its API's, and those before its status.
func TestTheFirstRuleThatAppliesDecides(t *testing.T) {
	own := []Rule{
		{Status: []int{409}, Means: Done},
		{Status: []int{403}, AnswerPlace: at("message"), Values: []string{"forbidden by *"},
			Means: Permanent},
		{Status: []int{200}, AnswerPlace: field("X-State"), Values: []string{"BUSY", "late"},
			Means: Throttled, Wait: Wait{AnswerPlace: field("X-Wait"), Unit: "m"}},
		{AnswerPlace: field("X-Broken"), Means: Retry, Wait: Wait{
			AnswerPlace: Place{Header: "X-Broken", JSON: "after"},
			Default:     policy.Duration(time.Hour)}},
		{AnswerPlace: Place{Body: true}, Values: []string{"*maintenance*"}, Means: Throttled,
			Wait: Wait{AnswerPlace: Place{Body: true}, Default: policy.Duration(time.Minute)}},
	}
	const second = `{"message": "forbidden by a secondary rate limit"}`
	for _, c := range []struct {
		status             int
		header, body, like string
		want, rule, from   string
	}{
		{409, "", "", "", "done", "answers[0]", ""},
		{403, "", second, "github", "permanent", "answers[1]", ""},
		{403, "", `{"message": "a secondary rate limit"}`, "github", "throttled 1m0s, doubtful",
			"github[0]", "the rule's default"},
		{403, "", second, "stripe", "permanent", "answers[1]", ""},
		{200, "X-State: busy", "", "", "throttled, doubtful", "answers[2]", ""},
		{200, "X-State: Late|X-Wait: 1.5", "", "", "throttled 1m30s, doubtful", "answers[2]",
			"its header X-Wait"},
		{200, "X-State: Late|X-Wait: x|Retry-After: 2", "", "", "throttled 2s, doubtful",
			"answers[2]", "Retry-After"},
		{200, "X-State: idle", "", "", "done", "", ""},
		{500, "X-State: busy", "", "", "retry", "", ""},
		{404, `X-Broken: {"after": "20s"}`, "", "", "retry 20s", "answers[3]",
			"the JSON of its header X-Broken at after"},
		{404, "X-Broken: yes", "", "", "retry 1h0m0s", "answers[3]", "the rule's default"},
		{503, "", "In maintenance. Try in 2 hours.", "", "throttled 2h0m0s", "answers[4]",
			"its text"},
		{503, "", "In Maintenance.", "", "throttled 1m0s", "answers[4]", "the rule's default"},
		{200, "", "In maintenance.", "", "done", "", ""},
	} {
		header := http.Header{}
		for field := range strings.SplitSeq(c.header, "|") {
			name, value, _ := strings.Cut(field, ": ")
			header.Set(name, value)
		}
		v := For(own, c.like, "").Judge(c.status, header, []byte(c.body), now)
		if said(v) != c.want || v.Rule != c.rule || v.From != c.from {
			t.Errorf("%+v: %s by %q from %q", c, said(v), v.Rule, v.From)
		}
	}
}

func TestAServerThatFailsWithATimePausesAll(t *testing.T) {
	rules := For([]Rule{{Status: []int{409, 503}, Means: Retry}}, "", "")
	for status, want := range map[int]time.Duration{503: 4 * time.Second, 409: 0} {
		v := rules.Judge(status, http.Header{"Retry-After": {"4"}}, nil, now)
		if v.Wait != 4*time.Second || v.Pause(status) != want {
			t.Errorf("%d: the request waits for %v, all for %v", status, v.Wait, v.Pause(status))
		}
	}
}

// A part of a document could pass for another one.
func TestLongBodiesMatchNoRuleOfJSON(t *testing.T) {
	rules := For(nil, "slack", "")
	for length, want := range map[int]Means{0: Throttled, MostRead: Done} {
		body := `{"ok": false, "error": "ratelimited", "text": "` + strings.Repeat("x", length) + `"}`
		if v := rules.Judge(200, nil, []byte(body), now); v.Means != want {
			t.Errorf("with %d more bytes: %s", length, v.Means)
		}
	}
	for _, body := range []string{`{"error": "ratelimited"`, `{"error": "ratelimited"} {}`, ``,
		`"ratelimited"`, `[{"error": "ratelimited"}]`, `{"error": {"ratelimited": 1}}`} {
		if v := rules.Judge(200, nil, []byte(body), now); v.Means != Done {
			t.Errorf("%s: %s", body, v.Means)
		}
	}
}

func TestBodiesAreReadOnlyWhereARuleAsks(t *testing.T) {
	for _, c := range []struct {
		host string
		own  []Rule
		want string
	}{
		{"api.example.com", nil, "[]"}, {"api.openai.com", nil, "[429]"},
		{"acme.myshopify.com", nil, "[200 429]"}, {"API.GitHub.com.", nil, "[200 403 429]"},
		{"api.github.com.example.com", nil, "[]"}, {"api.stripe.com", nil, "[409 429]"},
		{"myshopify.com", nil, "[]"}, {"api.linear.app", nil, "[200 400]"},
		{"", []Rule{{AnswerPlace: field("X"), Means: Done}}, "[]"},
		{"", []Rule{{Status: []int{403}, Means: Throttled, Wait: Wait{AnswerPlace: at("x")}}},
			"[403]"},
		{"", []Rule{{AnswerPlace: at("x"), Means: Done}}, "[302 400 403 409 429 500]"},
	} {
		read := []int{}
		for _, status := range []int{101, 200, 204, 302, 400, 403, 409, 429, 500} {
			if For(c.own, "", c.host).Reads(status) {
				read = append(read, status)
			}
		}
		if fmt.Sprint(read) != c.want {
			t.Errorf("%s %v: %v", c.host, c.own, read)
		}
	}
}

func TestPathsThroughJSON(t *testing.T) {
	const document = `{"a": {"b": [{"c": 1}, {"c": "two"}, {"d": true}]}, "e": null, "": 5,
		"f": {"c": {"c": 9}}, "n": 12345678901234567890}`
	for path, want := range map[string]string{
		"a.b.0.c": "[1]",
		"a.b.*.c": "[1 two]",
		"a.b.2.d": "[true]",
		"a.b.3.c": "[]",
		"a.b.-1":  "[]",
		"a":       "[]",
		"e":       "[]",
		"n":       "[12345678901234567890]",
		"x.y":     "[]",
		"a.*.*.*": "[1 true two]",
		"**.c":    "[1 9 two]",
		"f.**.c":  "[9]",
		"f.**":    "[9]",
		"**.d":    "[true]",
		"*.c.c":   "[9]",
	} {
		var got []string
		a := &answer{body: []byte(document)}
		for text := range a.values(at(path)) {
			got = append(got, text)
		}
		slices.Sort(got)
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		text, pattern string
		want          bool
	}{
		{"a", "A", true}, {"ab", "a", false}, {"ab", "a*", true}, {"ab", "*b", true},
		{"ab", "*a", false}, {"a", "a*a", false}, {"aa", "a*a", true}, {"abcabc", "a*b*c", true},
		{"acb", "a*b*c", false}, {"", "*", true}, {"x", "**", true},
		{"limit: 05", "*limit: 0", false},
		{"abab", "*ab*ab*", true}, {"aba", "*ab*ba*", false},
	} {
		if like(c.text, c.pattern) != c.want {
			t.Errorf("%q like %q: %v", c.text, c.pattern, !c.want)
		}
	}
}

func TestTheRulesOfAPIsAreSound(t *testing.T) {
	var names []string
	for _, a := range apis {
		names = append(names, a.Name)
		policy.CheckAnswers(a.Name, a.Rules, func(field, format string, args ...any) {
			t.Errorf("%s: %s: "+format, append([]any{a.Name, field}, args...)...)
		})
	}
	if slices.Sort(names); !slices.Equal(names, policy.AnswerAPIs) {
		t.Errorf("policies may name %q, and there are %q", policy.AnswerAPIs, names)
	}
}

// A target's answer is not to be trusted.
func FuzzJudge(f *testing.F) {
	for _, api := range policy.AnswerAPIs {
		f.Add(api, 200, "X-Sentry-Rate-Limits", "0::", `{"errors":[{"extensions":{"code":"x"}}]}`)
	}
	f.Add("shopify", 200, "Date", "x", `{"errors":[{"extensions":{"code":"THROTTLED"}}],"extensions":
		{"cost":{"requestedQueryCost":1e999,"throttleStatus":{"currentlyAvailable":"NaN",
		"restoreRate":1e-300}}}}`)
	f.Add("discord", 429, "Retry-After", "9e9", `{"retry_after":"Inf"}`)
	f.Fuzz(func(t *testing.T, api string, status int, name, value, body string) {
		rules := For(nil, api, "")
		v := rules.Judge(status, http.Header{http.CanonicalHeaderKey(name): {value}}, []byte(body),
			now)
		if v.Wait < 0 || v.Left < 0 || v.Means == "" ||
			v.Wait > 0 && v.Means != Throttled && v.Means != Retry {
			t.Fatalf("%+v", v)
		}
	})
}

func TestGatewaysAnswersAreKnownByTheirStatus(t *testing.T) {
	var got []int
	for status := 100; status < 1000; status++ {
		if Gateways(status) {
			got = append(got, status)
		}
	}
	want := []int{408, 499, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 527, 528, 529}
	if !slices.Equal(got, want) {
		t.Errorf("gateways' statuses are %v, want %v", got, want)
	}
}
