package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// TargetHeaders are added to each request by the drainer. They are for credentials, so the values
// come from files on its machine, and only policies of the operator's file have them.
type TargetHeaders map[string]HeaderFile

// HeaderFile is the file of a header's value, without its last line break. It is reread when it
// changes.
type HeaderFile struct {
	File string `json:"file"` // an absolute path
}

func (t TargetHeaders) check(c *checker) {
	const field = "target.http.headers"
	if len(t) > 16 {
		c.add(field, "must be at most 16, not %d", len(t))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		lower, file := strings.ToLower(name), t[name].File
		switch {
		case name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
		}):
			c.add(field, "%s: is not a header's name", quote(name))
		case strings.HasPrefix(lower, "penstock-"),
			slices.Contains([]string{"host", "content-length", "connection",
				"transfer-encoding", "idempotency-key", "te", "trailer", "upgrade"}, lower):
			c.add(field, "%s: is set by the drainer", quote(name))
		case file == "":
			c.add(fmt.Sprintf("%s.%s.file", field, name), "is required")
		case !strings.HasPrefix(file, "/"):
			c.add(fmt.Sprintf("%s.%s.file", field, name),
				"%s: want a path from the root, as in /run/secrets/token", quote(file))
		}
	}
}

func (s *Signing) check(c *checker) {
	const field = "target.http.sign.hmac_file"
	switch {
	case s == nil:
	case s.HMACFile == "":
		c.add(field, "is required")
	case !strings.HasPrefix(s.HMACFile, "/"):
		c.add(field, "%s: want a path from the root, as in /run/secrets/key", quote(s.HMACFile))
	}
}
