package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/internal/base/nearest"
)

// AnswerMeans is what an answer means.
type AnswerMeans string

const (
	// MeansThrottled pauses the bucket; the request is repeated, and no attempt counts.
	MeansThrottled AnswerMeans = "throttled"
	// MeansRetry is a failed attempt: no budget is used up.
	MeansRetry AnswerMeans = "retry"
	// MeansPermanent is a failure that time does not heal.
	MeansPermanent AnswerMeans = "permanent"
	// MeansDone is a success.
	MeansDone AnswerMeans = "done"
)

// AnswerRule says what answers mean that have a status, and a value in a place. The first rule that
// applies decides.
type AnswerRule struct {
	// Status lists the statuses; default: all from 300.
	Status []int `json:"status,omitempty"`
	AnswerPlace
	// Values lists the values, of which one is at the place, in either case; * is any text.
	// Default: any value.
	Values []string    `json:"values,omitempty"`
	Means  AnswerMeans `json:"means"`
	Wait   AnswerWait  `json:"wait,omitzero"`
}

// AnswerPlace is in an answer. With a Header and JSON, the header's value is JSON.
type AnswerPlace struct {
	Header string `json:"header,omitempty"`
	// JSON is a path such as error.errors.*.reason. A name or an index is a member, * each member,
	// ** the value and all that is in it.
	JSON string `json:"json,omitempty"`
	Body bool   `json:"body,omitempty"` // its whole text
}

// AnswerWait is the place of the time until the next request: a number, a duration, a date, or a
// sentence that has one. Without it, Retry-After and the rate-limit headers count.
type AnswerWait struct {
	AnswerPlace
	// Unit of a number: ms, s, m, h, or /s for a rate of requests. Default: seconds, or a date, by
	// its size.
	Unit string `json:"unit,omitempty"`
	// Need, Have and Rate are JSON paths of numbers: it takes (need − have) ÷ rate seconds.
	Need string `json:"need,omitempty"`
	Have string `json:"have,omitempty"`
	Rate string `json:"rate,omitempty"`
	// Default applies to answers that name no time.
	Default Duration `json:"default,omitempty"`
}

const (
	mostRules  = 64
	mostValues = 64
	mostText   = maxTemplate // bytes of a path or a value
)

// AnswerUnits are the units of a wait.
var AnswerUnits = []string{"ms", "s", "m", "h", "/s"}

// AnswerAPIs are the names of APIs with rules of their own; see internal/base/answers.
var AnswerAPIs = []string{
	"airtable", "amazon-sp", "anthropic", "atlassian", "auth0", "aws", "azure", "binance",
	"discord", "github", "google", "google-maps", "kraken", "linear", "linkedin", "mailchimp",
	"mediawiki", "meta", "monday", "netsuite", "nominatim", "notion", "openai",
	"pagerduty-events", "pypi", "quickbooks", "reddit", "salesforce", "sentry", "shopify",
	"slack", "stripe", "telegram", "x",
}

// CheckAnswers reports mistakes in a target's rules, and in the name of its API.
func CheckAnswers(like string, rules []AnswerRule,
	add func(field, format string, args ...any)) {
	if like != "" && !slices.Contains(AnswerAPIs, like) {
		add("like", "%.80q: want %s%s", like, strings.Join(AnswerAPIs, ", "),
			nearest.Hint(like, AnswerAPIs))
	}
	if len(rules) > mostRules {
		add("answers", "must have at most %d rules, not %d", mostRules, len(rules))
		return
	}
	for i := range rules {
		rules[i].check(func(field, format string, args ...any) {
			add("answers["+strconv.Itoa(i)+"]"+field, format, args...)
		})
	}
}

