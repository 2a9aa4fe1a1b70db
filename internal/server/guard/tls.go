package guard

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/penstock-mq/penstock/internal/server/follow"
)

// Files of a server: certificate chain, key, and optionally the authorities of client certificates.
// Zero is no TLS.
type Files struct{ Cert, Key, ClientCA string }

func (f Files) Names() []string { return []string{f.Cert, f.Key, f.ClientCA} }

func (f Files) Check() error {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return errors.New("requires both cert and key, or neither")
	case f.ClientCA != "" && f.Cert == "":
		return errors.New("client_ca requires cert and key: client certificates are part of TLS")
	}
	return nil
}

// Keeper holds the last valid files; without files Content is nil.
type Keeper struct{ *follow.Content[tls.Config] }

func OpenTLS(kind string, files Files, status *follow.Status) (*Keeper, error) {
	k := &Keeper{}
	content, err := follow.Open(kind, files.Names(), func() (*tls.Config, error) {
		next, err := files.Load()
		if err == nil && k.Content != nil && expired(next) && !expired(k.Current()) {
			return nil, fmt.Errorf("read the certificate %s: it expired on %s", files.Cert,
				next.Certificates[0].Leaf.NotAfter.UTC().Format(time.RFC3339))
		}
		return next, err
	}, status)
	k.Content = content
	return k, err
}

func expired(c *tls.Config) bool { return time.Now().After(c.Certificates[0].Leaf.NotAfter) }

func (f Files) Load() (*tls.Config, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s: %w", f.Cert, err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{certificate},
		MinVersion:   tls.VersionTLS12,
		// A resumed session would not verify the client certificate again.
		SessionTicketsDisabled: true,
	}
	if f.ClientCA != "" {
		text, err := os.ReadFile(f.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("read client_ca: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read client_ca: %s has no certificate",
				f.ClientCA)
		}
		// clients without a certificate may have a token, or request health
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config, nil
}

// Demanding requires client certificates, if there are authorities, and leaves the protocol open.
func (k *Keeper) Demanding() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := k.Current().Clone()
			if config.ClientCAs != nil {
				config.ClientAuth = tls.RequireAndVerifyClientCert
			}
			return config, nil
		},
	}
}

// Config uses the current files for each connection.
func (k *Keeper) Config(protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := k.Current().Clone()
			config.NextProtos = []string{protocol}
			return config, nil
		},
	}
}
