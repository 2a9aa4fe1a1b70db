package access

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/internal/server/hosts"
)

// OIDC names the OpenID Connect provider whose tokens identify clients by their claims.
type OIDC struct {
	Issuer   string `json:"issuer"`
	Audience string `json:"audience"`
	CA       string `json:"ca"` // file of trusted certificates; empty: the system's
}

// Verifier checks a token and returns its claims; [ErrProvider] says that the provider is away.
type Verifier func(ctx context.Context, token string) (claims map[string]any, err error)

// NewVerifier makes verifiers; nil in programs that do not link package openid.
var NewVerifier func(OIDC) Verifier

type claim struct {
	name, value string
	client      *Client
}

func (p *parser) oidc(o *OIDC) {
	if o == nil {
		if len(p.clients.claims) > 0 {
			p.Add("oidc", "is required: clients have claims")
		}
		return
	}
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Host == "" || u.User != nil ||
		u.Scheme != "https" && !(u.Scheme == "http" && hosts.IsLoopback(u.Host)) {
		p.Add("oidc.issuer", "want a URL such as https://login.example.com")
	}
	if o.Audience == "" {
		p.Add("oidc.audience", "is required: otherwise tokens for other services are accepted")
	}
	if NewVerifier == nil {
		p.Add("oidc", "is not supported by this program")
		return
	}
	p.clients.verify = NewVerifier(*o)
}

func (p *parser) claim(place, text string, c *Client) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" || value == "" {
		p.Add(place, "%.80q: want a claim and its value, such as groups=operators", text)
	}
	p.clients.claims = append(p.clients.claims, claim{name, value, c})
}

// withClaims returns the first client with a claim of a valid token, and adds the person's name. An
// address counts only if the provider has verified it.
func (cs *Clients) withClaims(ctx context.Context, token string) (*Client, error) {
	claims, err := cs.verify(ctx, token)
	switch {
	case errors.Is(err, ErrProvider):
		return nil, ErrProvider
	case err != nil:
		return nil, ErrUnknown
	}
	if claims["email_verified"] != true {
		delete(claims, "email")
	}
	has := func(c claim) bool {
		all, _ := claims[c.name].([]any)
		return claims[c.name] == c.value || slices.Contains(all, any(c.value))
	}
	i := slices.IndexFunc(cs.claims, has)
	if i < 0 {
		return nil, ErrUnknown
	}
	person := claims["email"]
	if person == nil {
		person = claims["sub"]
	}
	client := *cs.claims[i].client
	client.Name += "/" + strings.Map(func(c rune) rune {
		if notForNames(c) {
			return '?'
		}
		return c
	}, fmt.Sprintf("%.100v", person))
	return &client, nil
}
