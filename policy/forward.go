package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Forward lists headers that producers may forward, in any case; nil: all.
type Forward []string

// of a hop: a connection (RFC 9110, 7.6.1), a proxy, or a NATS server
var neverForwarded = []string{
	"Connection", "Content-Length", "Expect", "Forwarded", "Host", "HTTP2-Settings", "Keep-Alive",
	"Status", "TE", "Trailer",
	"Transfer-Encoding", "Upgrade", "Via", "X-Real-IP",
}

var neverForwardedPrefixes = []string{"Nats-", "Penstock-", "Proxy-", "X-Forwarded-"}

// NeverForwarded reports whether a header can never be forwarded. Underscores count as hyphens,
// because CGI and WSGI do not distinguish them.
func NeverForwarded(name string) bool {
	name = strings.ReplaceAll(name, "_", "-")
	return among(neverForwarded, name) ||
		slices.ContainsFunc(neverForwardedPrefixes, func(p string) bool {
			return len(name) >= len(p) && strings.EqualFold(name[:len(p)], p)
		})
}

// Allows reports whether a header of a request is sent to the target.
func (f Forward) Allows(name string) bool {
	return (f == nil || among(f, name)) && !NeverForwarded(name)
}

// Some frameworks read these as the method or path.
var overriding = []string{"X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override",
	"X-Original-URL", "X-Rewrite-URL"}

// Forwards reports whether a producer may forward a header. Those that could bypass methods or
// path_prefix must be listed.
func (t *HTTPTarget) Forwards(name string) bool {
	narrowed := t.Methods != nil || t.PathPrefix != nil
	if t.Forward == nil && narrowed && among(overriding, strings.ReplaceAll(name, "_", "-")) {
		return false
	}
	return t.Forward.Allows(name)
}

func among(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

func (f Forward) check(c *checker, field string) {
	for i, name := range f {
		switch {
		case !tokenPattern.MatchString(name):
			c.add(field, "%s is not a header name", quote(name))
		case NeverForwarded(name):
			c.add(field, "%s is never forwarded", quote(name))
		case among(f[:i], name):
			c.add(field, "%s is listed twice", quote(name))
		}
	}
}

var (
	tokenPattern  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	methodPattern = regexp.MustCompile(`^[A-Z]{1,32}$`)
	// without escapes: prefixes are compared literally
	prefixPattern = regexp.MustCompile(`^(/[A-Za-z0-9._~!$&'()*+,=:@-]+)+/?$`)
)

// NeverMethod refuses CONNECT, which requests a tunnel.
func NeverMethod(method string) bool { return method == "CONNECT" }

func (t *HTTPTarget) checkProducers(c *checker) {
	t.Forward.check(c, "target.http.forward")
	if t.Methods != nil && len(t.Methods) == 0 {
		c.add("target.http.methods", "must list at least one method")
	}
	for i, method := range t.Methods {
		if !methodPattern.MatchString(method) || NeverMethod(method) ||
			slices.Contains(t.Methods[:i], method) {
			c.add("target.http.methods", "%s: want distinct methods such as POST", quote(method))
		}
	}
	if t.PathPrefix == nil {
		return
	}
	prefix := *t.PathPrefix
	dots := slices.ContainsFunc(strings.Split(prefix, "/"), func(s string) bool {
		return s == "." || s == ".."
	})
	if !prefixPattern.MatchString(prefix) || dots {
		c.add("target.http.path_prefix",
			"%s: want a path such as /v1/charges, without escapes or a query", quote(prefix))
	}
}

// Method is that of jobs which name none.
func (t *HTTPTarget) Method() string {
	if len(t.Methods) > 0 {
		return t.Methods[0]
	}
	return "POST"
}

// AllowsMethod reports whether a job may have the method.
func (t *HTTPTarget) AllowsMethod(method string) bool {
	return !NeverMethod(method) && (t.Methods == nil || slices.Contains(t.Methods, method))
}

// AllowsPath reports whether an escaped path without dot segments is the prefix or below it.
func (t *HTTPTarget) AllowsPath(escaped string) bool {
	if t.PathPrefix == nil {
		return true
	}
	prefix := strings.TrimSuffix(*t.PathPrefix, "/")
	return escaped == prefix || strings.HasPrefix(escaped, prefix+"/")
}

// CheckPrefix rejects a target among the installation's own subjects, except another policy's jobs.
func (p Policy) CheckPrefix(prefix string) []Problem {
	if p.Target == nil || p.Target.NATS == nil {
		return nil
	}
	subject := p.Target.NATS.Subject
	if subject != prefix && !strings.HasPrefix(subject, prefix+".") {
		return nil
	}
	if rest, ok := strings.CutPrefix(subject, prefix+".jobs."); ok && strings.Contains(rest, ".") {
		return nil
	}
	return []Problem{{"target.nats.subject",
		fmt.Sprintf("%s: under %s, only %s.jobs.POLICY.KEY can be a target",
			quote(subject), prefix, prefix)}}
}
