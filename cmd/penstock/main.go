// Command penstock is the command-line client of an admitter's HTTP API. With --json it prints the
// API's own answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
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
	a.prepare(root)
	cli.Complete(root, a.Terminal)
	return root
}

// prepare lets commands note what they are about, complete policies and explain problems.
func (a *app) prepare(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.prepare(sub)
	}
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
