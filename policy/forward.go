package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Forward is what producers may forward to a target in headers: nil for whatever can be, else these
// names in any case.
type Forward []string

// neverForwarded are headers that belong to the way of a message and not to the message: a
// connection's (RFC 9110, 7.6.1), a proxy's, or a NATS server's.
var neverForwarded = []string{
	"Connection", "Content-Length", "Expect", "Forwarded", "Host", "HTTP2-Settings", "Keep-Alive",
	"Status", "TE", "Trailer",
	"Transfer-Encoding", "Upgrade", "Via", "X-Real-IP",
}

// neverForwardedPrefixes begin others.
var neverForwardedPrefixes = []string{"Nats-", "Penstock-", "Proxy-", "X-Forwarded-"}

// NeverForwarded reports whether no producer may forward a header of this name, in whatever case.
// Servers that hand fields to programs as variables (CGI, WSGI) take an underscore for the hyphen.
func NeverForwarded(name string) bool {
	name = strings.ReplaceAll(name, "_", "-")
	return among(neverForwarded, name) ||
		slices.ContainsFunc(neverForwardedPrefixes, func(p string) bool {
			return len(name) >= len(p) && strings.EqualFold(name[:len(p)], p)
		})
}

// Allows reports whether a producer may forward a header.
func (f Forward) Allows(name string) bool {
	return (f == nil || among(f, name)) && !NeverForwarded(name)
}

// overriding are headers by which some frameworks take another method or path than that of the
// request.
var overriding = []string{"X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override",
	"X-Original-URL", "X-Rewrite-URL"}

// Forwards reports whether a producer may forward a header to the target. One that could get round
// the target's methods or path prefix must be listed.
func (t *HTTPTarget) Forwards(name string) bool {
	narrowed := t.Methods != nil || t.PathPrefix != nil
	if t.Forward == nil && narrowed && among(overriding, strings.ReplaceAll(name, "_", "-")) {
		return false
	}
	return t.Forward.Allows(name)
}

// among reports whether a header's name is listed, in whatever case.
func among(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

func (f Forward) check(c *checker, field string) {
	for i, name := range f {
		switch {
		case !tokenPattern.MatchString(name):
			c.add(field, "%s: not a header's name", quote(name))
		case NeverForwarded(name):
			c.add(field, "%s: is never forwarded", quote(name))
		case among(f[:i], name):
			c.add(field, "%s: is given twice", quote(name))
		}
	}
}

var (
	tokenPattern  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	methodPattern = regexp.MustCompile(`^[A-Z]{1,32}$`)
	// prefixPattern has no escapes, so that a prefix can be compared with a path as it was given.
	prefixPattern = regexp.MustCompile(`^(/[A-Za-z0-9._~!$&'()*+,=:@-]+)+/?$`)
)

// NeverMethod reports whether no job can have a method: CONNECT, which asks for a tunnel.
func NeverMethod(method string) bool { return method == "CONNECT" }

// checkProducers checks what producers may say to an HTTP target.
func (t *HTTPTarget) checkProducers(c *checker) {
	t.Forward.check(c, "target.http.forward")
	if t.Methods != nil && len(t.Methods) == 0 {
		c.add("target.http.methods", "must hold at least one")
	}
	for i, method := range t.Methods {
		if !methodPattern.MatchString(method) || NeverMethod(method) ||
			slices.Contains(t.Methods[:i], method) {
			c.add("target.http.methods", "%s: want different methods such as POST", quote(method))
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

// Method is that of jobs that name none: the first of the target's list, else POST.
func (t *HTTPTarget) Method() string {
	if len(t.Methods) > 0 {
		return t.Methods[0]
	}
	return "POST"
}

// AllowsMethod reports whether a job may have a method.
func (t *HTTPTarget) AllowsMethod(method string) bool {
	return !NeverMethod(method) && (t.Methods == nil || slices.Contains(t.Methods, method))
}

// AllowsPath reports whether a job may have an escaped path: the prefix itself, or one below it.
// Paths that lead elsewhere by dots are refused before.
func (t *HTTPTarget) AllowsPath(escaped string) bool {
	if t.PathPrefix == nil {
		return true
	}
	prefix := strings.TrimSuffix(*t.PathPrefix, "/")
	return escaped == prefix || strings.HasPrefix(escaped, prefix+"/")
}

// CheckPrefix returns why an installation whose subjects begin with a prefix cannot have the
// policy: its target is one of those, and not that of other policies' jobs. Valves, admitted work
// and dead letters are Penstock's own.
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
		fmt.Sprintf("%s: of subjects under %s only %s.jobs.POLICY.KEY can be targets",
			quote(subject), prefix, prefix)}}
}
