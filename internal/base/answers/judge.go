// Package answers says what a target's answer means: the work is done, the target throttles, the
// attempt failed, or no attempt can succeed. Status and headers tell it of most answers, rules of
// the rest: those of a target first, then those of its API, which its host or a name tells.
package answers

import (
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
