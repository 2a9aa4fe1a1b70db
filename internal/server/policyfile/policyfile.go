// Package policyfile reads the policies of a file and their shared limits.
package policyfile

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/base/strict"
	"github.com/penstock-mq/penstock/policy"
)

// Fields of a file for [Read].
const (
	Policies     = "policies"
	SharedLimits = "shared_limits"
)

// Load reads the policies of a file, which must have a list of them.
func Load(name string) ([]policy.Policy, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the policies: %w", err)
	}
	defer file.Close()
	f, err := strict.Read(file)
	if err != nil {
		return nil, err
	}
	f.Require(Policies)
	return Read(f, nil), f.Err()
}

// Read fills in no defaults, which may differ in the next version and must not make the file look
// changed. Shared limits replace their names. check may be nil.
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
			f.Add(at+".name", "%q is already the name of policies[%d]", p.Name, before)
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

// Invalid limits are included, to report each only once.
func sharedLimits(f *strict.File) map[string]policy.Limit {
	var list []policy.Limit
	f.Field(SharedLimits, &list)
	limits := map[string]policy.Limit{}
	for i, l := range list {
		at := fmt.Sprintf("%s[%d]", SharedLimits, i)
		problems := l.CheckAsShared()
		add(f, at, problems)
		if _, twice := limits[l.Name]; twice && l.Name != "" {
			f.Add(at+".name", "%q is already the name of another shared limit", l.Name)
		}
		if len(problems) > 0 {
			sound := policy.Limit{Name: l.Name, Rule: policy.Rule{Algorithm: policy.SlidingLog,
				Limit: 1, Window: policy.Duration(1e9)}}
			if l.Arrivals() {
				sound.CountFrom = policy.CountFromAnswer
			}
			l = sound
		}
		l.Name, l.Shared = "", l.Name
		limits[l.Shared] = l
	}
	return limits
}

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
			f.Add(at, "must have only the field shared: its entry in %s defines it", SharedLimits)
		default:
			limits[i] = said
			continue
		}
		good = false
	}
	return good
}
