// Package api has the documents of the HTTP API as structs, and nothing else: it imports only the
// standard library, so a client links none of Penstock. The server encodes these structs, and
// openapi.yaml is generated from them: their comments are the descriptions that its readers see.
// Two documents need more, and embed a struct of this package: a policy's, whose content is
// policy.Policy, and a key's, whose content is inforce.Override.
package api

import (
	_ "embed"
	"time"
)

// OpenAPI describes the HTTP API, in YAML.
//
//go:embed openapi.yaml
var OpenAPI string

// Problem is an error (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // for people
	Field  string `json:"field,omitempty"`  // the invalid field or parameter
	Reason string `json:"reason,omitempty"` // why; with 503 and 507, which part failed
	// all errors of a document
	Problems []FieldProblem `json:"problems,omitempty"`
	Job      string         `json:"job,omitempty"`    // for a repeat: the job that ended
	Ended    string         `json:"ended,omitempty"`  // its outcome
	Letter   uint64         `json:"letter,omitempty"` // its dead letter
	// the policy, with the name of its limit if it has several; `POLICY/max_jobs` or
	// `POLICY/max_bytes` if the policy is full
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// FieldProblem is an error of a document.
type FieldProblem struct {
	Field  string `json:"field,omitempty"` // missing: the whole document
	Reason string `json:"reason"`
}

// Rejected is the problem of a job or call that is refused for now. Its reason is `queue-full` (the
// bucket or policy is full), `rate-limited` (a limiter has no units left) or `deadline-unreachable`
// (the job would start after its deadline).
type Rejected struct {
	Problem
	Verdict      string `json:"verdict"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	// with `deadline-unreachable`
	ExpectedStart time.Time `json:"expected_start,omitzero"`
}

// Decision is the answer to a check.
type Decision struct {
	Allowed      bool  `json:"allowed"`
	Limit        int64 `json:"limit"`
	Remaining    int64 `json:"remaining"`
	DelayMS      int64 `json:"delay_ms"` // how long to wait before proceeding
	RetryAfterMS int64 `json:"retry_after_ms"`
	ResetAfterMS int64 `json:"reset_after_ms"` // time until the full limit is available
}

// Refused is the problem of a check that exceeds a limit.
type Refused struct {
	Problem
	Decision
}

// Grant is the calling client and its rights.
type Grant struct {
	Name     string   `json:"name"` // empty without `http.tokens`
	Rights   []string `json:"rights"`
	Policies []string `json:"policies"` // patterns: `*` matches any bytes
	Keys     []string `json:"keys"`     // patterns
}

// Readiness is the state of a process and its parts.
type Readiness struct {
	Ready bool   `json:"ready"`
	Parts []Part `json:"parts"`
}

// Part is a part of a process.
type Part struct {
	Name   string   `json:"name"`
	OK     bool     `json:"ok"`
	Status string   `json:"status"`
	Notes  []string `json:"notes,omitempty"`
}
