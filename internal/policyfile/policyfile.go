// Package policyfile reads the policies of a file, and the limits that they share.
package policyfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/internal/nearest"
	"github.com/penstock-mq/penstock/internal/strict"
	"github.com/penstock-mq/penstock/policy"
)

// The fields of a file that [Read] reads.
const (
	Policies     = "policies"
	SharedLimits = "shared_limits"
)

// Read reads the policies of a file, each as it is written: a default is not what the file says,
// and may be another in the next version, which must not take the file for changed. Shared limits
// stand where policies name them. check reports what is wrong with a policy, its defaults filled
// in, beyond what [policy.Policy.Validate] finds; nil: nothing.
func Read(f *strict.File, check func(policy.Policy) []policy.Problem) []policy.Policy {
	var policies []policy.Policy
	f.Field(Policies, &policies)
	shared := sharedLimits(f)
	first := map[string]int{}
	for i := range policies {
		p, at := &policies[i], fmt.Sprintf("%s[%d]", Policies, i)
		if putShared(f, at, p.Limits, shared) {
			full := p.WithDefaults()
			problems := full.Validate()
			if len(problems) == 0 && check != nil {
				problems = check(full)
			}
			add(f, at, problems)
		}
		if before, ok := first[p.Name]; ok && p.Name != "" {
			f.Add(at+".name", "%q is the name of policies[%d] already", p.Name, before)
		} else {
			first[p.Name] = i
		}
	}
	if len(policies) == 0 {
		return nil
	}
	return policies
}

func add(f *strict.File, at string, problems []policy.Problem) {
	for _, p := range problems {
		f.Add(strings.TrimSuffix(at+"."+p.Field, "."), "%s", p.Reason)
	}
}

// sharedLimits reads the limits that policies share, by name, as a policy has them. Bad ones are
// among them, so that each is reported once.
func sharedLimits(f *strict.File) map[string]policy.Limit {
	var list []policy.Limit
	f.Field(SharedLimits, &list)
	limits := map[string]policy.Limit{}
	for i, l := range list {
		at := fmt.Sprintf("%s[%d]", SharedLimits, i)
		problems := l.CheckAsShared()
		add(f, at, problems)
		if _, twice := limits[l.Name]; twice && l.Name != "" {
			f.Add(at+".name", "%q is the name of another one already", l.Name)
		}
		if len(problems) > 0 { // a good one stands in for it
			l = policy.Limit{Name: l.Name, Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 1,
				Window: policy.Duration(1e9)}}
		}
		l.Name, l.Shared = "", l.Name
		limits[l.Shared] = l
	}
	return limits
}

// putShared puts shared limits where a policy names them, and reports whether it could.
func putShared(f *strict.File, at string, limits policy.Limits,
	shared map[string]policy.Limit) bool {

	good := true
	for i, l := range limits {
		at := fmt.Sprintf("%s.limits[%d]", at, i)
		said, known := shared[l.Shared]
		switch {
		case l.Shared == "":
			continue
		case !known:
			f.Add(at+".shared", "%q is not among the %s of this file%s", l.Shared, SharedLimits,
				nearest.Hint(l.Shared, slices.Sorted(maps.Keys(shared))))
		case l != policy.Limit{Shared: l.Shared}:
			f.Add(at, "stands alone: what the limit is, its entry under %s says", SharedLimits)
		default:
			limits[i] = said
			continue
		}
		good = false
	}
	return good
}
