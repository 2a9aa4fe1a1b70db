package docs

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/policy"
)

// TestNightlySync follows docs/nightly-sync.md on one machine. Directories of services are below a
// temporary one, hosts are ports of this one, and the certificate is of an authority that only the
// page's shell and services trust. systemd needs a machine of its own: a stand-in runs the units'
// commands (systemd_test.go), and neither isolates them nor fires their timers.
func TestNightlySync(t *testing.T) {
	countsArrivals(t, "nightly-sync.md")
	clone, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	s := &systemd{t: t, root: t.TempDir()}
	exchange := []string{"../penstock", clone}
	for _, address := range []string{"127.0.0.1:8082", "127.0.0.1:9000", "n1.example.com:4222",
		"n1.example.com:6222", "n2.example.com:4222", "n2.example.com:6222", "n3.example.com:4222",
		"n3.example.com:6222"} {
		exchange = append(exchange, address, proctest.FreeAddress(t))
	}
	certificate := "/etc/letsencrypt/live/sync.example.com/"
	s.certify(certificate)
	exchange = append(exchange, certificate[:len(certificate)-1],
		filepath.Join(s.root, certificate), "sync.example.com", "localhost")
	for _, place := range places {
		if err := os.MkdirAll(s.root+place, 0o700); err != nil {
			t.Fatal(err)
		}
		exchange = append(exchange, place, s.root+place)
	}
	if err := os.MkdirAll(s.root+"/var/backups", 0o700); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Setenv("SYSTEMD", server.URL)
	newReader(t, exchange...).follow("nightly-sync.md")
}

// countsArrivals checks that the page's configuration is valid as it is, and that each limit of it
// counts from the answer.
func countsArrivals(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, settings, _ := strings.Cut(string(text), "```yaml\n# file: penstock.yaml\n")
	settings, _, _ = strings.Cut(settings, "```")
	loaded, err := config.Load(strings.NewReader(settings), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded.Policies) != 3 {
		t.Errorf("%d policies", len(loaded.Policies))
	}
	for _, p := range loaded.Policies {
		for _, l := range p.Limits {
			if l.CountFrom != policy.CountFromAnswer {
				t.Errorf("the limit %s of %s counts from %q", l.Name, p.Name, l.CountFrom)
			}
		}
	}
}

// certify writes the certificate of the page's host.
func (s *systemd) certify(dir string) {
	s.t.Helper()
	authority := certtest.New(s.t)
	for _, name := range []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"} {
		s.t.Setenv(name, trust(s.t, authority.File, os.Getenv(name)))
	}
	cert, key := authority.Issue("sync.example.com")
	for name, from := range map[string]string{"fullchain.pem": cert, "privkey.pem": key} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(s.root+dir, 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(s.root, dir, name), text, 0o600)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// trust returns a file with the certificates of an authority and those of another file, if there is
// one.
func trust(t *testing.T, authority, others string) string {
	t.Helper()
	all, err := os.ReadFile(authority)
	if err == nil && others != "" {
		var more []byte
		more, err = os.ReadFile(others)
		all = append(all, more...)
	}
	file := filepath.Join(t.TempDir(), "trusted.pem")
	if err == nil {
		err = os.WriteFile(file, all, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}
