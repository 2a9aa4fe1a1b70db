// Package clienttls reads the files of TLS clients.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/penstock-mq/penstock/internal/server/follow"
)

// Files of trusted authorities (default: the system's) and of an optional client certificate.
type Files struct{ CA, Cert, Key string }

// FileError is an error about the files.
type FileError struct{ Err error }

func (e *FileError) Error() string { return "tls: " + e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// Config reads the files.
func (f Files) Config() (*tls.Config, error) {
	made := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, err
		}
		made.RootCAs = x509.NewCertPool()
		if !made.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: holds no certificate in PEM", f.CA)
		}
	}
	if f.Cert != "" {
		own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Cert, err)
		}
		made.Certificates = []tls.Certificate{own}
	}
	return made, nil
}

// Transport returns base with the files' TLS. After a change, later requests use new connections;
// while the files are invalid, requests fail. Without files it returns base.
func (f Files) Transport(base *http.Transport) http.RoundTripper {
	if f == (Files{}) {
		return base
	}
	return &transport{files: f, base: base, watch: follow.Watching(f.CA, f.Cert, f.Key)}
}

type transport struct {
	files Files
	base  *http.Transport

	mu    sync.Mutex
	watch *follow.Watch
	now   *http.Transport
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	now, err := t.current()
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, &FileError{err}
	}
	return now.RoundTrip(r)
}

func (t *transport) current() (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil && !t.watch.Stale() {
		return t.now, nil
	}
	t.watch.Seen() // before reading: a concurrent change must count
	config, err := t.files.Config()
	if t.now != nil {
		t.now.CloseIdleConnections()
		t.now = nil
	}
	if err != nil {
		return nil, err
	}
	t.now = t.base.Clone()
	t.now.TLSClientConfig = config
	return t.now, nil
}
