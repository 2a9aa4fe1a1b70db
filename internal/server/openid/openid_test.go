package openid_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	_ "github.com/penstock-mq/penstock/internal/server/openid"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

var encode = base64.RawURLEncoding.EncodeToString

type provider struct {
	*httptest.Server
	t      *testing.T
	issuer string
	ca     string
	key    *ecdsa.PrivateKey
	asked  atomic.Int64
	broken atomic.Bool // its keys
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	authority := certtest.New(t)
	p := &provider{t: t, ca: authority.File, key: newKey(t)}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {

		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":"%s/keys"}`, cmp.Or(p.issuer, p.URL), p.URL)
		case "/keys":
			if p.asked.Add(1); p.broken.Load() {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			point, _ := p.key.PublicKey.Bytes()
			fmt.Fprintf(w, `{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","kid":"1","x":%q,`+
				`"y":%q}]}`, encode(point[1:33]), encode(point[33:]))
		}
	}))
	p.TLS = authority.Client("localhost")
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (p *provider) sign(key *ecdsa.PrivateKey, kid string, claims map[string]any) string {
	p.t.Helper()
	text := body("ES256", kid, claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		p.t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature)
}

func body(alg, kid string, claims map[string]any) string {
	text, _ := json.Marshal(claims)
	return encode(fmt.Appendf(nil, `{"alg":%q,"kid":%q}`, alg, kid)) + "." + encode(text)
}

func (p *provider) of(changes ...any) map[string]any {
	claims := map[string]any{"iss": p.URL, "aud": "penstock", "sub": "4711",
		"exp": time.Now().Add(time.Hour).Unix(), "groups": []string{"all", "operators"},
		"email": "ann@example.com", "email_verified": true}
	for i := 0; i < len(changes); i += 2 {
		claims[changes[i].(string)] = changes[i+1]
	}
	return claims
}

func (p *provider) file() string {
	return fmt.Sprintf(`
oidc: {issuer: %q, audience: penstock, ca: %q}
clients:
  - {name: auditor, rights: [read], policies: ["*"], claims: [email=bob@example.com]}
  - {name: operators, rights: [read, operate], policies: ["*"], claims: [groups=operators]}
`, p.URL, p.ca)
}

func (p *provider) clients() *access.Clients {
	p.t.Helper()
	clients, err := access.Parse(strings.NewReader(p.file()))
	if err != nil {
		p.t.Fatal(err)
	}
	return clients
}

func who(clients *access.Clients, token string) string {
	client, err := clients.Of(&http.Request{Header: http.Header{
		"Authorization": {"Bearer " + token}}})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %v", client.Name, client.Grant().Rights)
}

func TestTokensOfAProvider(t *testing.T) {
	p := newProvider(t)
	clients, nobody := p.clients(), access.ErrUnknown.Error()
	public, _ := p.key.PublicKey.Bytes()
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(body("HS256", "1", p.of())))
	past := time.Now().Add(-time.Minute).Unix()
	valid := p.sign(p.key, "1", p.of())
	for _, c := range []struct{ what, token, want string }{
		{"a group", valid, "operators/ann@example.com [read operate]"},
		{"an address", p.sign(p.key, "1", p.of("email", "bob@example.com", "groups", "none")),
			"auditor/bob@example.com [read]"},
		{"an address that is not verified", p.sign(p.key, "1", p.of("email", "bob@example.com",
			"email_verified", false, "groups", "none")), nobody},
		{"no address", p.sign(p.key, "1", p.of("email_verified", false)),
			"operators/4711 [read operate]"},
		{"a strange subject", p.sign(p.key, "1", p.of("email", nil, "sub", "a b\n")),
			"operators/a?b? [read operate]"},
		{"no claim of a client", p.sign(p.key, "1", p.of("groups", []string{"all"})), nobody},
		{"several audiences", p.sign(p.key, "1", p.of("aud", []string{"x", "penstock"})),
			"operators/ann@example.com [read operate]"},
		{"for another service", p.sign(p.key, "1", p.of("aud", "other")), nobody},
		{"of another issuer", p.sign(p.key, "1", p.of("iss", p.URL+"/other")), nobody},
		{"expired", p.sign(p.key, "1", p.of("exp", past)), nobody},
		{"without an expiry", p.sign(p.key, "1", p.of("exp", nil)), nobody},
		{"of another key", p.sign(newKey(t), "1", p.of()), nobody},
		{"unsigned", body("none", "1", p.of()) + ".", nobody},
		{"signed with the public key", body("HS256", "1", p.of()) + "." + encode(mac.Sum(nil)),
			nobody},
		{"changed", strings.Replace(valid, ".", ".A", 1), nobody},
		{"no token", "a.b.c", nobody},
	} {
		if got := who(clients, c.token); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	// Tokens of unknown keys must not make this process flood the provider.
	for i := range 50 {
		if got := who(clients, p.sign(newKey(t), fmt.Sprint("new-", i), p.of())); got != nobody {
			t.Fatal(got)
		}
	}
	if n := p.asked.Load(); n < 1 || n > 3 {
		t.Errorf("the provider was asked for its keys %d times", n)
	}
	if got := who(p.clients(), valid); got != "operators/ann@example.com [read operate]" {
		t.Errorf("after the file was read again: %s", got)
	}
}

