package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/internal/base/strict"
)

func TestPatternsMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"*", "a/b", true}, {"", "", true}, {"", "a", false},
		{"stripe", "stripe", true}, {"stripe", "stripe2", false}, {"stripe", "Stripe", false},
		{"team-*", "team-a", true}, {"team-*", "team-", true}, {"team-*", "team", false},
		{"team-*", "a-team-a", false}, {"*-eu", "mail-eu", true}, {"*-eu", "mail-eu-2", false},
		{"a*b", "ab", true}, {"a*b", "a", false}, {"aba*aba", "aba", false},
		{"aba*aba", "abaaba", true}, {"a*b*c", "axbxbxc", true}, {"a*b*c", "axcxb", false},
		{"**", "x", true}, {"a.*", "a.b\nc", true}, {"ä*", "äx", true}, {"a?", "ab", false},
	} {
		if got := match(c.pattern, c.text); got != c.want {
			t.Errorf("%q and %q: %t", c.pattern, c.text, got)
		}
	}
}

func FuzzPatternsAreRegularExpressions(f *testing.F) {
	f.Add("a*b*c", "axbxbxc")
	f.Add("aba*aba", "aba")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if strings.Count(pattern, "*") > 20 || !utf8.ValidString(pattern) ||
			!utf8.ValidString(text) {
			return
		}
		want := regexp.MustCompile(
			`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + `\z`)
		if got := match(pattern, text); got != want.MatchString(text) {
			t.Errorf("%q and %q: %t", pattern, text, got)
		}
	})
}

const file = `
clients:
  - name: billing
    rights: [submit, check]
    policies: [stripe, "team-*"]
    keys: ["acme.*", ""]
    tokens:
      - sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08   # test
      - sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752   # test2
  - name: reader
    rights: [read]
    policies: ["*"]
    certificates: [reader.example.com, "spiffe://example.com/reader", common]
`

func TestRightsOfClients(t *testing.T) {
	clients, err := Parse(strings.NewReader(file))
	if err != nil || clients.Len() != 2 {
		t.Fatal(err)
	}
	billing, err := clients.Of(request("Bearer test"))
	if err != nil || billing.Name != "billing" {
		t.Fatal(billing, err)
	}
	for _, c := range []struct {
		what string
		got  bool
		want bool
	}{
		{"a key of its own", billing.MayKey(Submit, "stripe", "acme.1"), true},
		{"the empty key", billing.MayKey(Check, "team-x", ""), true},
		{"a key of others", billing.MayKey(Submit, "stripe", "acmex"), false},
		{"a policy of others", billing.MayKey(Submit, "mail", "acme.1"), false},
		{"a right of others", billing.MayKey(Operate, "stripe", "acme.1"), false},
		{"a whole policy", billing.MayPolicy(Submit, "stripe"), false},
		{"everything", billing.MayAll(Submit), false},
		{"some", billing.May(Submit), true},
		{"none", billing.May(Admin), false},
		{"nobody", new(Client).May(Submit), false},
		{"nobody, with a key", new(Client).MayKey(Submit, "", ""), false},
		{"everyone", Everyone.MayAll(Admin), true},
	} {
		if c.got != c.want {
			t.Errorf("%s: %t", c.what, c.got)
		}
	}
}

func request(authorization ...string) *http.Request {
	return &http.Request{Header: http.Header{"Authorization": authorization}}
}

func certified(c x509.Certificate, authorization ...string) *http.Request {
	r := request(authorization...)
	if len(authorization) == 0 {
		delete(r.Header, "Authorization")
	}
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{&c}}}
	return r
}

func TestAClientIsKnownByTokenOrCertificate(t *testing.T) {
	clients, err := Parse(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	uri, err := url.Parse("spiffe://example.com/reader")
	if err != nil {
		t.Fatal(err)
	}
	unverified := certified(x509.Certificate{DNSNames: []string{"reader.example.com"}})
	unverified.TLS.PeerCertificates = unverified.TLS.VerifiedChains[0]
	unverified.TLS.VerifiedChains = nil
	for _, c := range []struct {
		what    string
		request *http.Request
		name    string
		err     error
	}{
		{"a token", request("Bearer test"), "billing", nil},
		{"another of its tokens", request("bearer  test2 "), "billing", nil},
		{"a wrong one", request("Bearer test3"), "", ErrUnknown},
		{"none", request(), "", ErrNobody},
		{"an empty one", request("Bearer "), "", ErrUnknown},
		{"no scheme", request("test"), "", ErrUnknown},
		{"another scheme", request("Basic test"), "", ErrUnknown},
		{"two", request("Bearer test", "Bearer test"), "", ErrUnknown},
		{"the sum in place of the token", request("Bearer " + Sum("test")), "", ErrUnknown},
		{"a domain", certified(x509.Certificate{DNSNames: []string{"x", "reader.example.com"}}),
			"reader", nil},
		{"a URI", certified(x509.Certificate{URIs: []*url.URL{uri}}), "reader", nil},
		{"a common name", certified(x509.Certificate{Subject: pkix.Name{CommonName: "common"}}),
			"reader", nil},
		{"a common name beside others", certified(x509.Certificate{DNSNames: []string{"x"},
			Subject: pkix.Name{CommonName: "common"}}), "", ErrUnknown},
		{"a certificate without names", certified(x509.Certificate{}), "", ErrUnknown},
		{"one that was not verified", unverified, "", ErrNobody},
		{"a wrong token beside a certificate", certified(
			x509.Certificate{DNSNames: []string{"reader.example.com"}}, "Bearer x"), "",
			ErrUnknown},
	} {
		if len(c.request.Header["Authorization"]) == 0 {
			delete(c.request.Header, "Authorization")
		}
		client, err := clients.Of(c.request)
		if !errors.Is(err, c.err) || err == nil && client.Name != c.name ||
			err != nil && client != nil {
			t.Errorf("%s: %+v, %v", c.what, client, err)
		}
	}
}

func TestMistakesInAFileAreReportedWithoutTokens(t *testing.T) {
	const (
		entry = "clients:\n  - {name: a, rights: [submit], policies: [p], "
		one   = "clients: [{certificates: [x], "
		list  = "want a list of strings"
		right = "rights: [read], "
	)
	for text, want := range map[string]string{
		"":                       "clients: is missing",
		"clients: {}":            "line 1: clients: want a list",
		"clients: [secret-text]": "line 1: clients[0]: want fields",
		"cleints: []":            "line 1: cleints: unknown field; did you mean clients?",
		"clients: [":             "is not YAML",
		entry + "tokens: [secret-text]}": "line 2: clients[0].tokens[0]: want sha256: and 64 " +
			"hexadecimal digits",
		entry + "tokens: [sha256:00]}": "clients[0].tokens[0]: want sha256:",
		entry + "tokens: 1754}": "clients[0].tokens: want a list, " +
			"not a number",
		entry + "tokens: [1754]}": "clients[0].tokens[0]: want text, not " +
			"a number",
		entry + "tokens: []}": "clients[0].tokens: " + list,
		entry + "certificates: [7]}": "clients[0].certificates[0]: 7: want " +
			"text",
		entry + "certificates: ['']}": "clients[0].certificates[0]: \"\" is " +
			"empty",
		entry + "keys: []}":    "clients[0].keys: " + list,
		entry + "keys: }":      "clients[0].keys: null: want a list",
		entry + "colour: red}": "clients[0].colour: unknown field",
		entry + "}": "clients[0]: requires tokens, " +
			"certificates or claims",
		entry + "keys: [" + strings.Repeat("x", 513) + "]}": "clients[0].keys[0]: want strings of",

		one + right + "policies: [p]}]":            "clients[0].name: want 1 to 64",
		one + right + "policies: [p], name: a b}]": "clients[0].name: want 1 to 64",
		one + right + "policies: [A], name: a}]":   "clients[0].policies[0]: \"A\"",
		one + right + "name: a}]":                  "clients[0].policies: " + list,
		one + "policies: [p], name: a}]":           "clients[0].rights: " + list,
		one + "rights: [sumbit], policies: [p]}]":  "did you mean submit?",
		one + right + "name: a, keys: ['', 1]}]":   "clients[0].keys[1]: 1: want text",
		file + "  - {name: reader, tokens: [common]}": "\"reader\" is already the name of " +
			"another client",
		"x: " + strings.Repeat("x", strict.MaxBytes): "is larger than 16 MiB",
	} {
		_, err := Parse(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100q: %.300v; want %q", text, err, want)
		} else if strings.Contains(err.Error(), "secret-text") ||
			strings.Contains(err.Error(), "1754") {
			t.Errorf("%v quotes what may be a token", err)
		}
	}
}

func TestANewTokenFitsItsLine(t *testing.T) {
	token := NewToken()
	if again := NewToken(); len(token) != len(tokenPrefix)+43 || token == again {
		t.Fatal(token, again)
	}
	line := Line("a@b", []string{"submit", "read"}, []string{"*"}, []string{`x"y`, "é"}, token)
	clients, err := Parse(strings.NewReader("clients:\n" + line))
	if err != nil {
		t.Fatal(line, err)
	}
	client, err := clients.Of(request("Bearer " + token))
	if err != nil || client.Name != "a@b" || !client.MayKey(Read, "p", `x"y`) ||
		client.MayKey(Read, "p", "x") || client.rights.String() != "submit,read" {
		t.Errorf("%+v, %v", client, err)
	}
	if strings.Contains(line, token) {
		t.Error("the line has the token")
	}
}
