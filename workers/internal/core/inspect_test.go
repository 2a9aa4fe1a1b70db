package core

import (
	"github.com/penstock-mq/penstock/policy"
)

// total is a policy whose keys share one rate.
func total(rate string) policy.Policy {
	p := leaky("mail", rate)
	p.OutflowTotal, p.Outflow = p.Outflow, p.OutflowTotal
	return p
}