func TestTheAuditListNamesThePerson(t *testing.T) {
	p := newProvider(t)
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(tokens, []byte(p.file()), 0o600); err != nil {
		t.Fatal(err)
	}
	mail, err := policy.Parse([]byte(
		`{"name":"mail","algorithm":"leaking_bucket","outflow":"1/s","capacity":9}`))
	if err != nil {
		t.Fatal(err)
	}
	var log waittest.Log
	service, err := penstock.Open(t.Context(), penstock.Options{
		Server: embedded.Options{Dir: t.TempDir()}, HTTP: penstock.HTTP{Tokens: tokens},
		Policies: []policy.Policy{mail}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	<-service.Ready()
	token := p.sign(p.key, "1", p.of())
	ask := func(method, path string) (int, string) {
		r := httptest.NewRequest(method, "http://localhost"+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		service.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if status, body := ask("DELETE", "/v1/policies/mail"); status != 403 {
		t.Errorf("without the right: %d %s", status, body)
	}
	if status, body := ask("POST", "/v1/pause/mail"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := ask("GET", "/v1/audit"); status != 200 ||
		!strings.Contains(body, `"by":"operators/ann@example.com"`) ||
		strings.Contains(body, token) || strings.Contains(log.String(), token) {
		t.Errorf("%d %s", status, body)
	}
	other := newProvider(t)
	other.Close()
	if err := os.WriteFile(tokens, []byte(other.file()), 0o600); err != nil {
		t.Fatal(err)
	}
	token = other.sign(other.key, "1", other.of())
	waittest.Until(t, "the provider that is down is used", func() bool {
		status, body := ask("GET", "/v1/audit")
		return status == 503 && strings.Contains(body, `"reason":"openid"`)
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTokensOfAProviderThatIsDownAreNotJudged(t *testing.T) {
	defer slog.SetDefault(slog.New(slog.DiscardHandler))
	for says, mistake := range map[string]func(p *provider){
		"the OpenID provider does not answer": func(p *provider) { p.Close() },
		"the OpenID provider cannot be used":  func(p *provider) { p.issuer = "https://other" },
	} {
		var log waittest.Log
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		p := newProvider(t)
		mistake(p)
		for range 3 {
			token := p.sign(p.key, "1", p.of())
			if got := who(p.clients(), token); got != access.ErrProvider.Error() {
				t.Error(got)
			}
			proxy, err := outbound.New(outbound.Options{Clients: p.clients,
				Routes: []outbound.Route{{Upstream: "http://localhost", Policy: "mail"}}})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Penstock-Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			proxy.ServeHTTP(w, r)
			if w.Code != 503 || w.Header().Get(outbound.ErrorHeader) != "openid" ||
				w.Header().Get("Retry-After") == "" {
				t.Errorf("a call: %d %v", w.Code, w.Header())
			}
		}
		if log.Count(says) != 1 || log.Count("level=WARN") != 1 {
			t.Errorf("want %q once:\n%s", says, log.String())
		}
	}
}

// A provider's keys may be known before it goes down, or only its address.
func TestAProviderGoesDown(t *testing.T) {
	for _, known := range []bool{true, false} {
		p := newProvider(t)
		p.broken.Store(!known)
		clients, token := p.clients(), p.sign(p.key, "1", p.of())
		first := who(clients, token)
		p.Close()
		want, forged := access.ErrProvider.Error(), access.ErrProvider.Error()
		if known { // It answered a moment ago.
			want, forged = "operators/ann@example.com [read operate]", access.ErrUnknown.Error()
		}
		if again := who(clients, token); first != want || again != want {
			t.Errorf("keys known %t: %s, then %s; want %s", known, first, again, want)
		}
		if got := who(clients, p.sign(newKey(t), "new", p.of())); got != forged {
			t.Errorf("keys known %t, forged: %s, want %s", known, got, forged)
		}
		if n := p.asked.Load(); n != 1 {
			t.Errorf("keys known %t: asked %d times", known, n)
		}
	}
}

func TestMistakesAreReported(t *testing.T) {
	const client = "\nclients: [{name: a, rights: [read], policies: ['*'], claims: ["
	for text, want := range map[string]string{
		client + "g=o]}]": "oidc: is required: clients have claims",
		"oidc: {issuer: 'http://login.example.com', audience: a}" + client + "g=o]}]": "" +
			"oidc.issuer: want a URL such as https://login.example.com",
		"oidc: {issuer: 'https://login.example.com'}" + client + "g=o]}]": "" +
			"oidc.audience: is required",
		"oidc: {issuer: 'https://a', audience: a}" + client + "g]}]": "" +
			`clients[0].claims[0]: "g": want a claim and its value`,
	} {
		if _, err := access.Parse(strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
