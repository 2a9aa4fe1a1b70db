// Package access implements authorization: a file lists clients, by a token or a certificate's
// name, with their rights and the policies and keys that they cover.
//
// Tokens are stored as plain SHA-256: 256 random bits cannot be guessed.
package access

import (
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/api"
)

// Right is a set of rights, as bits.
type Right uint8

const (
	Submit  Right = 1 << iota // submit jobs, acquire permits, and create schedules
	Check                     // ask immediate policies for decisions
	Read                      // also metrics
	Operate                   // steer jobs, and change overrides
	Admin                     // create, change and delete policies
)

// Any permits a client that has at least one right.
const Any = Submit | Check | Read | Operate | Admin

// Envoy is the prefix of the pseudo-policies envoy.DOMAIN of Envoy's rate limit service. No real
// policy name can contain a dot.
const Envoy = "envoy."

var words = []string{"submit", "check", "read", "operate", "admin"}

// String lists the rights as a file of clients has them: "submit,read".
func (r Right) String() string {
	var all []string
	for i, word := range words {
		if r&(1<<i) != 0 {
			all = append(all, word)
		}
	}
	return strings.Join(all, ",")
}

// Client is an authenticated client with its rights, policies and keys. The zero Client has no
// rights.
type Client struct {
	Name     string
	rights   Right
	policies patterns
	keys     patterns
}

// Grant returns the rights as GET /v1/whoami answers them.
func (c *Client) Grant() api.Grant {
	return api.Grant{Name: c.Name, Rights: strings.Split((c.rights & Any).String(), ","),
		Policies: c.policies, Keys: c.keys}
}

// Everyone is the client without access control.
var Everyone = &Client{rights: ^Right(0), policies: patterns{"*"}, keys: patterns{"*"}}

// May reports whether the client has one of the rights for anything at all.
func (c *Client) May(r Right) bool { return c.rights&r != 0 }

// MayAll reports whether the client has one of the rights for all policies and keys.
func (c *Client) MayAll(r Right) bool {
	return c.May(r) && c.policies.all() && c.keys.all()
}

// MayPolicy reports whether the client has one of the rights for all keys of a policy.
func (c *Client) MayPolicy(r Right, policy string) bool {
	return c.May(r) && c.policies.match(policy) && c.keys.all()
}

// MayKey reports whether the client has one of the rights for a key of a policy.
func (c *Client) MayKey(r Right, policy, key string) bool {
	return c.May(r) && c.policies.match(policy) && c.keys.match(key)
}

type patterns []string

func (ps patterns) match(text string) bool {
	return slices.ContainsFunc(ps, func(p string) bool { return match(p, text) })
}

func (ps patterns) all() bool { return slices.Contains(ps, "*") }

// match matches the text between two stars at its first occurrence, which leaves the most for the
// rest.
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
