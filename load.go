package penstock

import (
	"fmt"
	"os"

	"github.com/penstock-mq/penstock/algorithms"
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

// MustRate parses a rate such as "96/s", "10/m" or "3/10s", and panics if it is not one. It is for
// rates that are written in a program.
func MustRate(text string) algorithms.Rate {
	r, err := algorithms.ParseRate(text)
	if err != nil {
		panic("penstock: " + err.Error())
	}
	return r
}
