// Package envoy serves Envoy's rate limit service over gRPC, with grpc.health.v1 and reflection. It
// reads the files of envoyproxy/ratelimit ([Load]), and matches limits as it does. Only programs
// link it, because gRPC and Envoy's API are large.
package envoy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/access"
)

// Prefix begins names in metrics and rights.
const Prefix = access.Envoy

// Rate is immutable, since answers share it.
type Rate = ratelimit.RateLimitResponse_RateLimit

type unit = ratelimit.RateLimitResponse_RateLimit_Unit

const day = 24 * time.Hour

var units = map[unit]struct {
	name   string
	length time.Duration
}{
	1: {"second", time.Second}, 2: {"minute", time.Minute}, 3: {"hour", time.Hour},
	4: {"day", day}, 5: {"month", 30 * day}, 6: {"year", 365 * day}, 7: {"week", 7 * day},
}

func unitOf(name string) unit {
	return unit(ratelimit.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(name)])
}

// Window is 0 if it is invalid or too long.
func Window(r *Rate) time.Duration {
	length, n := units[r.Unit].length, uint32(1)
	if r.UnitMultiplier != nil {
		n = r.UnitMultiplier.Value
	}
	if length == 0 || int64(n) > int64(algorithms.MaxWindow/length) {
		return 0
	}
	return time.Duration(n) * length
}

// sinceEpoch: months of 30 days and years of 365 begin as in envoyproxy/ratelimit, and weeks on
// Mondays.
func sinceEpoch(r *Rate) bool {
	return r.Unit == ratelimit.RateLimitResponse_RateLimit_MONTH ||
		r.Unit == ratelimit.RateLimitResponse_RateLimit_YEAR
}

// per returns the window, such as day or 30second.
func per(r *Rate) string {
	if r.UnitMultiplier == nil {
		return units[r.Unit].name
	}
	return strconv.FormatUint(uint64(r.UnitMultiplier.Value), 10) + units[r.Unit].name
}

type Limit struct {
	Rate *Rate
	// Path is domain.key_value.key, as in the statistics of envoyproxy/ratelimit.
	Path      string
	Unlimited bool
	// Shadow limits refuse no request.
	Shadow bool
	// Quota limits refuse a request together, if all of its quota limits are over.
	Quota    bool
	Replaces []string // names of limits that this one suspends in the same request

	detailed bool // hits are counted by all values of a request
	valued   bool // hits are counted by some values of a request
	counter  counter
}

type Entry = common.RateLimitDescriptor_Entry

// Config is immutable.
type Config struct {
	domains map[string]*node
	limits  []*Limit
}

func (c *Config) Limits() []*Limit { return c.limits }

type node struct {
	children map[string]*node // by key or key_value
	wild     []wildcard       // in the order of the file
	limit    *Limit
	shares   bool // the values of a wildcard share one count
	valued   bool // a request's value is in the name of its hits
}

type wildcard struct {
	name  string
	parts [][]byte // around the stars
	node  *node
}

// Each star matches any number of characters.
func (w *wildcard) matches(full []byte) bool {
	last := len(w.parts) - 1
	rest, begins := bytes.CutPrefix(full, w.parts[0])
	rest, ends := bytes.CutSuffix(rest, w.parts[last])
	if !begins || !ends {
		return false
	}
	for _, part := range w.parts[1:last] {
		at := bytes.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

// Full names precede wildcards, which precede the key alone. wild is the wildcard that matched.
func (n *node) child(e *Entry) (found *node, wild string) {
	var room [128]byte
	full := append(append(append(room[:0], e.Key...), '_'), e.Value...)
	if found = n.children[string(full)]; found != nil {
		return found, ""
	}
	for i := range n.wild {
		if w := &n.wild[i]; w.matches(full) {
			return w.node, w.name
		}
	}
	return n.children[e.Key], ""
}

// Find returns a descriptor's limit, or nil, its counting key, and the name of its hits in metrics.
func (c *Config) Find(domain string, entries []*Entry) (l *Limit, counted, name string) {
	at := c.domains[domain]
	if at == nil || len(entries) == 0 {
		return nil, "", ""
	}
	var patterns map[int]string // of values that share a count
	for i, e := range entries {
		next, wild := at.child(e)
		if next == nil {
			return nil, "", ""
		}
		if wild != "" && next.shares {
			if patterns == nil {
				patterns = map[int]string{}
			}
			patterns[i] = strings.TrimPrefix(wild, e.Key+"_")
		}
		at = next
	}
	if l = at.limit; l == nil || l.Unlimited {
		return l, "", ""
	}
	counted, name = counts(l.Rate, entries, patterns), l.Path
	if l.detailed || l.valued {
		name = c.name(l, domain, entries, patterns)
	}
	return l, counted, name
}

func (c *Config) name(l *Limit, domain string, entries []*Entry, patterns map[int]string) string {
	at, text := c.domains[domain], domain
	for i, e := range entries {
		next, wild := at.child(e)
		value := e.Value
		switch pattern, shared := patterns[i]; {
		case shared:
			value = pattern
		case l.detailed || next.valued:
		case wild != "":
			value = strings.TrimPrefix(wild, e.Key+"_")
		case next == at.children[e.Key]:
			value = ""
		}
		text, at = text+"."+e.Key, next
		if value != "" || l.detailed && patterns == nil {
			text += "_" + value
		}
	}
	return text
}

const longestKey = 256

// Values that share a count are replaced by their pattern.
func counts(r *Rate, entries []*Entry, patterns map[int]string) string {
	var room [longestKey]byte
	text := append(append(room[:0], per(r)...), ':')
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
		return per(r) + ":" + hex.EncodeToString(sum[:])
	}
	return string(text)
}

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
