package policy

import (
	"maps"
	"slices"
	"strings"
)

// CostFromResponse maps names of costs to the places in answers that report them.
type CostFromResponse map[string]ResponseCost

// ResponseCost is a header of the answer, or a number in its JSON body by its dotted path.
type ResponseCost struct {
	Header string `json:"header,omitempty"` // of the answer
	JSON   string `json:"json,omitempty"`   // such as usage.total_tokens
}

// check requires one place per cost, and a limit that counts it.
func (s CostFromResponse) check(c *checker, limits Limits) {
	for _, cost := range slices.Sorted(maps.Keys(s)) {
		from, field := s[cost], "target.http.cost_from_response."+cost
		if !slices.ContainsFunc(limits, func(l Limit) bool { return l.Cost == cost }) {
			c.add(field, "no limit on starts counts a cost of this name")
			continue
		}
		names := strings.Split(from.JSON, ".")
		switch {
		case (from.Header == "") == (from.JSON == ""):
			c.add(field, "want {header: NAME} or {json: NAME.NAME}")
		case from.Header != "" && !tokenPattern.MatchString(from.Header):
			c.add(field+".header", "%s: is not a header's name", quote(from.Header))
		case from.JSON != "" && (len(from.JSON) > maxTemplate || slices.Contains(names, "")):
			c.add(field+".json", "%s: want names with single dots between them", quote(from.JSON))
		}
	}
}
