package outbound

import (
	"fmt"
	"maps"
	"slices"

	"github.com/penstock-mq/penstock/internal/base/clienttls"
	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/policy"
)

// Kinds of faults.
const (
	FaultPolicy = "policy" // it does not exist, or cannot pace calls: requests get 502
	FaultCost   = "cost"   // no limit of the policy counts it
	FaultTLS    = "tls"    // its files cannot be read: requests get 502
)

// Fault is a mistake of a route that only the policies or the files of its TLS reveal. Both may
// come after the route.
type Fault struct {
	Route  string // its host, prefix and path
	Policy string
	Kind   string
	Field  string // of the route
	Reason string
}

// Faults compares routes with the known policies, and reads their files.
func Faults(routes []Route, known policy.Entries) (faults []Fault) {
	for _, r := range routes {
		faults = append(faults, r.faults(known)...)
	}
	return faults
}

// Faults compares the routes in force with the known policies, and reads their files.
func (p *Proxy) Faults(known policy.Entries) (faults []Fault) {
	for _, r := range *p.routes.Load() {
		faults = append(faults, r.faults(known)...)
	}
	return faults
}

func (r Route) faults(known policy.Entries) (faults []Fault) {
	add := func(kind, field, format string, args ...any) {
		faults = append(faults, Fault{r.Host + r.Prefix + r.Path + "/", r.Policy, kind, field,
			fmt.Sprintf(format, args...)})
	}
	if _, err := clienttls.Files(r.TLS).Config(); err != nil {
		add(FaultTLS, "tls", "requests get 502 until its files can be read: %v", err)
	}
	entry := known[r.Policy]
	switch {
	case entry == nil:
		add(FaultPolicy, "policy", "requests get 502 until there is a policy %q%s", r.Policy,
			nearest.Hint(r.Policy, slices.Sorted(maps.Keys(known))))
		return faults
	case !entry.Policy.Paced():
		add(FaultPolicy, "policy", "requests get 502, because policy %q cannot pace calls: want a "+
			"leaking bucket with a queue", r.Policy)
		return faults
	}
	var costs []string
	for _, l := range entry.Policy.Limits {
		costs = append(costs, l.Cost)
	}
	counted := func(field, cost string) {
		if !slices.Contains(costs, cost) {
			add(FaultCost, field, "no limit of policy %s has the cost %q, so it limits nothing%s",
				r.Policy, cost, nearest.Hint(cost, costs))
		}
	}
	if r.Tokens != "" {
		counted("tokens", r.Tokens)
	}
	for _, cost := range slices.Sorted(maps.Keys(r.CostFromResponse)) {
		counted("cost_from_response."+cost, cost)
	}
	return faults
}
