// Package redact removes credentials from answers, logs and errors.
package redact

import (
	"slices"
	"strings"
)

// Mark replaces a credential.
const Mark = "[redacted]"

// words are parts of the names of credential headers.
var words = []string{"auth", "cookie", "token", "secret", "key", "passw", "credential", "session",
	"signature"}

// IsSecret reports whether the name of a header suggests a credential: Authorization, Cookie,
// X-Api-Key and the like.
func IsSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(words, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// Header returns a copy of a job's header without credentials.
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

// Values returns the values of credential headers.
func Values(header map[string][]string) []string {
	var secret []string
	for name, values := range header {
		if IsSecret(name) {
			secret = append(secret, values...)
		}
	}
	return secret
}

// least is the shortest text treated as a credential; shorter ones would match parts of words.
const least = 6

// Text removes these values from a text, and the credentials after schemes such as "Bearer".
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
