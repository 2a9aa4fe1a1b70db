// Package answers says what a target's answer means: the work is done, the target throttles, the
// attempt failed, or no attempt can succeed. Status and headers tell it of most answers, rules of
// the rest: those of a target first, then those of its API, which its host or a name tells.
package answers

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/base/hints"
	"github.com/penstock-mq/penstock/policy"
)

type (
	Means = policy.AnswerMeans
	Rule  = policy.AnswerRule
	Place = policy.AnswerPlace
	Wait  = policy.AnswerWait
)

const (
	Throttled = policy.MeansThrottled
	Retry     = policy.MeansRetry
	Permanent = policy.MeansPermanent
	Done      = policy.MeansDone
)

// MostRead bounds the part of a body that rules read.
const MostRead = 64 << 10

// Set has the rules of a target. The zero value judges by status and headers alone.
type Set struct {
	own []Rule
	api *api
	// Silent ignores the headers of a used-up quota.
	Silent bool
}

// For returns the rules of a target: its own, and those of the API that it is like, or of its host.
// Both must have passed [policy.CheckAnswers].
func For(own []Rule, like, host string) Set {
	s := Set{own: own, api: named[like]}
	if like == "" {
		s.api = ofHost(host)
	}
	return s
}

// API returns the name of the API whose rules the set has; empty: none.
func (s Set) API() string {
	if s.api == nil {
		return ""
	}
	return s.api.Name
}

// Verdict says what an answer means.
type Verdict struct {
	Means Means
	// Wait is the time until the request may be repeated, of Throttled and Retry; 0: unknown.
	Wait time.Duration
	// Left is the time for which a quota is used up, for any meaning.
	Left time.Duration
	// Doubtful is a throttle that the status does not tell, so it may be the request's own fault.
	Doubtful bool

	Rule string // that decided, such as github[0] or answers[1]; empty: status and headers
	By   *Rule  // the same
	From string // what names Wait
}

// Pause is the time for which the target takes no other requests: a server that fails with a time
// names it for all.
func (v Verdict) Pause(status int) time.Duration {
	if v.Means == Retry && status >= http.StatusInternalServerError {
		return max(v.Left, v.Wait)
	}
	return v.Left
}

// Reads reports whether a rule reads the body of answers with a status.
func (s Set) Reads(status int) bool {
	reads := func(r Rule) bool { return isFor(r, status) && readsBody(r) }
	return slices.ContainsFunc(s.own, reads) ||
		s.api != nil && slices.ContainsFunc(s.api.Rules, reads)
}

// Judge returns what an answer means. Of the body it reads at most [MostRead]; JSON that is longer
// matches no rule.
func (s Set) Judge(status int, header http.Header, body []byte, now time.Time) (v Verdict) {
	now = hints.Clock(header, now)
	a := &answer{header: header, body: body[:min(len(body), MostRead)]}
	if !s.Silent {
		v.Left = hints.Pause(header, now)
	}
	if i := a.first(s.own, status); i >= 0 {
		v.By, v.Rule = &s.own[i], "answers["+strconv.Itoa(i)+"]"
	} else if s.api != nil {
		if i := a.first(s.api.Rules, status); i >= 0 {
			v.By, v.Rule = &s.api.Rules[i], s.api.Name+"["+strconv.Itoa(i)+"]"
		}
	}
	by := v.By
	asked, named := hints.Asked(header, now)
	if by != nil {
		v.Means = by.Means
	} else {
		v.Means = usual(status, named, v.Left)
	}
	if v.Means != Throttled && v.Means != Retry {
		return v
	}
	v.Doubtful = v.Means == Throttled && status != http.StatusTooManyRequests &&
		status != http.StatusServiceUnavailable
	if by != nil {
		if v.Wait, v.From = a.wait(by.Wait, now); v.From != "" {
			return v
		}
	}
	switch reset := hints.Resets(header, now); {
	case named:
		v.Wait, v.From = asked, "Retry-After"
	case v.Means == Throttled && v.Left > 0:
		v.Wait, v.From = v.Left, "its rate-limit headers"
	case v.Means == Throttled && reset > 0 && !s.Silent:
		v.Wait, v.From = reset, "its rate-limit headers"
	case by != nil && by.Wait.Default > 0:
		v.Wait, v.From = time.Duration(by.Wait.Default), "the rule's default"
	}
	return v
}

