// Package openid verifies tokens of OpenID Connect providers. Importing it lets files of clients
// name a provider; libraries do not link it.
package openid

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/base/clienttls"
)

const (
	// A provider's documents are requested at most once per rest, for any number of tokens.
	rest         = 10 * time.Second
	patience     = 5 * time.Second
	mostDocument = 1 << 20
)

// algorithms have public keys: with a shared secret, or unsigned, clients could forge tokens.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

func init() { access.NewVerifier = New }

// verifiers keep a provider's keys while the file of clients is read again.
var verifiers sync.Map // of *verifier, by access.OIDC

// New returns the verifier of a provider, without requesting its documents.
func New(o access.OIDC) access.Verifier {
	made, _ := verifiers.LoadOrStore(o, &verifier{of: o, client: &http.Client{
		Timeout: patience,
		Transport: &rare{base: clienttls.Files{CA: o.CA}.Transport(
			http.DefaultTransport.(*http.Transport).Clone()), last: map[string]attempt{}},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}})
	return made.(*verifier).claims
}

type verifier struct {
	of     access.OIDC
	client *http.Client

	mu   sync.Mutex
	made *oidc.IDTokenVerifier // nil: the provider is not known yet
}

// Checked are signature, algorithm, issuer, audience and time.
func (v *verifier) claims(ctx context.Context, token string) (claims map[string]any, err error) {
	defer func() {
		if err != nil {
			slog.DebugContext(ctx, "a token is refused", "issuer", v.of.Issuer, "error", err)
		}
	}()
	with, err := v.ready()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	checked, err := with.Verify(ctx, token)
	switch {
	case err != nil && (ctx.Err() != nil || strings.Contains(err.Error(),
		access.ErrProvider.Error())): // which the verifier does not wrap
		return nil, fmt.Errorf("%w: %w", access.ErrProvider, err)
	case err != nil:
		return nil, err
	}
	return claims, checked.Claims(&claims)
}

func (v *verifier) ready() (*oidc.IDTokenVerifier, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.made == nil {
		// The provider's keys are requested with this context too.
		ctx := oidc.ClientContext(context.Background(), v.client)
		provider, err := oidc.NewProvider(ctx, v.of.Issuer)
		if _, unasked := errors.AsType[*url.Error](err); err != nil && !unasked {
			slog.Warn("the OpenID provider cannot be used: its tokens are refused", "issuer",
				v.of.Issuer, "error", err)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", access.ErrProvider, err)
		}
		v.made = provider.Verifier(&oidc.Config{ClientID: v.of.Audience,
			SupportedSigningAlgs: algorithms})
	}
	return v.made, nil
}

// rare bounds the requests for each document, and their answers.
type rare struct {
	base http.RoundTripper

	mu   sync.Mutex
	last map[string]attempt
}

type attempt struct {
	at  time.Time
	err error
}

func (r *rare) RoundTrip(request *http.Request) (*http.Response, error) {
	at, now := request.URL.String(), time.Now()
	r.mu.Lock()
	last := r.last[at]
	early := now.Sub(last.at) < rest
	if !early {
		r.last[at] = attempt{now, access.ErrProvider}
	}
	r.mu.Unlock()
	if early {
		return nil, cmp.Or(last.err, errors.New("the provider was asked a moment ago"))
	}
	response, err := r.base.RoundTrip(request)
	if err == nil {
		var text []byte
		text, err = io.ReadAll(io.LimitReader(response.Body, mostDocument))
		_ = response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(text))
		if err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
	}
	if err != nil {
		slog.WarnContext(request.Context(),
			"the OpenID provider does not answer: its tokens may be refused", "url", at, "error",
			err)
		return nil, fmt.Errorf("%w: %w", access.ErrProvider, err)
	}
	r.mu.Lock()
	r.last[at] = attempt{now, nil}
	r.mu.Unlock()
	return response, nil
}
