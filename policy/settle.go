package policy

import (
	"maps"
	"slices"
	"strings"
)

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
