package main

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/roles"
)

func TestTheEmbeddedServersCertificateIsReloaded(t *testing.T) {
	authority, other := certtest.New(t), certtest.New(t)
	users := newNATSUsers(t)
	users.add("shop", roles.Producer, ", policies: [mail]")
	cert, key := authority.Issue("server")
	for setting, file := range map[string]string{"CERT": cert, "KEY": key,
		"CLIENT_CA": authority.File} {
		t.Setenv("PENSTOCK_NATS_EMBEDDED_TLS_"+setting, file)
	}
	p := launch(t, "--config", configure(t, closedPolicies), "--nats-users", users.file,
		"--nats-listen", "0.0.0.0:0").ready()
	p.posts("/v1/jobs/mail/k", "x", 202)

	address := strings.TrimPrefix(p.nats, "tls://0.0.0.0")
	if address == p.nats {
		t.Fatalf("the ready line says %s", p.nats)
	}
	address = "127.0.0.1" + address
	seed, err := nats.NkeyOptionFromSeed(users.seed("shop"))
	if err != nil {
		t.Fatal(err)
	}
	connect := func(config *tls.Config) error {
		nc, err := nats.Connect(address, seed, nats.Secure(config),
			nats.Timeout(waittest.Patience()), nats.CustomInboxPrefix(roles.Inbox("shop")))
		if err != nil {
			return err
		}
		nc.Close()
		return nil
	}
	if err := connect(authority.Client("shop")); err != nil {
		t.Error(err)
	}

	forged := authority.Client("")
	forged.Certificates = other.Client("shop").Certificates
	old := authority.Client("shop")
	old.MaxVersion = tls.VersionTLS11
	for who, config := range map[string]*tls.Config{
		"who does not know the authority":    other.Client("shop"),
		"who shows no certificate":           authority.Client(""),
		"who shows one of another authority": forged,
		"who speaks an old version":          old,
	} {
		if err := connect(config); err == nil {
			t.Errorf("%s is let in", who)
		}
	}
	if got := plainly(t, address); strings.Contains(got, "PONG") {
		t.Errorf("who speaks plainly is answered %q", got)
	}

	// An invalid certificate is ignored; a valid one is used for new connections.
	shown := func() (serial string) {
		config := authority.Client("shop")
		config.VerifyConnection = func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.String()
			return nil
		}
		if err := connect(config); err != nil {
			t.Error(err)
		}
		return serial
	}
	before := shown()
	if err := os.WriteFile(cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bad certificate is told of", func() bool {
		return strings.Contains(p.Log.String(), "changed files are invalid: the previous ones "+
			`stay in force" files="nats certificates"`)
	})
	if during := shown(); during != before {
		t.Errorf("beside a bad file %s is shown, not %s", during, before)
	}
	authority.Issue("server")
	eventually(t, "the new certificate is shown", func() bool { return shown() != before })

	// It survives a change of the users.
	users.add("gate", roles.Checker, ", policies: [polite]")
	eventually(t, "the users have changed", func() bool {
		return strings.Contains(p.Log.String(),
			`changed files reloaded" files="nats users"`)
	})
	if err := connect(authority.Client("")); err == nil {
		t.Error("who shows no certificate is let in once the users have changed")
	}
	if err := connect(authority.Client("shop")); err != nil {
		t.Error(err)
	}
}

func plainly(t *testing.T, address string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(waittest.Patience())); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(conn)
	info, err := said.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "CONNECT {\"verbose\":false}\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(said)
	return info + string(rest)
}
