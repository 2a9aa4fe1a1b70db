// Package access implements authorization: a [File] lists clients, identified by a token or a
// certificate's name, with their rights and the policies and keys to which they apply. Package
// admission/httpapi checks each request.
//
// Tokens are random and long ([NewToken]), so a plain SHA-256 of each suffices: slow hashes protect
// guessable passwords, which 256 random bits are not.
package access

import (
	"strings"
)

// Right is a right or a set of rights. No right includes another.
type Right uint8

const (
	// Submit permits submitting jobs.
	Submit Right = 1 << iota
	// Check permits taking from limits, peeking and refunding.
	Check
	// Read permits viewing policies, buckets, jobs, dead letters, drainers and metrics.
	Read
	// Operate permits pausing and resuming, cancelling and purging jobs, replaying and discarding
	// dead letters, and overrides of keys.
	Operate
	// Admin permits creating, changing and deleting policies.
	Admin
)

// Any is the set of all rights. One of them suffices where it is required.
const Any = Submit | Check | Read | Operate | Admin

// Envoy is the prefix of the pseudo-policies envoy.DOMAIN, for the right to check domains of
// Envoy's rate limit service. Policies cannot have such names.
const Envoy = "envoy."

// words are the rights in the file, by bit.
var words = []string{"submit", "check", "read", "operate", "admin"}

// String returns the rights as in the file, separated by commas.
func (r Right) String() string {
	var all []string
	for i, word := range words {
		if r&(1<<i) != 0 {
			all = append(all, word)
		}
	}
	return strings.Join(all, ",")
}

// Client is an authenticated client. The zero value has no rights.
type Client struct {
	Name     string
	rights   Right
	policies patterns
	keys     patterns
}

// Grant describes a client's rights as the file does.
type Grant struct {
	Name     string   `json:"name"` // empty without access control
	Rights   []string `json:"rights"`
	Policies []string `json:"policies"` // * matches any bytes, or none
	Keys     []string `json:"keys"`
}

func (c *Client) Grant() Grant {
	return Grant{c.Name, strings.Split((c.rights & Any).String(), ","), c.policies, c.keys}
}

// Everyone has all rights and no name. It is the client without access control.
var Everyone = &Client{rights: ^Right(0), policies: patterns{"*"},
	keys: patterns{"*"}}

// May reports whether the client has a right for some policy.
func (c *Client) May(r Right) bool { return c.rights&r != 0 }

// MayAll reports whether the client has a right for all policies and keys.
func (c *Client) MayAll(r Right) bool {
	return c.May(r) && c.policies.all() && c.keys.all()
}

// MayPolicy reports whether the client has a right for a policy with all its keys.
func (c *Client) MayPolicy(r Right, policy string) bool {
	return c.May(r) && c.policies.match(policy) && c.keys.all()
}

// MayKey reports whether the client has a right for one key of a policy.
func (c *Client) MayKey(r Right, policy, key string) bool {
	return c.May(r) && c.policies.match(policy) && c.keys.match(key)
}

// patterns are texts in which * matches any bytes, or none.
type patterns []string

func (ps patterns) match(text string) bool {
	for _, p := range ps {
		if match(p, text) {
			return true
		}
	}
	return false
}

func (ps patterns) all() bool {
	for _, p := range ps {
		if p == "*" {
			return true
		}
	}
	return false
}

// match reports whether a pattern matches. The text between two stars may match at its first
// occurrence, which leaves the most for the rest.
func match(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return text == pattern
	}
	text, ok := strings.CutPrefix(text, first)
	for ok {
		part, more, wild := strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(text, part)
		}
		_, text, ok = strings.Cut(text, part)
		rest = more
	}
	return false
}
