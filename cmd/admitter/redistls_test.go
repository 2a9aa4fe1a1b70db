package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
)

func TestRedisTLS(t *testing.T) {
	dir := t.TempDir()
	ours, other := newAuthority(t, dir, "ours"), newAuthority(t, dir, "other")
	serverCert, serverKey := ours.issue(t, "server", "redis.internal")
	clientCert, clientKey := ours.issue(t, "client", "")
	_, otherKey := other.issue(t, "stranger", "")
	_, port, err := net.SplitHostPort(proctest.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	s := redistest.Start(t, "--tls-port", port, "--tls-auth-clients", "yes", "--tls-ca-cert-file",
		ours.file,
		"--tls-cert-file", serverCert, "--tls-key-file", serverKey)
	rules := serverRules + " " + databaseRule
	admin := protect(t, s, rules)
	good := config.Redis{
		Addrs: []string{net.JoinHostPort("127.0.0.1", port)}, Prefix: "penstock", DB: 1,
		Username: user, Password: password,
		TLS: config.TLS{Enabled: true, CA: ours.file, Cert: clientCert, Key: clientKey,
			ServerName: "redis.internal"},
	}
	_, client := dial(t, good)
	useAll(t, client)
	expectUsed(t, rules, admin)
	if keys, err := admin.Info(t.Context(), "keyspace").Result(); err != nil ||
		!strings.Contains(keys, "db1:") {
		t.Errorf("state.redis.db is 1, and the keys are %q, %v", keys, err)
	}

	for name, c := range map[string]struct {
		change func(c *config.Redis)
		why    string
	}{
		"another CA": {func(c *config.Redis) {
			c.TLS.CA = other.file
		}, "unknown authority"},
		"the system's CAs": {func(c *config.Redis) { c.TLS.CA = "" }, "unknown authority"},
		"another name": {func(c *config.Redis) {
			c.TLS.ServerName = "redis.example"
		}, "not redis.example"},
		"the address as a name": {func(c *config.Redis) { c.TLS.ServerName = "" }, "127.0.0.1"},
		"no certificate": {func(c *config.Redis) {
			c.TLS.Cert, c.TLS.Key = "", ""
		}, "certificate required"},
		"in the clear":       {func(c *config.Redis) { c.TLS.Enabled = false }, "EOF"},
		"a wrong password":   {func(c *config.Redis) { c.Password = "sesame" }, "WRONGPASS"},
		"no user":            {func(c *config.Redis) { c.Username = "" }, "AUTH"},
		"a prefix of others": {func(c *config.Redis) { c.Prefix = "others" }, "NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := good
			c.change(&changed)
			expectRefused(t, changed, c.why)
		})
	}

	noPEM := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(noPEM, []byte("no certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing.pem")
	for name, c := range map[string]struct {
		change func(c *config.TLS)
		want   string
	}{
		"no CA file":       {func(c *config.TLS) { c.CA = missing }, missing},
		"a CA without PEM": {func(c *config.TLS) { c.CA = noPEM }, noPEM},
		"no certificate":   {func(c *config.TLS) { c.Cert = missing }, missing},
		"no key":           {func(c *config.TLS) { c.Key = missing }, missing},
		"a key of another's": {func(c *config.TLS) {
			c.Key = otherKey
		}, "private key does not match"},
	} {
		t.Run("files/"+name, func(t *testing.T) {
			changed := good
			c.change(&changed.TLS)
			rdb, err := openRedis(changed)
			if err == nil {
				_ = rdb.Close()
			}
			if err == nil || !strings.HasPrefix(err.Error(), "state.redis.tls: ") ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}

	// All certificates are replaced, by another authority; new connections read the files again.
	strangerCert, strangerKey := other.issue(t, "client", "")
	for from, to := range map[string]string{other.file: ours.file, strangerCert: clientCert,
		strangerKey: clientKey} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	newCert, newKey := other.issue(t, "server", "redis.internal")
	for _, command := range [][]any{{"config", "set", "tls-ca-cert-file", other.file,
		"tls-cert-file", newCert, "tls-key-file", newKey},
		{"client", "kill", "type", "normal", "skipme", "yes"}} {
		if err := admin.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(command[:2], err)
		}
	}
	eventually(t, "a decision by what was issued anew", func() bool {
		_, err := newBucket(client).Take(t.Context(), "another key", 1)
		return err == nil
	})
}

type authority struct {
	dir, file string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{dir: dir}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign}
	a.file, _ = a.sign(t, template)
	return a
}

// issue writes a certificate and its key to files: of a server at host, or of a client if host is
// empty.
func (a *authority) issue(t *testing.T, name, host string) (cert, key string) {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if host != "" {
		template.DNSNames, template.ExtKeyUsage = []string{host},
			[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	return a.sign(t, template)
}

func (a *authority) sign(t *testing.T, template *x509.Certificate) (certFile, keyFile string) {
	t.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert == nil {
		a.cert, a.key = template, key
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(suffix, kind string, der []byte) string {
		name := filepath.Join(a.dir, template.Subject.CommonName+suffix)
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
			0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	return write(".crt", "CERTIFICATE", signed), write(".key", "PRIVATE KEY", private)
}
