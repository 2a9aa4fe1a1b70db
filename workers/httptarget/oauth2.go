package httptarget

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/penstock-mq/penstock/internal/base/clienttls"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
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

// mostSecret bounds a secret file, in bytes.
const mostSecret = 16 << 10

// secret is a header field with a value from a file.
type secret struct {
	name, file string

	mu    sync.Mutex
	value string
	watch *follow.Watch // since before the read; nil: unread
}

func newSecrets(headers policy.TargetHeaders) []*secret {
	var secrets []*secret
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		secrets = append(secrets, &secret{name: name, file: headers[name].File})
	}
	return secrets
}

func (s *secret) add(header http.Header) error {
	value, err := s.read()
	if err != nil {
		return fmt.Errorf("header %s of the target: %w", s.name, err)
	}
	header.Set(s.name, value)
	return nil
}

// marked marks an error about files of TLS. A mistake on the drainer's machine must not cost the
// job attempts.
func marked(err error) error {
	if _, own := errors.AsType[*clienttls.FileError](err); own {
		return workers.Misconfigured(err)
	}
	return err
}

// read returns errors marked by [workers.Misconfigured].
func (s *secret) read() (string, error) {
	value, err := s.current()
	return value, workers.Misconfigured(err)
}

func (s *secret) current() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch != nil && !s.watch.Stale() {
		return s.value, nil
	}
	s.watch = nil
	watch := follow.Watching(s.file)
	info, err := os.Stat(s.file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file", s.file)
	}
	file, err := os.Open(s.file)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, mostSecret+1))
	if err != nil {
		return "", err
	}
	value := strings.TrimRight(string(content), "\r\n")
	switch {
	case len(content) > mostSecret:
		return "", fmt.Errorf("%s is larger than %d bytes", s.file, mostSecret)
	case value == "":
		return "", fmt.Errorf("%s is empty", s.file)
	case strings.ContainsFunc(value, control):
		return "", fmt.Errorf("%s holds control characters, which no header can carry", s.file)
	}
	s.value, s.watch = value, watch
	return value, nil
}

// signatureHeader has the time of a request and its signature: t=1795341600,v1=5257a8….
const signatureHeader = "Penstock-Signature"

// leastKey is the least length of signing keys, in bytes.
const leastKey = 16

func newKey(s *policy.Signing) *secret {
	if s == nil {
		return nil
	}
	return &secret{name: signatureHeader, file: s.HMACFile}
}

// sign adds the HMAC-SHA256 of the Unix time, a dot and the body.
func (s *secret) sign(header http.Header, body []byte, now time.Time) error {
	key, err := s.read()
	if err == nil && len(key) < leastKey {
		err = workers.Misconfigured(fmt.Errorf("%s holds less than %d bytes", s.file, leastKey))
	}
	if err != nil {
		return fmt.Errorf("key of the target's signatures: %w", err)
	}
	at := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	header.Set(signatureHeader, "t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
	return nil
}
