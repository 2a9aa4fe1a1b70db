// Package guard protects a server with TLS and authentication, and follows their files.
package guard

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/hosts"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

type Options struct {
	Listen   string // "host:port"; empty: no server
	Tokens   string // file of clients; empty: no access control
	TLS      Files
	Insecure bool // permits other machines without access control
	// Of is the section of the settings; empty: http. The embedded NATS server has users instead of
	// tokens.
	Of string
	// Named is the section of TLS and Insecure, if they are not of Of.
	Named string
}

func (o Options) section() string { return cmp.Or(o.Named, o.Of, "http") }

func (o Options) clients() string {
	if o.Of == "" {
		return "http.tokens"
	}
	return o.Of + ".users"
}

// Check returns the invalid field, without reading files.
func (o Options) Check() (field string, err error) {
	if err := o.TLS.Check(); err != nil {
		return "tls", err
	}
	switch {
	case o.Of == "" && o.TLS.ClientCA != "" && o.Tokens == "":
		return "tls.client_ca", errors.New(
			"requires http.tokens, the file with the rights of each certificate")
	case o.Listen != "" && o.Tokens == "" && !o.Insecure && !hosts.IsLoopback(o.Listen):
		return "listen", fmt.Errorf("%q: other machines can reach this address, and without %s "+
			"they have full access; set it to a file of clients, listen on "+
			"127.0.0.1, or set %s.insecure: true", o.Listen, o.clients(), o.section())
	}
	return "", nil
}

// Warnings returns oddities that are not errors.
func (o Options) Warnings() []string {
	var found []string
	if o.Listen == "" || hosts.IsLoopback(o.Listen) {
		return nil
	}
	if o.Tokens == "" {
		found = append(found, o.section()+".insecure: everybody who reaches "+o.Listen+
			" may do everything")
	} else if o.TLS.Cert == "" {
		found = append(found, fmt.Sprintf("%s without %s.tls: what clients send, and passwords "+
			"and tokens with it, is in the clear to %s, unless a proxy in front of it has TLS",
			o.clients(), o.section(), o.Listen))
	}
	return found
}

// For a [follow.Status].
const (
	clientFiles      = "clients"
	certificateFiles = "certificates"
)

// Guard has nil contents for files that are not configured.
type Guard struct {
	clients *follow.Content[access.Clients]
	tls     *Keeper
	log     *slog.Logger
}

// Open reads the files. files receives the results of all reads.
func Open(o Options, files *follow.Status, log *slog.Logger) (*Guard, error) {
	g := &Guard{log: log, tls: &Keeper{}}
	if _, err := o.Check(); err != nil {
		return nil, err
	}
	var problems [2]error
	if o.Tokens != "" {
		g.clients, problems[0] = follow.Open(clientFiles, []string{o.Tokens},
			func() (*access.Clients, error) { return access.Load(o.Tokens) }, files)
	}
	if o.TLS.Cert != "" {
		g.tls, problems[1] = OpenTLS(certificateFiles, o.TLS, files)
	}
	return g, errors.Join(problems[:]...)
}

func (g *Guard) Clients() func() *access.Clients {
	if g.clients == nil {
		return nil
	}
	return g.clients.Current
}

// TLS is for servers of one protocol, as ALPN calls it.
func (g *Guard) TLS(protocol string) *tls.Config {
	if g.tls.Content == nil {
		return nil
	}
	return g.tls.Config(protocol)
}

func (g *Guard) Reload() error { return errors.Join(g.clients.Reload(), g.tls.Reload()) }

func (g *Guard) Run(ctx context.Context) error {
	return lifecycle.Run(ctx, g.clients.Follow(g.log), g.tls.Follow(g.log))
}
