package queue

import (
	"errors"
	"strings"
	"testing"
)

func TestEncodeKey(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{"", "_"},
		{"_", "%5F"},
		{"__", "__"},
		{"tenant-7", "tenant-7"},
		{"a.b.c", "a.b.c"},
		{"192.168.0.1:80/x?y=z&$w#~", "192.168.0.1:80/x?y=z&$w#~"},
		{".", "%.%"},
		{"a.", "a.%"},
		{".a", "%.a"},
		{"a..b", "a.%.b"},
		{"*", "%2A"},
		{"a*b>c", "a%2Ab%3Ec"},
		{"50%", "50%25"},
		{"%", "%25"},
		{"a b\tc\n", "a%20b%09c%0A"},
		{"\x7f", "%7F"},
		{"é", "%C3%A9"},
		{strings.Repeat("é", 128), strings.Repeat("%C3%A9", 128)},
	} {
		got, err := EncodeKey(c.raw)
		if err != nil || string(got) != c.want {
			t.Errorf("EncodeKey(%q) = %q, %v; want %q", c.raw, got, err, c.want)
			continue
		}
		if got.Raw() != c.raw {
			t.Errorf("%q.Raw() = %q, want %q", got, got.Raw(), c.raw)
		}
		if parsed, err := ParseKey(c.want); err != nil || parsed != got {
			t.Errorf("ParseKey(%q) = %q, %v", c.want, parsed, err)
		}
	}
	for _, raw := range []string{"\xff", "a\xc3", strings.Repeat("x", MaxKeyBytes+1)} {
		if _, err := EncodeKey(raw); !errors.Is(err, ErrInvalidKey) {
			t.Errorf("EncodeKey(%q): %v, want ErrInvalidKey", raw, err)
		}
	}
}

func TestParseKeyRefusesWhatEncodeKeyDoesNotProduce(t *testing.T) {
	for _, form := range []string{
		"", "*", ">", "a.*", "a.>", "a.", ".a", "a..b", ".", "a b", "é", "%zz", "%2a", "%41", "%2",
		"a%", "%.a%", "%5f", "%%",
		"\x01", "%FF", "%closed", "%5F%", strings.Repeat("x", MaxKeyBytes+1),
		string(StrangeKey("x")), string(StrangeKey("")),
		string(StrangeKey(strings.Repeat("*", 4000))),
	} {
		if k, err := ParseKey(form); !errors.Is(err, ErrInvalidKey) {
			t.Errorf("ParseKey(%q) = %q, %v; want ErrInvalidKey", form, k, err)
		}
	}
}

// safeInSubject reports whether s can follow a prefix and a dot in a publish subject.
func safeInSubject(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || token == "*" || token == ">" ||
			strings.ContainsAny(token, " \t\r\n\x00") {
			return false
		}
	}
	return true
}

func FuzzKeyRoundTrip(f *testing.F) {
	for _, seed := range []string{"", "_", "a.b", ".", "..", "a*>%", "é", "%5F", "%", "\x00",
		"a.%.b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		k, err := EncodeKey(raw)
		if err != nil {
			if !errors.Is(err, ErrInvalidKey) {
				t.Fatalf("EncodeKey(%q): %v", raw, err)
			}
			return
		}
		if !safeInSubject(string(k)) {
			t.Fatalf("EncodeKey(%q) = %q cannot be published to", raw, k)
		}
		if k.Raw() != raw {
			t.Fatalf("%q came back as %q", raw, k.Raw())
		}
		if parsed, err := ParseKey(string(k)); err != nil || parsed != k {
			t.Fatalf("ParseKey(%q) = %q, %v", k, parsed, err)
		}
	})
}

func FuzzKeysNeverShareASubject(f *testing.F) {
	f.Add("", "_")
	f.Add("_", "%5F")
	f.Add("a.b", "a%2Eb")
	f.Add(".", "%.%")
	f.Add("a*", "a%2A")
	f.Fuzz(func(t *testing.T, first, second string) {
		a, errA := EncodeKey(first)
		b, errB := EncodeKey(second)
		if errA != nil || errB != nil {
			return
		}
		if (first == second) != (a == b) {
			t.Fatalf("keys %q and %q have subjects %q and %q", first, second, a, b)
		}
	})
}
