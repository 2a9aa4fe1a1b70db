package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// TargetHeaders are added to requests by the drainer. They are for credentials: the values come
// from its files, and only policies of the operator's file have them.
type TargetHeaders map[string]HeaderFile

// HeaderFile is a file with a header's value, reread when it changes.
type HeaderFile struct {
	File string `json:"file"` // absolute
}

// UnmarshalJSON implements [json.Unmarshaler]. Its errors do not quote a value that stands in place
// of the file.
func (h *HeaderFile) UnmarshalJSON(data []byte) error {
	type fields HeaderFile
	if data[0] != '{' && string(data) != "null" {
		return errors.New("want {file: PATH}, an absolute path of a file with the value")
	}
	return json.Unmarshal(data, (*fields)(h))
}

// FromFiles lists the fields that are read from files.
func (t *HTTPTarget) FromFiles() (fields []string) {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"headers", len(t.Headers) > 0}, {"sign", t.Sign != nil}, {"oauth2", t.OAuth2 != nil},
		{"tls", t.TLS != ClientTLS{}},
	} {
		if f.given {
			fields = append(fields, f.name)
		}
	}
	return fields
}

func (t TargetHeaders) check(c *checker) {
	const field = "target.http.headers"
	if len(t) > 16 {
		c.add(field, "must have at most 16 headers, not %d", len(t))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		lower, file := strings.ToLower(name), t[name].File
		switch {
		case !tokenPattern.MatchString(name):
			c.add(field, "%s is not a header name", quote(name))
		case strings.HasPrefix(lower, "penstock-"),
			slices.Contains([]string{"host", "content-length", "connection",
				"transfer-encoding", "idempotency-key", "te", "trailer", "upgrade"}, lower):
			c.add(field, "%s is set by the drainer", quote(name))
		default:
			c.file(fmt.Sprintf("%s.%s.file", field, name), file)
		}
	}
}

func (s *Signing) check(c *checker) {
	if s != nil {
		c.file("target.http.sign.hmac_file", s.HMACFile)
	}
}

func (o *OAuth2) check(c *checker, headers TargetHeaders) {
	if o == nil {
		return
	}
	const at = "target.http.oauth2."
	u, err := url.Parse(o.TokenURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
		u.User != nil || u.Fragment != "" {
		c.add(at+"token_url", "want a URL such as https://login.example.com/token")
	}
	if o.ClientID == "" {
		c.add(at+"client_id", "is required")
	}
	c.file(at+"client_secret_file", o.ClientSecretFile)
	for name := range headers {
		if strings.EqualFold(name, "Authorization") {
			c.add("target.http.headers", "%s is set by oauth2", quote(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Params)) {
		if slices.Contains([]string{"", "grant_type", "client_id", "client_secret", "scope"},
			name) {
			c.add(at+"params", "%s is set by the drainer", quote(name))
		}
	}
	o.TLS.check(c, at+"tls")
}

func (t ClientTLS) check(c *checker, field string) {
	if (t.Cert == "") != (t.Key == "") {
		c.add(field, "requires both cert and key, or neither")
	}
	for _, f := range [][2]string{{".ca", t.CA}, {".cert", t.Cert}, {".key", t.Key}} {
		if f[1] != "" {
			c.file(field+f[0], f[1])
		}
	}
}

func (c *checker) file(field, name string) {
	switch {
	case name == "":
		c.add(field, "is required")
	case !strings.HasPrefix(name, "/"):
		c.add(field, "%s: want an absolute path such as /run/secrets/key", quote(name))
	}
}
