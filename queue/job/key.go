package job

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Key identifies a bucket: the subject form of the user's key (see [EncodeKey]).
type Key string

// MaxKeyBytes is the longest key that [EncodeKey] accepts, in bytes of UTF-8.
const MaxKeyBytes = 256

const (
	// NoKey is the bucket of jobs without a key.
	NoKey      = Key("_") // no key at all
	emptyToken = "%"      // an empty token between two dots, or at an end

	// StrangePrefix begins the substitute for a subject's tail that no EncodeKey produces. It
	// contains an invalid escape, so no key's subject form begins with it.
	StrangePrefix = "%!."
	strangeLong   = "%!!." // before a SHA-256, for tails longer than strangeMax
	// strangeMax bounds such a substitute: with the rest of a subject it must fit the server's
	// control line of 4096 bytes.
	strangeMax = 1024
)

// ErrInvalidKey: a key is not UTF-8, is longer than [MaxKeyBytes], or is a subject form that
// [EncodeKey] does not produce.
var ErrInvalidKey = errors.New("invalid key")

// KeyError is an [ErrInvalidKey] for a key given by a user, with the reason separate.
type KeyError struct{ Reason string }

// Error returns the kind and the reason.
func (e *KeyError) Error() string { return ErrInvalidKey.Error() + ": " + e.Reason }

// Unwrap returns [ErrInvalidKey].
func (e *KeyError) Unwrap() error { return ErrInvalidKey }

func invalidKey(format string, args ...any) error {
	return &KeyError{fmt.Sprintf(format, args...)}
}

// EncodeKey returns the subject form of a key: "." separates tokens and stays, bytes that tokens
// cannot contain (space, "*", ">", "%", control and non-ASCII bytes) become %XX, an empty token
// becomes a lone "%", the empty key is "_" and the key "_" is "%5F". Distinct keys have distinct
// subject forms.
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
	const hexDigits = "0123456789ABCDEF"
	plain := raw[0] != '.' && raw[len(raw)-1] != '.'
	for i := 0; plain && i < len(raw); i++ {
		plain = holds(raw[i]) && (raw[i] != '.' || raw[i-1] != '.')
	}
	if plain {
		return raw
	}
	var b strings.Builder
	b.Grow(len(raw) + 16)
	atStart := true // of a token
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '.':
			if atStart {
				b.WriteString(emptyToken)
			}
			b.WriteByte('.')
		case holds(c):
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
		atStart = c == '.'
	}
	if atStart {
		b.WriteString(emptyToken)
	}
	return b.String()
}

func holds(c byte) bool {
	return c > ' ' && c < 0x7F && c != '*' && c != '>' && c != '%'
}

// ParseKey parses a subject form that [EncodeKey] produces; all others, such as %2a or %zz, return
// [ErrInvalidKey].
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

// unescape undoes escape, and accepts more than escape produces: the caller compares.
func unescape(form string) (string, bool) {
	if form == string(NoKey) {
		return "", true
	}
	if strings.IndexByte(form, '%') < 0 {
		return form, true
	}
	var b strings.Builder
	b.Grow(len(form))
	for i := 0; i < len(form); i++ {
		if form[i] != '%' {
			b.WriteByte(form[i])
			continue
		}
		if i+1 == len(form) || form[i+1] == '.' {
			if i > 0 && form[i-1] != '.' {
				return "", false
			}
			continue // an empty token
		}
		if i+2 >= len(form) {
			return "", false
		}
		high, low := unhex(form[i+1]), unhex(form[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return b.String(), true
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// Raw returns the user's key, or the substitute of an invalid subject.
func (k Key) Raw() string {
	if raw, ok := unescape(string(k)); ok {
		return raw
	}
	return string(k)
}

// StrangeKey returns a substitute for a subject's tail that no EncodeKey produces. It is valid in
// subjects and equals no key.
func StrangeKey(tail string) Key {
	if tail == "" {
		return StrangePrefix + emptyToken
	}
	escaped := escape(tail)
	if len(escaped) > strangeMax {
		sum := sha256.Sum256([]byte(tail))
		return Key(strangeLong + hex.EncodeToString(sum[:]))
	}
	return Key(StrangePrefix + escaped)
}

// Partition returns the partition in which the server stores messages to subject: the FNV-1a hash
// of the published subject, like the server's partition().
func Partition(subject string, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for i := 0; i < len(subject); i++ {
		h = (h ^ uint32(subject[i])) * prime
	}
	return int(h % uint32(partitions))
}
