package queue

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Key identifies a bucket: the subject form of the user's key (see [EncodeKey]).
type Key string

// MaxKeyBytes bounds a key, in bytes of UTF-8.
const MaxKeyBytes = 256

const (
	// NoKey is the bucket of jobs without a key.
	NoKey      = Key("_")
	emptyToken = "%" // between two dots, or at an end

	// strangePrefix begins the substitute for an invalid key. Its invalid escape keeps it apart
	// from keys.
	strangePrefix = "%!."
	strangeLong   = "%!!." // before a SHA-256
	// A subject must fit the server's control line of 4096 bytes.
	strangeMax = 1024
)

// ErrInvalidKey: not UTF-8, too long, or not a form that [EncodeKey] produces.
var ErrInvalidKey = errors.New("invalid key")

// KeyError says why a key is invalid. It is an [ErrInvalidKey].
type KeyError struct{ Reason string }

func (e *KeyError) Error() string { return ErrInvalidKey.Error() + ": " + e.Reason }

func (e *KeyError) Unwrap() error { return ErrInvalidKey }

func invalidKey(format string, args ...any) error {
	return &KeyError{fmt.Sprintf(format, args...)}
}

// EncodeKey returns the subject form of a key, one to one: "." separates tokens, other bytes that a
// token cannot contain (space, "*", ">", "%", control and non-ASCII) become %XX, an empty token
// "%", the empty key "_" and the key "_" "%5F".
func EncodeKey(raw string) (Key, error) {
	switch {
	case len(raw) > MaxKeyBytes:
		return "", invalidKey("longer than %d bytes", MaxKeyBytes)
	case !utf8.ValidString(raw):
		return "", invalidKey("not UTF-8")
	case raw == "":
		return NoKey, nil
	case raw == "_":
		return "%5F", nil
	}
	return Key(escape(raw)), nil
}

func escape(raw string) string {
	plain := raw[0] != '.' && raw[len(raw)-1] != '.'
	for i := 0; plain && i < len(raw); i++ {
		plain = holds(raw[i]) && (raw[i] != '.' || raw[i-1] != '.')
	}
	if plain {
		return raw
	}
	tokens := strings.Split(raw, ".")
	for i, token := range tokens {
		var b strings.Builder
		for _, c := range []byte(token) {
			if holds(c) {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
		tokens[i] = cmp.Or(b.String(), emptyToken)
	}
	return strings.Join(tokens, ".")
}

func holds(c byte) bool {
	return c > ' ' && c < 0x7F && c != '*' && c != '>' && c != '%'
}

// ParseKey accepts only what [EncodeKey] produces, or returns [ErrInvalidKey].
func ParseKey(subjectForm string) (Key, error) {
	raw, ok := unescape(subjectForm)
	if !ok {
		return "", invalidKey("%q is not the subject form of a key", subjectForm)
	}
	k, err := EncodeKey(raw)
	if err != nil {
		return "", err
	}
	if string(k) != subjectForm {
		return "", invalidKey("%q is not the subject form of a key: want %q", subjectForm, k)
	}
	return k, nil
}

// unescape accepts more than escape produces; the caller compares.
func unescape(form string) (string, bool) {
	if form == string(NoKey) {
		return "", true
	}
	if strings.IndexByte(form, '%') < 0 {
		return form, true
	}
	tokens := strings.Split(form, ".")
	for i, token := range tokens {
		if token == emptyToken {
			tokens[i] = ""
		} else if raw, err := url.PathUnescape(token); err == nil {
			tokens[i] = raw
		} else {
			return "", false
		}
	}
	return strings.Join(tokens, "."), true
}

// Raw returns the user's key, or the substitute of an invalid one.
func (k Key) Raw() string {
	if raw, ok := unescape(string(k)); ok {
		return raw
	}
	return string(k)
}

// StrangeKey returns a substitute, valid in subjects, for an invalid key.
func StrangeKey(tail string) Key {
	if tail == "" {
		return strangePrefix + emptyToken
	}
	escaped := escape(tail)
	if len(escaped) > strangeMax {
		sum := sha256.Sum256([]byte(tail))
		return Key(strangeLong + hex.EncodeToString(sum[:]))
	}
	return Key(strangePrefix + escaped)
}
