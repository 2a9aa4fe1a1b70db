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

// Realm is what a challenge names in WWW-Authenticate.
const Realm = `Bearer realm="penstock"`

var (
	// ErrNobody says that a request names no client: it has no token and no certificate.
	ErrNobody = errors.New("want a token as Authorization: Bearer TOKEN, or a certificate")
	// ErrUnknown says that the token or the certificate of a request is no client's.
	ErrUnknown = errors.New("the token or the certificate is that of no client")
)

// Challenge is the value of WWW-Authenticate in the answer to a request that is refused with one of
// the errors above (RFC 6750).
func Challenge(err error) string {
	if errors.Is(err, ErrUnknown) {
		return Realm + `, error="invalid_token"`
	}
	return Realm
}

// tokenPrefix begins all tokens, so that programs that look for secrets in texts know them.
const tokenPrefix = "pst_"

// NewToken returns a new token, with 256 random bits.
func NewToken() string {
	bits := make([]byte, sha256.Size)
	_, _ = rand.Read(bits) // never fails
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(bits)
}

// Sum is what a file holds of a token.
func Sum(token string) string {
	s := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(s[:])
}

// sum is what is known of a token.
type sum [sha256.Size]byte

// handle is the part of a sum that finds its client. Only what is left is a secret, and it is
// compared in constant time; neither is of use to somebody who cannot turn SHA-256 round.
func (s sum) handle() [8]byte { return [8]byte(s[:8]) }

// Clients are those of a file.
type Clients struct {
	tokens       map[[8]byte][]known
	certificates map[string]*Client
	all          []*Client
}

type known struct {
	sum    sum
	client *Client
}

// Len returns how many clients there are.
func (cs *Clients) Len() int { return len(cs.all) }

// Of returns the client that sent a request: the one with its token, or without one that with its
// certificate, which the server has verified. A token that is wrong is not made good by a
// certificate.
func (cs *Clients) Of(r *http.Request) (*Client, error) {
	if given := r.Header["Authorization"]; len(given) > 0 {
		scheme, token, _ := strings.Cut(given[0], " ")
		if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
			return nil, ErrUnknown
		}
		return cs.withToken(strings.TrimSpace(token))
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

// withCertificate looks for the names of a certificate, the alternative ones first: URIs, then
// domains. Its common name counts if it has none of these.
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