// Gateways reports whether an answer with a status may be an intermediary's, so that the request
// may still be on its way to the target. 499 is nginx's, 520 to 529 are Cloudflare's.
func Gateways(status int) bool {
	switch status {
	case http.StatusRequestTimeout, 499, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	}
	return status >= 520 && status <= 529
}

// usual is the meaning of answers without a rule; see docs/guide.md, "Targets".
func usual(status int, asks bool, left time.Duration) Means {
	switch {
	case status >= 200 && status < 300:
		return Done
	case status == http.StatusTooManyRequests, status >= 400 && asks,
		status == http.StatusForbidden && left > 0: // GitHub's, when a quota is used up
		return Throttled
	case status >= 500, status == http.StatusRequestTimeout:
		return Retry
	}
	return Permanent
}

func (a *answer) first(rules []Rule, status int) int {
	return slices.IndexFunc(rules, func(r Rule) bool { return isFor(r, status) && a.has(r) })
}

func (a *answer) has(r Rule) bool {
	if r.AnswerPlace == (Place{}) {
		return true
	}
	for text := range a.values(r.AnswerPlace) {
		text = strings.ToLower(text)
		if len(r.Values) == 0 ||
			slices.ContainsFunc(r.Values, func(p string) bool { return like(text, p) }) {
			return true
		}
	}
	return false
}

// wait returns the time at a place, and its description; "": there is none.
func (a *answer) wait(w Wait, now time.Time) (after time.Duration, from string) {
	if w.Rate != "" {
		need, ok := a.number(w.Need)
		have, also := a.number(w.Have)
		rate, and := a.number(w.Rate)
		if !ok || !also || !and || rate <= 0 {
			return 0, ""
		}
		return hints.Seconds(max(0, need-have) / rate),
			"(" + w.Need + " − " + w.Have + ") ÷ " + w.Rate
	}
	for text := range a.values(w.AnswerPlace) {
		if this, found := read(w, text, now); found {
			after, from = max(after, this), placeName(w.AnswerPlace)
		}
	}
	return after, from
}

const perSecond = "/s"

// in seconds
var units = map[string]float64{"ms": 1e-3, "s": 1, "m": 60, "h": 3600}

func read(w Wait, text string, now time.Time) (after time.Duration, found bool) {
	if w.Unit == "" {
		return hints.InText(text, now)
	}
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !(n >= 0):
		return 0, false
	case w.Unit != perSecond:
		return hints.Seconds(n * units[w.Unit]), true
	}
	return hints.Seconds(1 / n), n > 0
}

func (a *answer) number(path string) (n float64, found bool) {
	for text := range a.values(Place{JSON: path}) {
		n, err := strconv.ParseFloat(text, 64)
		return n, err == nil
	}
	return 0, false
}

// isFor reports whether a rule is for a status.
func isFor(r Rule, status int) bool {
	if len(r.Status) == 0 {
		return status >= 300
	}
	return slices.Contains(r.Status, status)
}

// readsBody reports whether a rule reads the body, to apply or for its wait.
func readsBody(r Rule) bool {
	reads := func(p Place) bool { return p.Body || p.Header == "" && p.JSON != "" }
	return reads(r.AnswerPlace) || reads(r.Wait.AnswerPlace) || r.Wait.Rate != ""
}

func placeName(p Place) string {
	switch {
	case p.Body:
		return "its text"
	case p.JSON == "":
		return "its header " + p.Header
	case p.Header == "":
		return "its JSON at " + p.JSON
	}
	return "the JSON of its header " + p.Header + " at " + p.JSON
}

