// Package redact keeps credentials out of what people read: answers of the API, logs, and the
// errors of jobs.
package redact

import (
	"slices"
	"strings"
)

// Mark stands in the place of what was left out.
const Mark = "[redacted]"

// words are parts of the names of header fields that hold credentials.
var words = []string{"auth", "cookie", "token", "secret", "key", "passw", "credential", "session",
	"signature"}

// IsSecret reports whether a header field of this name holds a credential, as far as its name
// tells: Authorization, Cookie, X-Api-Key and their like.
func IsSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(words, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// Header returns a copy of a job's header in which no forwarded field shows a credential.
func Header(header map[string][]string) map[string][]string {
	const forward = "penstock-forward-"
	shown := make(map[string][]string, len(header))
	for name, values := range header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, forward) &&
			IsSecret(lower[len(forward):]) {
			values = []string{Mark}
		}
		shown[name] = values
	}
	return shown
}

// Values are those of the fields that hold credentials.
func Values(header map[string][]string) []string {
	var secret []string
	for name, values := range header {
		if IsSecret(name) {
			secret = append(secret, values...)
		}
	}
	return secret
}

// least is the shortest text that is taken for a credential: a shorter one would tear words apart.
const least = 6

// Text returns a text without these values, nor what follows the scheme in one such as "Bearer
// abcdef".
func Text(text string, values []string) string {
	for _, value := range values {
		_, after, _ := strings.Cut(strings.TrimSpace(value), " ")
		for _, part := range []string{value, after} {
			if part = strings.TrimSpace(part); len(part) >= least {
				text = strings.ReplaceAll(text, part, Mark)
			}
		}
	}
	return text
}
