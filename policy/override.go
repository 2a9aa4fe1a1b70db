package policy

import "github.com/penstock-mq/penstock/algorithms"

// Override is what one key of a policy obeys instead of the policy's own numbers. What is nil stays the policy's.
type Override struct {
	Outflow     *algorithms.Rate `json:"outflow,omitempty"`
	Burst       *int64           `json:"burst,omitempty"`
	Concurrency *int             `json:"concurrency,omitempty"`
	Weight      *int64           `json:"weight,omitempty"` // of the key's turns under outflow_total: 1 to 1000, default 1
	Paused      bool             `json:"paused,omitempty"`
}

// IsZero reports whether the override changes nothing.
func (o Override) IsZero() bool { return o == Override{} }
