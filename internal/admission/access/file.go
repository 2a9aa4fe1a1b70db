package access

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/base/strict"
)

// Load reads a file of clients. Errors name the line.
func Load(name string) (*Clients, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the clients: %w", err)
	}
	defer file.Close()
	return Parse(file)
}

// the longest key, and more stars than it needs
const (
	mostClients = 100_000
	mostText    = 512
)

type entry struct {
	Name         string   `json:"name"`
	Rights       []string `json:"rights"`
	Policies     []string `json:"policies"`
	Keys         []string `json:"keys" null:"refused"`
	Tokens       []string `json:"tokens" secret:"true"`
	Certificates []string `json:"certificates"`
	Claims       []string `json:"claims"` // of OIDC: groups=operators
}

// Parse reads clients. Its errors never quote a possible token.
func Parse(file io.Reader) (*Clients, error) {
	f, err := strict.Read(file)
	if err != nil {
		return nil, err
	}
	var document struct {
		OIDC    *OIDC   `json:"oidc"`
		Clients []entry `json:"clients"`
	}
	f.Decode(&document)
	p := parser{File: f, names: map[string]bool{}, clients: &Clients{
		tokens: map[[8]byte][]known{}, certificates: map[string]*Client{}}}
	f.Require("clients")
	if len(document.Clients) > mostClients {
		f.Add("clients", "must have at most %d entries", mostClients)
	} else {
		for i, e := range document.Clients {
			p.client(fmt.Sprintf("clients[%d]", i), e)
		}
	}
	p.oidc(document.OIDC)
	if err := f.Err(); err != nil {
		return nil, err
	}
	return p.clients, nil
}

type parser struct {
	*strict.File
	clients *Clients
	names   map[string]bool
}

func (p *parser) client(place string, e entry) {
	c := &Client{Name: e.Name, policies: e.Policies, keys: e.Keys}
	switch {
	case c.Name == "" || len(c.Name) > 64 || strings.ContainsFunc(c.Name, notForNames):
		p.Add(place+".name", "want 1 to 64 letters, digits or any of . _ - @ /")
	case p.names[c.Name]:
		p.Add(place+".name", "%q is already the name of another client", c.Name)
	}
	p.names[c.Name] = true
	p.texts(place+".rights", e.Rights, true, "submit")
	for at, word := range e.Rights {
		i := slices.Index(words, word)
		if i < 0 {
			p.Add(item(place+".rights", at), "%.32q: want %s%s", word, strings.Join(words, ", "),
				nearest.Hint(word, words))
			continue
		}
		c.rights |= 1 << i
	}
	p.texts(place+".policies", e.Policies, true, "*")
	for i, pattern := range c.policies {
		not := notForPolicies
		if strings.HasPrefix(pattern, Envoy) {
			not = notForDomains
		}
		if strings.ContainsFunc(pattern, not) || pattern == "" {
			p.Add(item(place+".policies", i),
				"%.64q: want policy names; * matches anything", pattern)
		}
	}
	if e.Keys == nil {
		c.keys = patterns{"*"}
	}
	p.texts(place+".keys", e.Keys, e.Keys != nil, "acme.*")
	p.texts(place+".tokens", e.Tokens, e.Tokens != nil, "sha256:…")
	p.texts(place+".certificates", e.Certificates, e.Certificates != nil, "billing.example.com")
	p.texts(place+".claims", e.Claims, e.Claims != nil, "groups=operators")
	if len(e.Tokens)+len(e.Certificates)+len(e.Claims) == 0 {
		p.Add(place, "requires tokens, certificates or claims: otherwise no request can match it")
	}
	for i, text := range e.Claims {
		p.claim(item(place+".claims", i), text, c)
	}
	for i, text := range e.Tokens {
		p.token(item(place+".tokens", i), text, c)
	}
	for i, name := range e.Certificates {
		if name == "" || p.clients.certificates[name] != nil {
			p.Add(item(place+".certificates", i), "%.80q is empty, or another client's", name)
		}
		p.clients.certificates[name] = c
	}
	p.clients.all = append(p.clients.all, c)
}

func (p *parser) token(place, text string, c *Client) {
	digits, ok := strings.CutPrefix(text, "sha256:")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != len(sum{}) {
		p.Add(place, "want sha256: and 64 hexadecimal digits, as `admitter token` prints "+
			"them, not the token itself")
		return
	}
	s := sum(raw)
	for _, k := range p.clients.tokens[s.handle()] {
		if k.sum == s {
			p.Add(place, "contains a token that is already listed for %q", k.client.Name)
			return
		}
	}
	p.clients.tokens[s.handle()] = append(p.clients.tokens[s.handle()], known{s, c})
}

func (p *parser) texts(place string, texts []string, needed bool, example string) {
	if needed && len(texts) == 0 {
		p.Add(place, "want a list of strings, such as [%q]", example)
	}
	for i, text := range texts {
		if !utf8.ValidString(text) || len(text) > mostText {
			p.Add(item(place, i), "want strings of at most %d bytes", mostText)
		}
	}
}

func item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

func notForNames(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.ContainsRune("._-@/", c))
}

func notForDomains(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func notForPolicies(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '*')
}

// Line returns the line of a file of clients that lists a new client, with the [Sum] of its
// token.
func Line(name string, rights, policies, keys []string, token string) string {
	flow := func(texts []string) string {
		quoted := make([]string, len(texts))
		for i, text := range texts {
			quoted[i] = fmt.Sprintf("%q", text)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	line := fmt.Sprintf("  - {name: %q, rights: [%s], policies: %s, ", name,
		strings.Join(rights, ", "), flow(policies))
	if len(keys) > 0 {
		line += "keys: " + flow(keys) + ", "
	}
	return line + `tokens: ["` + Sum(token) + `"]}`
}
