package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
)

// Realm is the challenge of answers with status 401 (RFC 6750).
const Realm = `Bearer realm="penstock"`

var (
	// ErrNobody: the request carries no credentials.
	ErrNobody = errors.New("want a token (Authorization: Bearer TOKEN) or a client certificate")
	// ErrUnknown: nobody has these credentials.
	ErrUnknown = errors.New("the token or certificate belongs to no known client")
	// ErrProvider: the token may be valid
	ErrProvider = errors.New("the OpenID provider does not answer")
)

// Challenge returns the WWW-Authenticate header for a failed authentication (RFC 6750).
func Challenge(err error) string {
	if errors.Is(err, ErrUnknown) {
		return Realm + `, error="invalid_token"`
	}
	return Realm
}

// tokenPrefix lets secret scanners recognize tokens.
const tokenPrefix = "pst_"

// NewToken returns a random token of 256 bits, for a client's Authorization header.
func NewToken() string {
	bits := make([]byte, sha256.Size)
	_, _ = rand.Read(bits)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(bits)
}

// Sum returns the hash of a token that a file of clients stores: "sha256:" and hexadecimal
// digits.
func Sum(token string) string {
	s := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(s[:])
}

type sum [sha256.Size]byte

// handle is the looked-up part of a hash; the rest is compared in constant time.
func (s sum) handle() [8]byte { return [8]byte(s[:8]) }

// Clients identifies the clients of a file by their tokens, certificates or claims.
type Clients struct {
	tokens       map[[8]byte][]known
	certificates map[string]*Client
	claims       []claim
	verify       Verifier
	all          []*Client
}

type known struct {
	sum    sum
	client *Client
}

// Len returns the number of clients.
func (cs *Clients) Len() int { return len(cs.all) }

// Of identifies a client by its token, or without one by its verified certificate.
func (cs *Clients) Of(r *http.Request) (*Client, error) {
	if given := r.Header["Authorization"]; len(given) > 0 {
		scheme, token, _ := strings.Cut(given[0], " ")
		if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
			return nil, ErrUnknown
		}
		token = strings.TrimSpace(token)
		client, err := cs.withToken(token)
		if err != nil && cs.verify != nil && strings.Count(token, ".") == 2 {
			client, err = cs.withClaims(r.Context(), token)
		}
		return client, err
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return cs.withCertificate(r.TLS.VerifiedChains[0][0])
	}
	return nil, ErrNobody
}

func (cs *Clients) withToken(token string) (*Client, error) {
	s := sum(sha256.Sum256([]byte(token)))
	var found *Client
	for _, k := range cs.tokens[s.handle()] {
		if subtle.ConstantTimeCompare(k.sum[:], s[:]) == 1 {
			found = k.client
		}
	}
	if found == nil {
		return nil, ErrUnknown
	}
	return found, nil
}

// withCertificate uses the alternative names, URIs before domains, or else the common name.
func (cs *Clients) withCertificate(c *x509.Certificate) (*Client, error) {
	var names []string
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	if names = append(names, c.DNSNames...); len(names) == 0 {
		names = append(names, c.Subject.CommonName)
	}
	for _, name := range names {
		if client := cs.certificates[name]; client != nil {
			return client, nil
		}
	}
	return nil, ErrUnknown
}
