package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/internal/base/clienttls"
)

type settings struct {
	server, token, tokenFile string
	caCert, cert, certKey    string
	timeout                  time.Duration
}

const defaultServer = "http://127.0.0.1:8080"

// variables are the flags that PENSTOCK_… variables can set. A flag overrides its variable and its
// partner's.
func (s *settings) variables() []variable {
	return []variable{
		{&s.server, "server", "server", "`URL` of the admitter"},
		{&s.token, "token", "token-file", "bearer `token`"},
		{&s.tokenFile, "token-file", "token", "`file` with the token"},
		{&s.caCert, "cacert", "cacert",
			"PEM `file` of trusted authorities, replacing the system's"},
		{&s.cert, "cert", "cert-key", "PEM `file` of the client certificate"},
		{&s.certKey, "cert-key", "cert", "PEM `file` of the certificate's key"},
	}
}

type variable struct {
	to                   *string
	flag, partner, usage string
}

func (v variable) name() string {
	return "PENSTOCK_" + strings.ToUpper(strings.ReplaceAll(v.flag, "-", "_"))
}

func (s *settings) flags(flags *pflag.FlagSet) {
	s.server = defaultServer
	for _, v := range s.variables() {
		flags.StringVar(v.to, v.flag, *v.to, v.usage+" ("+v.name()+")")
	}
	flags.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long to wait for an answer")
}

func (s *settings) client(flags *pflag.FlagSet) (*client, error) {
	for _, v := range s.variables() {
		if text := os.Getenv(v.name()); text != "" && !flags.Changed(v.flag) &&
			!flags.Changed(v.partner) {
			*v.to = text
		}
	}
	full := s.server
	if !strings.Contains(full, "://") {
		full = "http://" + full
	}
	server, err := url.Parse(full)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" ||
		strings.Trim(server.Path, "/") != "" || server.RawQuery != "" || server.Fragment != "" ||
		server.User != nil || !isPort(cmp.Or(server.Port(), "80")) {
		return nil, fmt.Errorf("server: %q: want a URL such as %s", s.server, defaultServer)
	}
	if s.timeout <= 0 {
		return nil, fmt.Errorf("timeout: %v: want more than 0", s.timeout)
	}
	token := s.token
	if token == "" && s.tokenFile != "" {
		text, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("token: contains an invalid character")
	}
	if s.cert == "" && s.certKey != "" {
		return nil, errors.New("cert-key: requires --cert")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, err = clienttls.Files{CA: s.caCert, Cert: s.cert,
		Key: cmp.Or(s.certKey, s.cert)}.Config()
	return &client{
		server:  server.Scheme + "://" + server.Host,
		token:   token,
		timeout: s.timeout,
		http:    &http.Client{Transport: transport, CheckRedirect: noRedirect},
	}, err
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// noRedirect keeps the token from other hosts; an admitter never redirects.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
