package guard_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

func TestListeningElsewhereNeedsAuthentication(t *testing.T) {
	for _, c := range []struct {
		options guard.Options
		field   string
	}{
		{guard.Options{}, ""},
		{guard.Options{Listen: "127.0.0.1:80"}, ""},
		{guard.Options{Listen: "127.3.2.1:80"}, ""},
		{guard.Options{Listen: "[::1]:80"}, ""},
		{guard.Options{Listen: "LocalHost:80"}, ""},
		{guard.Options{Listen: "[::ffff:127.0.0.1]:80"}, ""},
		{guard.Options{Listen: ":80"}, "listen"},
		{guard.Options{Listen: "0.0.0.0:80"}, "listen"},
		{guard.Options{Listen: "[::]:80"}, "listen"},
		{guard.Options{Listen: "10.0.0.1:80"}, "listen"},
		{guard.Options{Listen: "localhost.example.com:80"}, "listen"},
		{guard.Options{Listen: "127.0.0.1.example.com:80"}, "listen"},
		{guard.Options{Listen: ":80", Insecure: true}, ""},
		{guard.Options{Listen: ":80", Tokens: "f"}, ""},
		{guard.Options{Listen: ":80", TLS: guard.Files{Cert: "c", Key: "k"}}, "listen"},
		{guard.Options{TLS: guard.Files{Cert: "c"}}, "tls"},
		{guard.Options{Of: "nats.embedded", Listen: ":4222"}, "listen"},
		{guard.Options{Of: "nats.embedded", Listen: ":4222",
			TLS: guard.Files{Cert: "c", Key: "k", ClientCA: "a"}}, "listen"},
		{guard.Options{Of: "nats.embedded", TLS: guard.Files{Cert: "c", Key: "k", ClientCA: "a"}},
			""},
		{guard.Options{TLS: guard.Files{ClientCA: "c"}}, "tls"},
		{guard.Options{TLS: guard.Files{Cert: "c", Key: "k", ClientCA: "a"}}, "tls.client_ca"},
	} {
		if field, err := c.options.Check(); field != c.field || (err == nil) != (field == "") {
			t.Errorf("%+v: %q, %v", c.options, field, err)
		}
	}
}

func serve(t *testing.T, o guard.Options, log *waittest.Log) (address string) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(log, nil))
	g, err := guard.Open(o, new(follow.Status), logger)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := g.Clients()().Of(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, client.Name)
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- lifecycle.Run(ctx, g.Run,
			lifecycle.HTTP(listener, who,
				lifecycle.HTTPOptions{TLS: g.TLS("http/1.1"), Logger: logger}))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func ask(t *testing.T, address string, config *tls.Config, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "https://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config,
		DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(body))
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestClientsAreKnownOverTLSAndFilesAreFollowed(t *testing.T) {
	authority, other := certtest.New(t), certtest.New(t)
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	line := func(name, token string) string {
		return access.Line(name, []string{"read"}, []string{"*"}, nil, token) + "\n"
	}
	const dashboard = "  - {name: dash, rights: [read], policies: [p], certificates: [dash]}\n"
	write(t, tokens, "clients:\n"+line("first", "one")+dashboard)
	files := guard.Files{ClientCA: authority.File}
	files.Cert, files.Key = authority.Issue("server")
	log := &waittest.Log{}
	address := serve(t, guard.Options{Tokens: tokens, TLS: files}, log)

	asks := func(what string, config *tls.Config, token string, status int, body string) {
		t.Helper()
		if got, text := ask(t, address, config, token); got != status ||
			!strings.Contains(text, body) {
			t.Errorf("%s: %d %s", what, got, text)
		}
	}
	asks("a token", authority.Client(""), "one", 200, "first")
	asks("a certificate", authority.Client("dash"), "", 200, "dash")
	asks("one that is not listed", authority.Client("stranger"), "", 401, "no known client")
	asks("nobody", authority.Client(""), "", 401, "or a client certificate")
	forged := authority.Client("")
	forged.Certificates = other.Client("dash").Certificates
	asks("one of another authority", forged, "", 0, "")
	old := authority.Client("")
	old.MaxVersion = tls.VersionTLS11
	asks("an old version", old, "one", 0, "")

	if response, err := http.Get("http://" + address + "/"); err == nil {
		response.Body.Close()
		t.Error("it speaks plain HTTP as well")
	}

	// While a token is replaced both are valid. Then an invalid file is ignored.
	write(t, tokens, "clients:\n"+line("first", "one")+line("second", "the second")+dashboard)
	waittest.Until(t, "the new token counts", func() bool {
		status, _ := ask(t, address, authority.Client(""), "the second")
		return status == 200
	})
	asks("the old token", authority.Client(""), "one", 200, "first")
	write(t, tokens, "clients: [secret")
	waittest.Until(t, "the bad file is told of", func() bool {
		return log.Count("the previous ones stay") == 1
	})
	asks("the second, beside a bad file", authority.Client(""), "the second", 200, "second")
	write(t, tokens, "clients:\n"+line("second", "the second")+dashboard)
	waittest.Until(t, "the old token is gone", func() bool {
		status, _ := ask(t, address, authority.Client(""), "one")
		return status == 401
	})
	shown := func() string {
		conn, err := tls.Dial("tcp", address, authority.Client(""))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := shown()
	write(t, files.Cert, "no certificate")
	waittest.Until(t, "the bad certificate is told of", func() bool {
		return log.Count("the previous ones stay") == 2
	})
	asks("beside a bad certificate", authority.Client(""), "the second", 200, "second")
	authority.Ends = time.Now().Add(-time.Minute)
	authority.Issue("server")
	waittest.Until(t, "the expired certificate is told of", func() bool {
		return log.Count("it expired on ") == 1
	})
	asks("beside an expired certificate", authority.Client(""), "the second", 200, "second")
	authority.Ends = time.Time{}
	if again, _ := authority.Issue("server"); again != files.Cert {
		t.Fatal(again)
	}
	waittest.Until(t, "the new certificate is shown", func() bool {
		return shown() != before
	})
	if text := log.String(); strings.Contains(text, "the second") ||
		strings.Contains(text, "[secret") {
		t.Errorf("the log has a token:\n%s", text)
	}
}
