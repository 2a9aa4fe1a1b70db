package httptarget

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/penstock-mq/penstock/policy"
)

const (
	// mostTokenWait bounds a request for a token.
	mostTokenWait = 10 * time.Second
	// leastTokenLife is the least age of a token replaced because of a 401, and the pause after a
	// failed renewal.
	leastTokenLife = time.Second
	// forever is the life of tokens that do not expire.
	forever = 10 * 365 * 24 * time.Hour
)

type tokens struct {
	client *http.Client
	secret *secret
	config clientcredentials.Config

	turn chan struct{}

	mu      sync.Mutex
	current token
}

// token is usable until end, and renewed by one job from renewal on.
type token struct {
	value               string
	since, renewal, end time.Time
}

func newTokens(of *policy.OAuth2, client *http.Client) *tokens {
	params := url.Values{}
	for name, value := range of.Params {
		params.Set(name, value)
	}
	return &tokens{client: client, turn: make(chan struct{}, 1),
		secret: &secret{name: "client_secret", file: of.ClientSecretFile},
		config: clientcredentials.Config{ClientID: of.ClientID, TokenURL: of.TokenURL,
			Scopes: of.Scopes, EndpointParams: params}}
}

// get returns a token. While one is usable, only the job that renews it waits.
func (t *tokens) get(ctx context.Context) (string, error) {
	now, usable, due := t.look()
	if usable && !due {
		return now.value, nil
	}
	ctx, cancel := context.WithTimeout(ctx, mostTokenWait)
	defer cancel()
	if usable {
		select {
		case t.turn <- struct{}{}:
		default:
			return now.value, nil
		}
	} else {
		select {
		case t.turn <- struct{}{}:
		case <-ctx.Done():
			return "", fmt.Errorf("token of the target: %w", ctx.Err())
		}
	}
	defer func() { <-t.turn }()
	if now, usable, due = t.look(); usable && !due { // by the job before
		return now.value, nil
	}
	next, err := t.request(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.current = next
		return next.value, nil
	case usable:
		t.current.renewal = time.Now().Add(leastTokenLife)
		return now.value, nil
	}
	return "", fmt.Errorf("token of the target: %w", err)
}

func (t *tokens) look() (now token, usable, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, at := t.current, time.Now()
	return now, now.value != "" && at.Before(now.end), !at.Before(now.renewal)
}

func (t *tokens) refused(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current.value == value && time.Since(t.current.since) >= leastTokenLife {
		t.current = token{}
	}
}

// request asks for a token. Its errors quote only an answer's code (RFC 6749, section 5.2).
func (t *tokens) request(ctx context.Context) (made token, err error) {
	if t.config.ClientSecret, err = t.secret.read(); err != nil {
		return token{}, fmt.Errorf("client_secret: %w", err)
	}
	got, err := t.config.Token(context.WithValue(ctx, oauth2.HTTPClient, t.client))
	refused, answered := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case answered:
		return token{}, fmt.Errorf("%s answered %d %.64q", t.config.TokenURL,
			refused.Response.StatusCode, refused.ErrorCode)
	case err != nil:
		return token{}, marked(fmt.Errorf("%s: %w", t.config.TokenURL, withoutURL(err)))
	}
	life := forever
	now := time.Now()
	if !got.Expiry.IsZero() {
		life = got.Expiry.Sub(now)
	}
	return token{value: got.Type() + " " + got.AccessToken, since: now,
		renewal: now.Add(life / 4 * 3), end: now.Add(life / 10 * 9)}, nil
}
