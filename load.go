package penstock

import (
	"fmt"
	"os"

	"github.com/penstock-mq/penstock/internal/policyfile"
	"github.com/penstock-mq/penstock/internal/strict"
	"github.com/penstock-mq/penstock/policy"
)

// LoadPolicies reads the list `policies` of a YAML file, which may be a configuration file of
// the Penstock programs; other settings are ignored. The error joins all problems, each with its
// place: `penstock.yaml:7: policies[2].outflow: "10/x": …`.
func LoadPolicies(name string) ([]policy.Policy, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the policies: %w", err)
	}
	defer file.Close()
	f, err := strict.Read(file)
	if err != nil {
		return nil, err
	}
	f.Require(policyfile.Policies)
	return policyfile.Read(f, nil), f.Err()
}
