// Package envoy answers for gateways as Envoy's rate limit service does: it reads the files of
// envoyproxy/ratelimit ([Load]), finds the limit of a descriptor in them, and decides by the
// limiters of package limiter ([Service]). It speaks no protocol: internal/envoyapi does.
//
// Which limit a descriptor has is decided exactly as envoyproxy/ratelimit does it, which a test
// compares. docs/tools.md says where answers differ.
package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/algorithms"
)

// Prefix begins the names by which metrics, fallbacks and the rights of clients know a domain and
// its limits. No policy has such a name.
const Prefix = access.Envoy

// Unit is the length of a window, by its number in Envoy's API.
type Unit int32

// unit is what is known of a unit.
type unit struct {
	name   string
	length time.Duration
}

const day = 24 * time.Hour

var units = map[Unit]unit{
	1: {"second", time.Second}, 2: {"minute", time.Minute}, 3: {"hour", time.Hour},
	4: {"day", day}, 5: {"month", 30 * day}, 6: {"year", 365 * day}, 7: {"week", 7 * day},
}

// unitOf returns the unit of a name, in any case.
func unitOf(name string) (Unit, bool) {
	for u, known := range units {
		if strings.EqualFold(known.name, name) {
			return u, true
		}
	}
	return 0, false
}

// String is the unit as files spell it.
func (u Unit) String() string { return units[u].name }

// Window is how long a window of the unit is; 0 for a number that is no unit.
func (u Unit) Window() time.Duration { return units[u].length }

// Rate is how many requests pass in each window. None do when it is zero.
type Rate struct {
	Requests uint32
	Unit     Unit
	Units    *uint32 // that a window lasts; nil: one
	Name     string  // of the limit in its file; may be empty
}

// Window is how long a window is; 0 when that is no length, or longer than windows may be.
func (r Rate) Window() time.Duration {
	length, n := r.Unit.Window(), uint32(1)
	if r.Units != nil {
		n = *r.Units
	}
	if length == 0 || int64(n) > int64(algorithms.MaxWindow/length) {
		return 0
	}
	return time.Duration(n) * length
}

// per is the length of a window, as what is counted and metrics name it: day, 30second.
func (r Rate) per() string {
	if r.Units == nil {
		return r.Unit.String()
	}
	return strconv.FormatUint(uint64(*r.Units), 10) + r.Unit.String()
}

// Limit is what a file says of a descriptor with a rate_limit.
type Limit struct {
	Rate
	// Path is the domain and the keys and values down to the descriptor, as the statistics of
	// envoyproxy/ratelimit name it: domain.key_value.key.
	Path      string
	Unlimited bool
	// Shadow says that it refuses nothing: shadow_mode or quota_mode.
	Shadow   bool
	Replaces []string // names of limits that do not count in a request for which this one does

	counter counter
}

// Entry is a part of a descriptor.
type Entry struct{ Key, Value string }

// Descriptor is what a gateway knows of a request, and asks about.
type Descriptor struct {
	Entries []Entry
	Limit   *Rate   // in place of what the files say; nil: none is given
	Hits    *uint64 // how many are counted; 0 asks only. nil: the request says
	Refund  bool    // the hits are given back
}

// Config is what the files say. It does not change.
type Config struct {
	domains map[string]*node
	limits  []*Limit
}

// Limits are all that the files have, in their order.
func (c *Config) Limits() []*Limit { return c.limits }

// node is a descriptor of a file, or a domain.
type node struct {
	children map[string]*node // by key, or key_value
	wild     []string         // those that end with a *, in the order of the file
	limit    *Limit
	pattern  string // the wildcard whose values share one count; empty: each has its own
}

// child returns the node of an entry, and how it was found: by a wildcard that is shared, or else
// empty. What it is called in full goes before wildcards, and these before its key alone.
func (n *node) child(e Entry) (found *node, shared string) {
	var room [128]byte
	full := append(append(append(room[:0], e.Key...), '_'), e.Value...)
	if found = n.children[string(full)]; found != nil {
		return found, ""
	}
	for _, w := range n.wild {
		if k := len(w) - 1; len(full) >= k && string(full[:k]) == w[:k] {
			return n.children[w], n.children[w].pattern
		}
	}
	return n.children[e.Key], ""
}

// Find returns the limit of a descriptor in a domain, nil if it has none, and what it is counted
// by: equal texts are counted together.
func (c *Config) Find(domain string, entries []Entry) (l *Limit, counted string) {
	at := c.domains[domain]
	if at == nil || len(entries) == 0 {
		return nil, ""
	}
	var patterns map[int]string
	for i, e := range entries {
		next, shared := at.child(e)
		if next == nil {
			return nil, ""
		}
		if shared != "" {
			if patterns == nil {
				patterns = map[int]string{}
			}
			patterns[i] = strings.TrimPrefix(shared, e.Key+"_")
		}
		at = next
	}
	if at.limit == nil || at.limit.Unlimited {
		return at.limit, ""
	}
	return at.limit, counts(at.limit.per(), entries, patterns)
}

// longestKey is how long, in bytes, what is counted by may be as it is.
const longestKey = 256

// counts is what a descriptor is counted by, with the patterns of some entries in place of their
// values. It is one to one, up to a hash.
func counts(per string, entries []Entry, patterns map[int]string) string {
	var room [longestKey]byte
	text := append(append(room[:0], per...), ':')
	for i, e := range entries {
		value := e.Value
		if pattern, shared := patterns[i]; shared {
			value = pattern
		}
		if i > 0 {
			text = append(text, '&')
		}
		text = appendEscaped(append(appendEscaped(text, e.Key), '='), value)
	}
	if len(text) > longestKey {
		sum := sha256.Sum256(text)
		return per + ":" + hex.EncodeToString(sum[:])
	}
	return string(text)
}

// appendEscaped appends a text without the bytes that stand between texts.
func appendEscaped(to []byte, text string) []byte {
	const hexadecimal = "0123456789ABCDEF"
	for i := range len(text) {
		switch b := text[i]; b {
		case '%', '&', '=', ':':
			to = append(to, '%', hexadecimal[b>>4], hexadecimal[b&15])
		default:
			to = append(to, b)
		}
	}
	return to
}

// own names the limit that a request brings along.
func (r Rate) own(domain string) string {
	return Prefix + domain + ".:" + strconv.FormatUint(uint64(r.Requests), 10) + "/" +
		r.per()
}
