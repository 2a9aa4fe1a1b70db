package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/base/strict"
)

// policyDocument is a policy as the server tells it.
type policyDocument struct {
	Policy  numbers  `json:"policy"`
	InForce *numbers `json:"in_force"` // nil: as written
	api.PolicyState
}

// numbers are what lists show of a policy.
type numbers struct {
	Name, Algorithm, Outflow, Refill, Window string

	OutflowTotal    string `json:"outflow_total"`
	Limit, Capacity int64
	Limits          []json.RawMessage
}

func (p policyDocument) current() numbers { return *cmp.Or(p.InForce, &p.Policy) }

type allPolicies struct{ Policies []policyDocument }

func (a *app) policyNames(ctx context.Context) (names []string, err error) {
	var all allPolicies
	_, err = a.get(ctx, path("policies"), &all)
	for _, p := range all.Policies {
		names = append(names, p.Policy.Name)
	}
	return names, err
}

func (a *app) policies() *cobra.Command {
	list := declare(a, &cobra.Command{Use: "ls", Short: "List all policies"}, "GET policies",
		func(all allPolicies) error {
			return list(a, "POLICY|ALGORITHM|LIMIT|CAPACITY|STATE|FROM|OVERRIDDEN", all.Policies,
				policyRow, "")
		})
	show := declare(a, &cobra.Command{
		Use: "show POLICY", Short: "Show a policy with its defaults, as YAML",
	}, "GET policies POLICY", a.policyShown)
	restore := declare(a, &cobra.Command{
		Use: "restore POLICY", Short: "Remove all overrides of a policy, also its pause",
	}, "DELETE policies POLICY override", func(p api.PolicyState) error {
		return a.changed(a.policy, "restored", p.Written)
	})
	take := declare(a, &cobra.Command{
		Use: "take POLICY", Short: "Let the file of a set take a policy of the API",
	}, "POST take POLICY ?set", func(api.PolicyState) error {
		return a.Printf("%s can be taken by the file of its set\n", a.policy)
	})
	take.Flags().String("set", "default", "the `set` of the file")
	release := declare(a, &cobra.Command{
		Use: "release POLICY", Short: "Make a policy of a file the API's",
	}, "POST release POLICY", func(api.PolicyState) error {
		return a.Printf("%s belongs to the API\n", a.policy)
	})
	g := cli.Group("policies", "List, show and write policies", list, show, a.policiesApply(),
		a.policiesOverride(), restore, take, release)
	g.Aliases = []string{"policy"}
	return g
}

func policyRow(p policyDocument) cli.Row {
	now := p.current()
	return cli.Row{now.Name, now.Algorithm, now.rate(), unless(now.Capacity == 0, now.Capacity),
		policyState(p.PolicyState), from(p.PolicyState), strings.Join(p.Overridden, "; ")}
}

// from names the master of a policy.
func from(p api.PolicyState) string {
	switch {
	case p.Source == "file":
		return "file " + p.Set
	case p.Set != "":
		return "api, not in file " + p.Set
	}
	return p.Source
}

func (p numbers) rate() string {
	var parts []string
	if own := cmp.Or(p.Outflow, p.Refill); own != "" {
		parts = append(parts, own)
	}
	if p.OutflowTotal != "" {
		parts = append(parts, "all "+p.OutflowTotal)
	}
	if p.Window != "" {
		parts = append(parts, fmt.Sprintf("%d in %v", p.Limit, p.Window))
	}
	if len(p.Limits) > 0 {
		parts = append(parts, cli.Count(len(p.Limits), "limit", "limits"))
	}
	return strings.Join(parts, ", ")
}

func policyState(p api.PolicyState) string {
	if p.State == "draining" {
		return p.State
	}
	return state(p.Paused)
}

func state(paused bool) string {
	if paused {
		return "paused"
	}
	return "active"
}

type policyText struct {
	api.PolicyState
	Text json.RawMessage `json:"policy"`
}

func (a *app) policyShown(p policyText) error {
	text, err := cli.YAML(p.Text)
	if err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	head := fmt.Sprintf("%s, revision %d, from %s\n", policyState(p.PolicyState), p.Revision,
		from(p.PolicyState))
	for _, text := range p.Overridden {
		head += "# overridden: " + cli.Plain(text) + "\n"
	}
	return a.Printf("# %s%s", head, text)
}

func (a *app) policiesOverride() *cobra.Command {
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
					return cli.Misuse(fmt.Errorf("%q: want FIELD=VALUE", arg))
				}
				fields[field] = value
				if n, err := strconv.ParseInt(value, 10, 64); err == nil {
					fields[field] = n
				} else if value == "default" {
					fields[field] = nil
				}
			}
			return a.override(cmd, fields)
		},
	}
	return lastingFlags(dryRunFlag(cmd))
}