// Describe says to which answers a rule applies.
func Describe(r Rule) string {
	text := "an answer from status 300 on"
	if len(r.Status) > 0 {
		statuses := make([]string, len(r.Status))
		for i, status := range r.Status {
			statuses[i] = strconv.Itoa(status)
		}
		text = "status " + strings.Join(statuses, " or ")
	}
	switch {
	case r.AnswerPlace == (Place{}):
		return text
	case len(r.Values) == 0:
		return text + " with " + strings.TrimPrefix(placeName(r.AnswerPlace), "its ")
	}
	return text + ", and " + placeName(r.AnswerPlace) + " is " + strings.Join(r.Values, " or ")
}

// api has the rules of an API, for its hosts; those that begin with a dot are domains.
type api struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`
	Rules []Rule   `json:"rules"`
}

// file has the APIs whose status and headers alone mislead, with rules as policies have them; "see"
// says where the API's documentation, or else its code or a report, tells of them.
//
//go:embed apis.json
var file []byte

// aws has the rules of all services:
// docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html,
// github.com/boto/botocore: botocore/retries/standard.py. The code of an error is in JSON, XML or a
// header, perhaps with a namespace. An S3 error may be in a 200:
// docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
func aws() (rules []Rule) {
	throttling := []string{"Throttling", "ThrottlingException", "ThrottledException",
		"RequestThrottled", "RequestThrottledException", "TooManyRequestsException",
		"ProvisionedThroughputExceededException", "TransactionInProgressException",
		"RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "SlowDown",
		"PriorRequestNotComplete", "EC2ThrottledException"}
	wait := Wait{AnswerPlace: inHeader("X-Amz-Retry-After"), Unit: "ms"}
	for _, e := range []struct {
		means Means
		codes []string
	}{{Retry, []string{"ModelNotReadyException"}}, {Throttled, throttling}} {
		var plain, xml []string
		for _, code := range e.codes {
			plain = append(plain, code, "*#"+code, code+":*", "*#"+code+":*")
			xml = append(xml, "<*<Error>*<Code>"+code+"</Code>*", "<Error>*<Code>"+code+"</Code>*")
		}
		for _, at := range []Place{inHeader("X-Amzn-Errortype"), inJSON("__type"), inJSON("code")} {
			rules = append(rules, Rule{AnswerPlace: at, Values: plain, Means: e.means, Wait: wait})
		}
		rules = append(rules, Rule{AnswerPlace: Place{Body: true}, Values: xml, Means: e.means,
			Wait: wait})
	}
	in200 := func(code string) []string {
		const head = `<?xml version="1.0" encoding="UTF-8"?>`
		text := "<Error><Code>" + code + "</Code>*"
		return []string{text, head + text, head + "\n" + text, head + "\n\n" + text}
	}
	return append(rules,
		Rule{Status: []int{500, 502, 503, 504}, AnswerPlace: inHeader("X-Amz-Retry-After"),
			Means: Retry, Wait: wait},
		Rule{Status: []int{200}, AnswerPlace: Place{Body: true}, Values: in200("SlowDown"),
			Means: Throttled},
		Rule{Status: []int{200}, AnswerPlace: Place{Body: true}, Values: in200("InternalError"),
			Means: Retry})
}

func inHeader(name string) Place { return Place{Header: name} }

func inJSON(path string) Place { return Place{JSON: path} }

var apis, named, byHost = index()

func index() (apis []api, named, byHost map[string]*api) {
	if err := json.Unmarshal(file, &apis); err != nil {
		panic(err)
	}
	apis = append(apis, api{"aws",
		[]string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws"}, aws()})
	named, byHost = map[string]*api{}, map[string]*api{}
	for i := range apis {
		a := &apis[i]
		named[a.Name] = a
		for _, host := range a.Hosts {
			byHost[host] = a
		}
	}
	return apis, named, byHost
}

// ofHost returns the API of a host, or nil. The longest domain counts.
func ofHost(host string) *api {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if a := byHost[host]; a != nil {
		return a
	}
	for i, c := range host {
		if a := byHost[host[i:]]; c == '.' && a != nil {
			return a
		}
	}
	return nil
}
