package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/policy"
)

// mostDecodings bounds nested escapes in a path.
const mostDecodings = 3

// checkForwarded refuses names that no policy may forward.
func checkForwarded(name string) error {
	switch {
	case !IsToken(name):
		return errors.New("not a header name")
	case policy.NeverForwarded(name):
		return fmt.Errorf("%s is never forwarded", name)
	}
	return nil
}

// CheckTarget returns a [*HeaderError] if the target rejects a header to forward, the method or the
// path. A nil t only refuses headers that are never forwarded.
func CheckTarget(t *policy.Target, h map[string][]string) error {
	if t == nil {
		t = &policy.Target{}
	}
	for name, values := range h {
		if len(values) == 0 {
			continue
		}
		value := strings.TrimSpace(values[0])
		switch {
		case HasPrefixFold(name, HeaderForwardPrefix):
			forwarded := name[len(HeaderForwardPrefix):]
			err := checkForwarded(forwarded)
			if err == nil && (t.HTTP != nil && !t.HTTP.Forwards(forwarded) ||
				t.NATS != nil && !t.NATS.Forward.Allows(forwarded)) {
				err = fmt.Errorf("the policy does not forward %s", forwarded)
			}
			if err != nil {
				return headerError(name, err)
			}
		case t.HTTP == nil:
		case strings.EqualFold(name, HeaderMethod) && policy.NeverMethod(strings.ToUpper(value)):
			return headerError(HeaderMethod, errors.New("jobs cannot have this method"))
		case strings.EqualFold(name, HeaderMethod) && !t.HTTP.AllowsMethod(strings.ToUpper(value)):
			return headerError(HeaderMethod,
				fmt.Errorf("the policy's methods are %s", strings.Join(t.HTTP.Methods, ", ")))
		case strings.EqualFold(name, HeaderPath):
			path, err := ParsePath(value)
			if err != nil {
				return headerError(HeaderPath, err)
			}
			if !t.HTTP.AllowsPath(path.EscapedPath()) {
				return headerError(HeaderPath,
					fmt.Errorf("the policy's paths are %s and below", *t.HTTP.PathPrefix))
			}
		}
	}
	return nil
}

// Forwarded returns the headers to forward, by their own names.
func Forwarded(h map[string][]string) map[string][]string {
	forwarded := map[string][]string{}
	for name, values := range h {
		if HasPrefixFold(name, HeaderForwardPrefix) && len(values) > 0 {
			forwarded[name[len(HeaderForwardPrefix):]] = values
		}
	}
	return forwarded
}

// BelongsToBody reports whether a stored header is sent to the target unchanged.
func BelongsToBody(name string) bool {
	unchanged := []string{"Content-Type", "Content-Encoding", "traceparent", "tracestate"}
	return slices.ContainsFunc(unchanged, func(n string) bool { return strings.EqualFold(n, name) })
}

// ContentType returns the given type of a body, but application/json for an object or list without
// a type or with the form type of curl -d. isJSON: the body is known to be valid JSON.
func ContentType(given string, body []byte, isJSON bool) string {
	media, _, _ := strings.Cut(given, ";")
	if media = strings.TrimSpace(media); media != "" &&
		!strings.EqualFold(media, "application/x-www-form-urlencoded") {
		return given
	}
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) == 0 ||
		text[0] != '{' && text[0] != '[' || !isJSON && !json.Valid(text) {
		return given
	}
	return "application/json"
}

// ParsePath parses a [HeaderPath]: an escaped path below the target's URL, perhaps with a query. It
// has no [DotSegment], even for servers that decode twice.
func ParsePath(value string) (*url.URL, error) {
	if !strings.HasPrefix(value, "/") || strings.ContainsFunc(value, isControlOr(` #\`)) {
		return nil,
			fmt.Errorf("%q: want a path that begins with /, without spaces, backslashes or #",
				value)
	}
	path, err := url.Parse(value)
	if err != nil {
		return nil, fmt.Errorf("%q: not a path", value)
	}
	path.RawPath = EscapedPath(path)
	if path.Host != "" || path.User != nil || path.Path == "" {
		return nil, fmt.Errorf("%q: must not contain a host", value)
	}
	decoded := path.Path
	for range mostDecodings {
		if strings.ContainsFunc(decoded, isControlOr(`\`)) {
			return nil, fmt.Errorf("%q: must not contain control characters or backslashes", value)
		}
		if segment := DotSegment(decoded); segment != "" {
			return nil, fmt.Errorf("%q: must not contain the segment %q", value, segment)
		}
		twice, err := url.PathUnescape(decoded)
		if err != nil || twice == decoded {
			return path, nil
		}
		decoded = twice
	}
	return nil, fmt.Errorf("%q: has too many levels of escaping", value)
}

// EscapedPath is like [url.URL.EscapedPath], which loses escaped slashes if a part of the path
// should have been escaped, and was not.
func EscapedPath(u *url.URL) string {
	if u.RawPath == "" {
		return u.EscapedPath()
	}
	var b strings.Builder
	for i := range len(u.RawPath) {
		if c := u.RawPath[i]; c <= ' ' || c > '~' || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// DotSegment returns a segment of a path that is "." or "..", also for servers that read a
// backslash as a slash, or drop text after a semicolon or control character; or "".
func DotSegment(path string) string {
	for _, segment := range strings.FieldsFunc(path, func(r rune) bool {
		return r == '/' || r == '\\'
	}) {
		name := segment
		if i := strings.IndexFunc(segment, isControlOr(";")); i >= 0 {
			name = segment[:i]
		}
		if name = strings.TrimSpace(name); name == "." || name == ".." {
			return segment
		}
	}
	return ""
}

func isControlOr(others string) func(rune) bool {
	return func(r rune) bool { return r < ' ' || r == 0x7F || strings.ContainsRune(others, r) }
}

// IsToken reports whether a text can be the name of a header.
func IsToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// UsedAt returns the cost at a place of an answer; false: no number.
func UsedAt(place policy.ResponseCost, header map[string][]string, body []byte) (int64, bool) {
	text := strings.TrimSpace(HeaderValue(header, place.Header))
	if place.JSON != "" {
		for name := range strings.SplitSeq(place.JSON, ".") {
			var members map[string]json.RawMessage
			if json.Unmarshal(body, &members) != nil {
				return 0, false
			}
			body = members[name]
		}
		text = string(body)
	}
	n, err := strconv.ParseFloat(text, 64)
	return int64(math.Ceil(min(n, policy.MaxLimit))), err == nil && n >= 0
}