func (a *app) policiesApply() *cobra.Command {
	return dryRunFlag(&cobra.Command{
		Use:   "apply FILE",
		Short: "Create or replace policies from a file",
		Long: `Creates or replaces the policies in a YAML or JSON file: a configuration file with a
list "policies", or a single policy. "-" reads standard input. Other policies are not changed.
A policy that is refused does not keep the next ones from being applied.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, all, err := a.readPolicies(cmd.Context(), args[0])
			if err != nil {
				return cli.Misuse(err)
			}
			var failed []error
			for _, p := range all {
				err := a.apply(cmd, f, p)
				if err != nil {
					failed = append(failed, err)
				}
				if code := cli.Status(err); code == cli.Unavailable || code == cli.Interrupted {
					break
				}
			}
			if err := f.Err(); err != nil {
				failed = append(failed, cli.Misuse(err))
			}
			return errors.Join(failed...)
		},
	})
}

// placed is a policy of a file, and where it is there.
type placed struct {
	name, at string
	document map[string]any
}

func (a *app) readPolicies(ctx context.Context, name string) (*strict.File, []placed, error) {
	in, err := a.Open(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	f, err := strict.Read(in)
	if err != nil {
		return nil, nil, err
	}
	var all []placed
	var policies, limits []map[string]any
	f.Field("policies", &policies)
	f.Field("shared_limits", &limits)
	shared := map[string]map[string]any{}
	for i, limit := range limits {
		name, _ := limit["name"].(string)
		if shared[name] != nil {
			f.Add(fmt.Sprintf("shared_limits[%d].name", i), "%q is given twice", name)
		}
		shared[name] = maps.Clone(limit)
		delete(shared[name], "name")
		shared[name]["shared"] = name
	}
	if f.Has("policies") {
		for i, document := range policies {
			all = append(all, placed{at: fmt.Sprintf("policies[%d]", i), document: document})
		}
	} else if f.Has("algorithm") || f.Has("limits") {
		one, _ := f.Value("").(map[string]any)
		all = []placed{{document: one}}
	} else {
		return nil, nil, fmt.Errorf("%s: want a list \"policies\", or one policy", name)
	}
	for i := range all {
		p := &all[i]
		if p.name, _ = p.document["name"].(string); p.name == "" {
			f.Add(p.field("name"), "is required")
		}
		putShared(f, p, shared)
	}
	return f, all, f.Err()
}

func (p placed) field(name string) string {
	return strings.Trim(p.at+"."+name, ".")
}

// putShared replaces the names of shared limits by what the file says of them.
func putShared(f *strict.File, p *placed, shared map[string]map[string]any) {
	limits, _ := p.document["limits"].([]any)
	for i := range limits {
		limit, _ := limits[i].(map[string]any)
		name, is := limit["shared"].(string)
		switch {
		case !is || len(limit) > 1: // also one that is whole, as of policies show
		case shared[name] == nil:
			f.Add(p.field(fmt.Sprintf("limits[%d].shared", i)), "%q is not among the "+
				"shared_limits of this file%s", name,
				nearest.Hint(name, slices.Sorted(maps.Keys(shared))))
		default:
			limits[i] = shared[name]
		}
	}
}

// apply notes in the file what the server finds wrong with a policy.
func (a *app) apply(cmd *cobra.Command, f *strict.File, p placed) error {
	ctx, at := cmd.Context(), path("policies", p.name)
	var before policyDocument
	_, err := a.get(ctx, at, &before)
	isNew := is(err, cli.NotFound)
	if err != nil && !isNew {
		return ofPolicy{err, p.name}
	}
	body, err := json.Marshal(p.document)
	if err != nil {
		return ofPolicy{err, p.name}
	}
	err = call(ctx, a, request{method: http.MethodPut, path: at + query(cmd, "dry-run"),
		body: body}, func(after policyDocument) error {
		verb := "changed"
		switch {
		case isNew:
			verb = "created"
		case len(after.Changed) == 0:
			verb = "unchanged"
		}
		return a.changed(p.name, verb, after.Written)
	})
	wrong, ok := errors.AsType[*problem](err)
	switch {
	case err == nil:
		return nil
	case !ok || wrong.Status != http.StatusBadRequest || len(wrong.Problems) == 0:
		return ofPolicy{err, p.name}
	}
	for _, one := range wrong.Problems {
		f.Add(p.field(one.Field), "%s", one.Reason)
	}
	return nil
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

func (a *app) changed(what, verb string, w api.Written) error {
	if w.DryRun {
		verb = "would be " + verb
	}
	if len(w.Changed) > 0 {
		verb += ": " + strings.Join(w.Changed, ", ")
	}
	return a.Printf("%s %s\n", cli.Plain(what), verb)
}
