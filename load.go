package penstock

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/penstock-mq/penstock/internal/nearest"
	"github.com/penstock-mq/penstock/internal/yamlfile"
	"github.com/penstock-mq/penstock/policy"
)

// LoadPolicies reads the policies of a YAML file as it has them: the list `policies` of the file
// that the programs of Penstock read; its other settings are ignored. The error joins
// everything that is wrong, each with its place:
// `penstock.yaml:7: policies[2].outflow: "10/x": …`.
func LoadPolicies(name string) ([]policy.Policy, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the policies: %w", err)
	}
	defer file.Close()
	doc, err := yamlfile.Read(file)
	if problem, ok := errors.AsType[yamlfile.Problem](err); ok {
		return nil, yamlfile.Join(name, []yamlfile.Problem{problem})
	}
	if err != nil {
		return nil, err
	}
	policies, problems := yamlfile.Policies(doc.Tree,
		func(policy.Policy) []policy.Problem { return nil })
	problems = append(doc.Problems, problems...)
	if _, given := doc.Tree["policies"]; !given {
		problems = append(problems, missing(doc.Tree))
	}
	for i, p := range problems {
		if p.Line == 0 {
			problems[i].Line = doc.Line(p.Place)
		}
	}
	return policies, yamlfile.Join(name, problems)
}

// missing reports that there is no list of policies, or which key was probably meant to be it.
func missing(tree map[string]any) yamlfile.Problem {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if hint := nearest.Hint(key, []string{"policies"}); hint != "" {
			return yamlfile.Problem{Place: key, Reason: "unknown key" + hint}
		}
	}
	return yamlfile.Problem{Place: "policies", Reason: "is missing"}
}
