package access

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/internal/nearest"
	"github.com/penstock-mq/penstock/internal/yamlfile"
)

// File is a list of clients that can change. Its methods may be called from many goroutines.
type File struct {
	name    string
	clients atomic.Pointer[Clients]
}

// Open reads a file.
func Open(name string) (*File, error) {
	f := &File{name: name}
	return f, f.Reload()
}

// Name is that of the file.
func (f *File) Name() string { return f.name }

// Reload reads the file again. A bad one changes nothing.
func (f *File) Reload() error {
	clients, err := Load(f.name)
	if err == nil {
		f.clients.Store(clients)
	}
	return err
}

// Clients are those that the file listed when it was last good.
func (f *File) Clients() *Clients { return f.clients.Load() }

// Load reads a file. Its error joins everything that is wrong, each with its line.
func Load(name string) (*Clients, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the clients: %w", err)
	}
	defer file.Close()
	return Parse(file)
}

// mostBytes is the size of the largest file that is read, and mostClients how many it may list.
const (
	mostBytes   = 16 << 20
	mostClients = 100_000
)

// Parse reads the YAML of a file of clients. It quotes no value that might be a token.
func Parse(file io.Reader) (*Clients, error) {
	var name string
	if named, ok := file.(interface{ Name() string }); ok {
		name = named.Name()
	}
	text, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the clients: %w", err)
	}
	if len(text) > mostBytes {
		return nil, yamlfile.Join(name, []yamlfile.Problem{{Line: 1,
			Reason: fmt.Sprintf("is larger than %d MiB", mostBytes>>20)}})
	}
	doc, err := yamlfile.Read(bytes.NewReader(text))
	if p, ok := errors.AsType[yamlfile.Problem](err); ok {
		return nil, yamlfile.Join(name, []yamlfile.Problem{p})
	}
	if err != nil {
		return nil, err
	}
	p := parser{problems: doc.Problems, clients: &Clients{tokens: map[[8]byte][]known{},
		certificates: map[string]*Client{}}, names: map[string]bool{}}
	p.file(doc.Tree)
	for i, problem := range p.problems {
		if problem.Line == 0 {
			p.problems[i].Line = max(1, doc.Line(problem.Place))
		}
	}
	if err := yamlfile.Join(name, p.problems); err != nil {
		return nil, err
	}
	return p.clients, nil
}

// parser reads a file, and notes what is wrong.
type parser struct {
	problems []yamlfile.Problem
	clients  *Clients
	names    map[string]bool
}

func (p *parser) bad(place, format string, args ...any) {
	p.problems = append(p.problems,
		yamlfile.Problem{Place: place, Reason: fmt.Sprintf(format, args...)})
}

func (p *parser) file(tree map[string]any) {
	p.unknown("", tree, "clients")
	list, ok := tree["clients"].([]any)
	switch {
	case tree["clients"] == nil:
		p.bad("clients", "is missing: a list of clients; [] is none")
	case !ok:
		p.bad("clients", "want a list")
	case len(list) > mostClients:
		p.bad("clients", "are more than %d", mostClients)
	default:
		for i, item := range list {
			p.client(fmt.Sprintf("clients[%d]", i), item)
		}
	}
}

// unknown notes fields that mean nothing.
func (p *parser) unknown(place string, fields map[string]any, want ...string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(want, name) {
			p.bad(strings.TrimPrefix(place+"."+name, "."), "unknown key%s",
				nearest.Hint(name, want))
		}
	}
}

func (p *parser) client(place string, item any) {
	fields, ok := item.(map[string]any)
	if !ok {
		p.bad(place, "want fields: name, rights, policies, and tokens or certificates")
		return
	}
	p.unknown(place, fields, "name", "rights", "policies", "keys", "tokens", "certificates")
	c := &Client{}
	c.Name, _ = fields["name"].(string)
	switch {
	case c.Name == "" || len(c.Name) > 64 || strings.ContainsFunc(c.Name, notForNames):
		p.bad(place+".name", "want 1 to 64 letters, digits or any of . _ - @ /")
	case p.names[c.Name]:
		p.bad(place+".name", "%q is the name of another client already", c.Name)
	}
	p.names[c.Name] = true
	for _, word := range p.texts(place, "rights", fields, true) {
		i := slices.Index(words, word)
		if i < 0 {
			p.bad(place+".rights", "%.32q: want %s%s", word, strings.Join(words, ", "),
				nearest.Hint(word, words))
			continue
		}
		c.rights |= 1 << i
	}
	c.policies = p.texts(place, "policies", fields, true)
	for _, pattern := range c.policies {
		not := notForPolicies
		if strings.HasPrefix(pattern, Envoy) {
			not = notForDomains
		}
		if strings.ContainsFunc(pattern, not) || pattern == "" {
			p.bad(place+".policies",
				"%.64q: want names of policies, in which * stands for anything", pattern)
		}
	}
	c.keys = patterns{"*"}
	if _, given := fields["keys"]; given {
		c.keys = p.texts(place, "keys", fields, true)
	}
	tokens := p.texts(place, "tokens", fields, false)
	certificates := p.texts(place, "certificates", fields, false)
	if len(tokens)+len(certificates) == 0 {
		p.bad(place, "has neither tokens nor certificates: nobody can be this client")
	}
	for _, text := range tokens {
		p.token(place+".tokens", text, c)
	}
	for _, name := range certificates {
		if name == "" || p.clients.certificates[name] != nil {
			p.bad(place+".certificates", "%.80q is empty, or that of another client already", name)
		}
		p.clients.certificates[name] = c
	}
	p.clients.all = append(p.clients.all, c)
}

// token notes the sum of a client's token.
func (p *parser) token(place, text string, c *Client) {
	digits, ok := strings.CutPrefix(text, "sha256:")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != len(sum{}) {
		p.bad(place, "want sha256: and 64 digits, as `admitter token` prints them, "+
			"and not the token itself")
		return
	}
	s := sum(raw)
	for _, k := range p.clients.tokens[s.handle()] {
		if k.sum == s {
			p.bad(place, "holds a token that is listed already, as one of %q", k.client.Name)
			return
		}
	}
	p.clients.tokens[s.handle()] = append(p.clients.tokens[s.handle()], known{s, c})
}

// texts reads a list of texts, which must not be empty where it must be there. Neither it nor its
// elements are quoted.
func (p *parser) texts(place, field string, fields map[string]any, must bool) []string {
	place += "." + field
	value, given := fields[field]
	list, ok := value.([]any)
	switch {
	case !given && !must:
		return nil
	case !ok || len(list) == 0:
		p.bad(place, "want a list of texts, such as [%q]", example[field])
		return nil
	}
	var texts []string
	for _, item := range list {
		text, ok := item.(string)
		if !ok || !utf8.ValidString(text) || len(text) > mostText {
			p.bad(place, "want texts of at most %d bytes; quote what YAML takes for something else",
				mostText)
			continue
		}
		texts = append(texts, text)
	}
	return texts
}

// mostText is the longest text of a list, in bytes: the longest key, and more stars than it needs.
const mostText = 512

var example = map[string]string{"rights": "submit", "policies": "*", "keys": "acme.*",
	"tokens": "sha256:…", "certificates": "billing.example.com"}

func notForNames(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.ContainsRune("._-@/", c))
}

func notForDomains(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func notForPolicies(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '*')
}

// Line returns how a file lists a client with a token.
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
