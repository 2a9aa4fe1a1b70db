// Package access says who may do what: a [File] lists clients, each known by a token or by the name
// in a certificate, with its rights and the policies and keys that it has them for. It decides and
// asks nobody; admission/httpapi asks it for each request.
//
// Tokens are random and long ([NewToken]), so the file holds a plain SHA-256 of each: what makes
// hashes of passwords slow is against guessing, and 256 random bits are not guessed.
package access

import (
	"strings"
)

// Right is something that a client may do, or a set of such things. Each is for itself: none
// includes another.
type Right uint8

const (
	// Submit is to hand in jobs.
	Submit Right = 1 << iota
	// Check is to take from limits, to look at them, and to give back.
	Check
	// Read is to see policies, buckets, jobs, dead letters, drainers and metrics.
	Read
	// Operate is to pause and resume, to cancel and purge jobs, to replay and discard dead letters,
	// and to set the pace of single keys.
	Operate
	// Admin is to create, change and delete policies.
	Admin
)

// Any is all rights. A client needs one of them where any will do.
const Any = Submit | Check | Read | Operate | Admin

// Envoy begins the names by which clients have the right to check for domains of Envoy's rate limit
// service: envoy.DOMAIN. No policy has such a name.
const Envoy = "envoy."

// words are the rights as the file spells them, in the order of their bits.
var words = []string{"submit", "check", "read", "operate", "admin"}

// String is the right as the file spells it, or the rights with commas between them.
func (r Right) String() string {
	var all []string
	for i, word := range words {
		if r&(1<<i) != 0 {
			all = append(all, word)
		}
	}
	return strings.Join(all, ",")
}

// Client is who asks. The zero value may do nothing.
type Client struct {
	Name     string
	rights   Right
	policies patterns
	keys     patterns
}

// Grant is what a client may do, as the file says it.
type Grant struct {
	Name     string   `json:"name"` // empty where no clients are listed
	Rights   []string `json:"rights"`
	Policies []string `json:"policies"` // * stands for any bytes, or for none
	Keys     []string `json:"keys"`
}

// Grant returns what the client may do.
func (c *Client) Grant() Grant {
	return Grant{c.Name, strings.Split((c.rights & Any).String(), ","), c.policies, c.keys}
}

// Everyone may do everything, and has no name: who asks where no clients are listed.
var Everyone = &Client{rights: ^Right(0), policies: patterns{"*"},
	keys: patterns{"*"}}

// May reports whether the client has a right for some policy.
func (c *Client) May(r Right) bool { return c.rights&r != 0 }

// MayAll reports whether the client has a right for all policies and all keys.
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

// patterns are texts in which each * stands for any bytes, or for none.
type patterns []string

func (ps patterns) match(text string) bool {
	for _, p := range ps {
		if match(p, text) {
			return true
		}
	}
	return false
}

// all reports whether everything matches.
func (ps patterns) all() bool {
	for _, p := range ps {
		if p == "*" {
			return true
		}
	}
	return false
}

// match reports whether a text is one that a pattern stands for. What is between two stars may be
// taken where it is found first: that leaves the most for what follows.
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
