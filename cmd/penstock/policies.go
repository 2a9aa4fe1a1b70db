package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
	Policy  policy.Policy  `json:"policy"`
	InForce *policy.Policy `json:"in_force"` // nil: as written
	api.PolicyState
}

func (p policyDocument) current() policy.Policy {
	return *cmp.Or(p.InForce, &p.Policy)
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
		a.policiesApply(), a.policiesOverride(), a.policiesRestore(),
		a.policiesOwner("take", "Let the file of a set take a policy of the API",
			"can be taken by the file of its set"),
		a.policiesOwner("release", "Make a policy of a file the API's", "belongs to the API"))
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
	return list(a, "POLICY|ALGORITHM|RATE|CAPACITY|STATE|FROM|OVERRIDDEN", all.Policies,
		func(p policyDocument) row {
			now := p.current()
			capacity := ""
			if now.Capacity != 0 {
				capacity = strconv.FormatInt(now.Capacity, 10)
			}
			return row{now.Name, now.Algorithm, rate(now), capacity, policyState(p.PolicyState),
				from(p.PolicyState), strings.Join(p.Overridden, "; ")}
		})
}

// from names the master of a policy.
func from(p api.PolicyState) string {
	switch {
	case p.Source == policy.SourceFile:
		return "file " + p.Set
	case p.Set != "":
		return "api, not in file " + p.Set
	}
	return p.Source
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
	case p.State == policy.StateDraining:
		return p.State
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
				head := fmt.Sprintf("%s, revision %d, from %s\n", policyState(p.PolicyState),
					p.Revision, from(p.PolicyState))
				for _, text := range p.Overridden {
					head += "# overridden: " + plain(text) + "\n"
				}
				return a.printf("# %s%s", head, text)
			})
		},
	}
}

func (a *app) policiesOverride() *cobra.Command {
	var l lasting
	cmd := &cobra.Command{
		Use:   "override POLICY FIELD=VALUE...",
		Short: "Override numbers of a policy, in an incident",
		Long: `Overrides outflow, peak, burst, concurrency, weight or a higher capacity of a policy at once,
whether it comes from a file or the API. It stays through restarts and changes of the file until
it expires or is removed; FIELD=default ends the override of a field.`,
		Example: "  penstock policies override billing concurrency=2 burst=1 --for 1h",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			fields := map[string]any{}
			for _, arg := range args[1:] {
				field, value, ok := strings.Cut(arg, "=")
				if !ok {
					return usageError{fmt.Errorf("%q: want FIELD=VALUE", arg)}
				}
				fields[field] = value
				if n, err := strconv.ParseInt(value, 10, 64); err == nil {
					fields[field] = n
				} else if value == "default" {
					fields[field] = nil
				}
			}
			return a.override(cmd.Context(), fields, l)
		},
	}
	cmd.Flags().BoolVar(&l.dry, "dry-run", false, "validate without writing")
	l.flags(cmd)
	return cmd
}

func (a *app) policiesRestore() *cobra.Command {
	return &cobra.Command{
		Use:   "restore POLICY",
		Short: "Remove all overrides of a policy, also its pause",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return call(cmd.Context(), a, request{method: http.MethodDelete,
				path: path("policies", a.policy, "override")}, func(p api.PolicyState) error {
				return a.changed(a.policy, "restored", p.Changed, false)
			})
		},
	}
}

// policiesOwner is take or release, which change the master of a policy.
func (a *app) policiesOwner(name, short, done string) *cobra.Command {
	set := ""
	cmd := &cobra.Command{
		Use:   name + " POLICY",
		Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to := a.path(name)
			if set != "" {
				to += "?set=" + url.QueryEscape(set)
			}
			return call(cmd.Context(), a, request{method: http.MethodPost, path: to},
				func(api.PolicyState) error { return a.printf("%s %s\n", a.policy, done) })
		},
	}
	if name == "take" {
		cmd.Flags().StringVar(&set, "set", policy.DefaultSet, "the `set` of the file")
	}
	return cmd
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