func (r *AnswerRule) check(add func(field, format string, args ...any)) {
	for _, status := range r.Status {
		if status < 200 || status > 599 {
			add(".status", "must be 200 to 599, not %d", status)
		}
	}
	r.AnswerPlace.check("", add)
	given := r.AnswerPlace != AnswerPlace{}
	if len(r.Values) > 0 && !given {
		add(".values", "requires a place: header, json or body")
	}
	if len(r.Values) == 0 && r.Body {
		add(".values", "is required with body")
	}
	if len(r.Status) == 0 && !given {
		add("", "requires a status or a place: header, json or body")
	}
	if len(r.Values) > mostValues {
		add(".values", "must have at most %d values, not %d", mostValues, len(r.Values))
	}
	for _, value := range r.Values {
		if value == "" || len(value) > mostText {
			add(".values", "must have 1 to %d bytes", mostText)
		}
	}
	if !slices.Contains([]AnswerMeans{MeansThrottled, MeansRetry, MeansPermanent,
		MeansDone}, r.Means) {
		add(".means", "%.80q: want throttled, retry, permanent or done", r.Means)
	}
	if r.Wait != (AnswerWait{}) && r.Means != MeansThrottled && r.Means != MeansRetry {
		add(".wait", "applies only to answers that mean throttled or retry")
	}
	r.Wait.check(add)
}

func (w *AnswerWait) check(add func(field, format string, args ...any)) {
	w.AnswerPlace.check(".wait", add)
	given := w.AnswerPlace != AnswerPlace{}
	if w.Unit != "" && !slices.Contains(AnswerUnits, w.Unit) {
		add(".wait.unit", "%.80q: want ms, s, m, h or /s", w.Unit)
	} else if w.Unit != "" && !given {
		add(".wait.unit", "requires a place: header, json or body")
	}
	switch formula := [...]string{w.Need, w.Have, w.Rate}; {
	case formula == [3]string{}:
	case slices.Contains(formula[:], ""):
		add(".wait", "requires all of need, have and rate, or none")
	case given:
		add(".wait", "cannot combine need, have and rate with another place")
	default:
		for i, field := range []string{".wait.need", ".wait.have", ".wait.rate"} {
			checkAnswerPath(field, formula[i], add)
		}
	}
	if w.Default < 0 {
		add(".wait.default", "must not be negative")
	}
}

func (p AnswerPlace) check(at string, add func(field, format string, args ...any)) {
	switch {
	case p.Body && (p.Header != "" || p.JSON != ""):
		add(at+".body", "cannot be combined with header or json")
	case p.Header != "" && !tokenPattern.MatchString(p.Header):
		add(at+".header", "%.80q is not a header name", p.Header)
	}
	if p.JSON != "" {
		checkAnswerPath(at+".json", p.JSON, add)
	}
}

func checkAnswerPath(field, path string, add func(field, format string, args ...any)) {
	steps := strings.Split(path, ".")
	if len(path) > mostText || slices.Contains(steps, "") {
		add(field, "%.80q: want names, * or ** separated by single dots", path)
	} else if i := slices.Index(steps, "**"); i >= 0 && slices.Contains(steps[i+1:], "**") {
		add(field, "%.80q: must not have ** twice", path)
	}
}

// CostFromResponse has the places of costs in an answer, by name.
type CostFromResponse map[string]ResponseCost

// ResponseCost is a header, or a dotted path to a number in a JSON body.
type ResponseCost struct {
	Header string `json:"header,omitempty"`
	JSON   string `json:"json,omitempty"` // such as usage.total_tokens
}

func (s CostFromResponse) check(c *checker, limits Limits) {
	for _, cost := range slices.Sorted(maps.Keys(s)) {
		from, field := s[cost], "target.http.cost_from_response."+cost
		if !slices.ContainsFunc(limits, func(l Limit) bool { return l.Cost == cost }) {
			c.add(field, "no limit of the policy has a cost of this name")
			continue
		}
		from.Check(func(of, format string, args ...any) { c.add(field+of, format, args...) })
	}
}

// Check calls add for each field that is wrong.
func (r ResponseCost) Check(add func(field, format string, args ...any)) {
	switch {
	case (r.Header == "") == (r.JSON == ""):
		add("", "want {header: NAME} or {json: NAME.NAME}")
	case r.Header != "" && !tokenPattern.MatchString(r.Header):
		add(".header", "%s is not a header name", quote(r.Header))
	case r.JSON != "" && (len(r.JSON) > maxTemplate ||
		slices.Contains(strings.Split(r.JSON, "."), "")):
		add(".json", "%s: want names separated by single dots", quote(r.JSON))
	}
}
