package job

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Key is a bucket's identity: the subject form of the user's key (see [EncodeKey]).
type Key string

// MaxKeyBytes is the longest key that [EncodeKey] takes, in bytes of UTF-8.
const MaxKeyBytes = 256

const (
	// NoKey is the bucket of jobs without a key.
	NoKey      = Key("_") // no key at all
	emptyToken = "%"      // an empty token between two dots, or at an end

	// StrangePrefix begins the stand-in for the tail of a subject that no EncodeKey produces. It
	// holds an escape that is none, so that no key's subject form begins with it.
	StrangePrefix = "%!."
	strangeLong   = "%!!." // before a SHA-256, for tails longer than strangeMax
	// strangeMax bounds such a stand-in: with the rest of a subject it must fit the server's
	// control line of 4096 bytes.
	strangeMax = 1024
)

// ErrInvalidKey says that a key is not one: not UTF-8, longer than [MaxKeyBytes], or a subject form
// that [EncodeKey] does not produce.
var ErrInvalidKey = errors.New("invalid key")

// KeyError is an [ErrInvalidKey] of a key that somebody gave, with the reason by itself.
type KeyError struct{ Reason string }

// Error is the kind and the reason.
func (e *KeyError) Error() string { return ErrInvalidKey.Error() + ": " + e.Reason }

// Unwrap is [ErrInvalidKey].
func (e *KeyError) Unwrap() error { return ErrInvalidKey }

func invalidKey(format string, args ...any) error {
	return &KeyError{fmt.Sprintf(format, args...)}
}

// EncodeKey gives a key its subject form: "." separates tokens and stays, bytes that tokens cannot
// hold (space, "*", ">", "%", control and non-ASCII bytes) become %XX, an empty token becomes a
// lone "%", the empty key is "_" and the key "_" is "%5F". Distinct keys have distinct subject
// forms. It returns [ErrInvalidKey] for what is not UTF-8 or is longer than [MaxKeyBytes].
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

// escape is EncodeKey's alphabet, without its limits and without its names for the empty key.
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

// holds reports whether a byte of a key stands for itself in a subject.
func holds(c byte) bool {
	return c > ' ' && c < 0x7F && c != '*' && c != '>' && c != '%'
}

// ParseKey reads a subject form, and only one that [EncodeKey] produces: %2a, %zz, a "%41" that
// should be "A", a literal "*" are all [ErrInvalidKey].
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

// unescape undoes escape, and takes more than escape produces: the caller compares.
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

// Raw is the user's key again. For the stand-in of a subject that is no key's, it is that stand-in.
func (k Key) Raw() string {
	if raw, ok := unescape(string(k)); ok {
		return raw
	}
	return string(k)
}

// StrangeKey returns a stand-in for the tail of a subject that no EncodeKey produces: a literal
// that may stand in subjects and that no key has, so that the job can be reported without touching
// any bucket.
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

// Partition is the partition in which the server stores what is published to subject: the remainder
// of the FNV-1a hash of the whole published subject, as the server's partition() computes it.
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
