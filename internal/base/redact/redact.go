// Package redact removes credentials from answers, logs and errors.
package redact

import (
	"slices"
	"strings"
)

const Mark = "[redacted]"

// words are parts of the names of credential headers.
var words = []string{"auth", "cookie", "token", "secret", "key", "passw", "credential", "session",
	"signature"}

// IsSecret reports whether a header's name suggests a credential: Authorization, Cookie, X-Api-Key.
func IsSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(words, func(word string) bool {
		return strings.Contains(name, word)
	})
}

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

func Values(header map[string][]string) []string {
	var secret []string
	for name, values := range header {
		if IsSecret(name) {
			secret = append(secret, values...)
		}
	}
	return secret
}

// shorter texts would match parts of words
const least = 6

// Text removes these values, and what follows schemes such as "Bearer".
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
