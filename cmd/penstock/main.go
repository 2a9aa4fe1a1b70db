// Command penstock is the command-line client of an admitter's HTTP API. With --json it prints the
// API's own answers.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/internal/base/clienttls"
	"github.com/penstock-mq/penstock/internal/base/nearest"
)

const statusHelp = `Exit status:
  0    done
  1    any other error
  2    invalid command line or request
  3    refused: a bucket is full, or a limit is exhausted
  4    no such policy, job or dead letter
  5    not permitted: wrong token, host or site
  6    not possible in the current state of the policy or job
  7    no answer, or service unavailable
  130  interrupted`

func main() {
	a := &app{Terminal: &cli.Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}}
	cli.Main(a.Terminal, a.root())
}

type app struct {
	*cli.Terminal
	settings settings
	*client

	// of the command
	policy, key string
	keyed       bool // --key is given
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "penstock",
		Short: "Submit jobs to Penstock, inspect them and manage policies",
		Long: "penstock submits jobs to an admitter over HTTP, explains why they wait, and\n" +
			"manages policies, buckets and dead letters.\n\n" + statusHelp,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			a.client, err = a.settings.client(cmd.Root().PersistentFlags())
			return err
		},
	}
	a.settings.flags(root.PersistentFlags())
	root.AddCommand(a.submit(), a.check(), a.policies(), a.rate(), a.pause(), a.resume(),
		a.buckets(), a.purge(), a.jobCommand(), a.history(), a.cancel(), a.why(), a.dead(),
		a.schedules(), a.drainers(), a.audit(), a.tail(), a.top())
	for _, cmd := range cli.All(root) {
		a.prepare(cmd)
	}
	cli.Complete(root, a.Terminal)
	return root
}

// prepare lets a command note what it is about, complete policies and explain problems.
func (a *app) prepare(cmd *cobra.Command) {
	run, ofPolicy := cmd.RunE, strings.Contains(cmd.Use, "POLICY")
	if run == nil {
		return
	}
	if ofPolicy {
		cmd.ValidArgsFunction = a.completed
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.keyed = cmd.Flags().Changed("key")
		if ofPolicy && len(args) > 0 && !isJob(args[0]) {
			a.policy = args[0]
		}
		err := run(cmd, args)
		p, ok := errors.AsType[*problem](err)
		if ok && a.JSON && len(p.body) > 0 {
			fmt.Fprintf(a.Out, "%s\n", p.body)
		}
		if ok && p.Status == http.StatusNotFound && a.policy != "" {
			return a.hinted(cmd.Context(), err)
		}
		return err
	}
}

func (a *app) hinted(ctx context.Context, err error) error {
	names, listErr := a.policyNames(ctx)
	if listErr != nil || slices.Contains(names, a.policy) {
		return err
	}
	return fmt.Errorf("%w%s", err, nearest.Hint(a.policy, names))
}

func (a *app) completed(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective) {

	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var err error
	if a.client, err = a.settings.client(cmd.Root().PersistentFlags()); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	a.timeout = min(a.timeout, time.Second) // a shell waits
	names, err := a.policyNames(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

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
