package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/policyfile"
	"github.com/penstock-mq/penstock/internal/strict"
	"github.com/penstock-mq/penstock/policy"
)

// policyDocument is a policy as the server tells it.
type policyDocument struct {
	Policy policy.Policy `json:"policy"`
	api.PolicyState
}

type allPolicies struct{ Policies []policyDocument }

func (a *app) policyNames(ctx context.Context) (names []string, err error) {
	var all allPolicies
	_, err = a.get(ctx, path("policies"), &all)
	for _, p := range all.Policies {
		names = append(names, p.Policy.Name)
	}
	return names, err
}

func (a *app) names(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion,
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

func (a *app) policies() *cobra.Command {
	g := group("policies", "List, show and write policies", a.policiesList(), a.policiesShow(),
		a.policiesApply())
	g.Aliases = []string{"policy"}
	return g
}

func (a *app) policiesList() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List all policies",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return call(cmd.Context(), a, request{path: path("policies")}, a.policyTable)
		},
	}
}

func (a *app) policyTable(all allPolicies) error {
	return list(a, "POLICY|ALGORITHM|RATE|CAPACITY|STATE|FROM", all.Policies,
		func(p policyDocument) row {
			capacity := ""
			if p.Policy.Capacity != 0 {
				capacity = strconv.FormatInt(p.Policy.Capacity, 10)
			}
			return row{p.Policy.Name, p.Policy.Algorithm, rate(p.Policy), capacity,
				policyState(p.PolicyState), strings.TrimSpace(p.Source + " " + p.Set)}
		})
}

func rate(p policy.Policy) string {
	var parts []string
	if own := cmp.Or(p.Outflow, p.Refill); !own.IsZero() {
		parts = append(parts, own.String())
	}
	if !p.OutflowTotal.IsZero() {
		parts = append(parts, "all "+p.OutflowTotal.String())
	}
	if p.Window != 0 {
		parts = append(parts, fmt.Sprintf("%d in %v", p.Limit, p.Window))
	}
	if len(p.Limits) > 0 {
		parts = append(parts, count(len(p.Limits), "limit", "limits"))
	}
	return strings.Join(parts, ", ")
}

func policyState(p api.PolicyState) string {
	switch {
	case p.Deleting:
		return "deleting"
	case p.Retired:
		return "retired"
	case p.Paused:
		return "paused"
	}
	return "active"
}

func (a *app) policiesShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show POLICY",
		Short: "Show a policy with its defaults, as YAML",
		RunE: func(cmd *cobra.Command, args []string) error {
			type shown struct {
				api.PolicyState
				Text json.RawMessage `json:"policy"`
			}
			return call(cmd.Context(), a, request{path: a.path("policies")}, func(p shown) error {
				text, err := asYAML(p.Text)
				if err != nil {
					return err
				}
				return a.printf("# %s, revision %d, from %s\n%s", policyState(p.PolicyState),
					p.Revision, strings.TrimSpace(p.Source+" "+p.Set), text)
			})
		},
	}
}

// asYAML keeps the order of fields.
func asYAML(text []byte) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	var unstyle func(n *yaml.Node)
	unstyle = func(n *yaml.Node) {
		n.Style = 0
		for _, inner := range n.Content {
			unstyle(inner)
		}
	}
	unstyle(&node)
	return yaml.Marshal(&node)
}

func (a *app) policiesApply() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Create or replace policies from a file",
		Long: `Creates or replaces the policies in a YAML or JSON file: a configuration file with a
list "policies", or a single policy. "-" reads standard input. Other policies are not changed.
A policy that is refused does not keep the next ones from being applied.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := a.readPolicies(cmd.Context(), args[0])
			if err != nil {
				return usageError{err}
			}
			var failed []error
			for _, p := range all {
				err := a.apply(cmd.Context(), p, dry)
				if err != nil {
					failed = append(failed, ofPolicy{err, p.Name})
				}
				if code := status(err); code == exitUnavailable || code == exitInterrupted {
					break
				}
			}
			return errors.Join(failed...)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "validate without writing")
	return cmd
}

func (a *app) readPolicies(ctx context.Context, name string) ([]policy.Policy, error) {
	in, err := a.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	f, err := strict.Read(in)
	if err != nil {
		return nil, err
	}
	policies := policyfile.Read(f, nil)
	if !f.Has(policyfile.Policies) {
		if !f.Has("algorithm") && !f.Has("limits") {
			return nil, fmt.Errorf("%s: want a list \"policies\", or one policy", name)
		}
		policies = make([]policy.Policy, 1)
		f.Decode(&policies[0])
	}
	return policies, f.Err()
}

func (a *app) apply(ctx context.Context, p policy.Policy, dry bool) error {
	query := ""
	if dry {
		query = "?dry_run=1"
	}
	var before policyDocument
	_, err := a.get(ctx, path("policies", p.Name), &before)
	if found, ok := errors.AsType[*problem](err); err != nil &&
		(!ok || found.Status != http.StatusNotFound) {
		return err
	}
	isNew := err != nil
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return call(ctx, a, request{method: http.MethodPut, path: path("policies", p.Name) + query,
		body: body}, func(after policyDocument) error {
		verb := "changed"
		switch {
		case isNew:
			verb = "created"
		case len(after.Changed) == 0:
			verb = "unchanged"
		}
		return a.changed(p.Name, verb, after.Changed, dry)
	})
}

// ofPolicy begins each line of an error with the policy's name.
type ofPolicy struct {
	error
	name string
}

func (o ofPolicy) Error() string {
	return o.name + ": " + strings.ReplaceAll(o.error.Error(), "\n", "\n"+o.name+": ")
}

func (o ofPolicy) Unwrap() error { return o.error }

func (a *app) changed(what, verb string, changes []string, dry bool) error {
	if dry {
		verb = "would be " + verb
	}
	if len(changes) > 0 {
		verb += ": " + strings.Join(changes, ", ")
	}
	return a.printf("%s %s\n", plain(what), verb)
}
