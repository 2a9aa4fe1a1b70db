package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/internal/base/nearest"
)

func (a *app) schedules() *cobra.Command {
	show := ofSchedule(a, "show POLICY", "Show a schedule with its jobs' headers and body",
		"GET schedules POLICY KEY ?name", a.scheduleShown)
	run := ofSchedule(a, "run POLICY", "Submit a schedule's job now, besides those of its times",
		"POST run POLICY KEY ?name", func(v verdictAnswer) error { return a.submitted(v, 0) })
	g := cli.Group("schedules", "List, create, run, pause and delete schedules",
		a.schedulesList(), show, a.schedulesSet(), run,
		a.scheduleChange("pause", "Pause a schedule", "PATCH", "is paused", "paused=1"),
		a.scheduleChange("resume", "Resume a paused schedule", "PATCH", "is resumed", "paused=0"),
		a.scheduleChange("rm", "Delete a schedule", "DELETE", "is gone", ""))
	g.Aliases = []string{"schedule"}
	return g
}

func (a *app) schedulesList() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [POLICY]",
		Short: "List the schedules of one or all policies, with their last runs",
		RunE: func(cmd *cobra.Command, args []string) error {
			template := "GET schedules [POLICY]"
			if len(args) == 0 {
				template = "GET schedules ?limit=1000"
			}
			return call(cmd.Context(), a, a.request(cmd, args, template), a.schedulesListed)
		},
	}
}

func (a *app) schedulesListed(all api.Schedules) error {
	err := list(a, "POLICY|KEY|NAME|WHEN|ZONE|STATE|FROM|NEXT|LAST|OUTCOME", all.Schedules,
		func(s api.Schedule) cli.Row {
			last := cmp.Or(s.Last, &api.ScheduleRun{Outcome: "-"})
			return cli.Row{s.Policy, keyName(s.Key), s.Name, cli.Line(s.When, 60),
				cli.Line(s.Zone, 60), state(s.Paused), cmp.Or(s.Set, "api"), s.NextAt, last.At,
				ran(last)}
		}, "")
	if more := all.Total - len(all.Schedules); err == nil && more > 0 {
		err = a.Printf("and %d more: name a policy\n", more)
	}
	return err
}

func ran(last *api.ScheduleRun) string {
	if last.Reason != "" {
		return last.Outcome + ": " + cli.Line(last.Reason, 100)
	}
	return strings.TrimSpace(last.Outcome + " " + last.Job)
}

// ofSchedule declares a command about a schedule.
func ofSchedule[T any](a *app, use, short, template string, words func(T) error) *cobra.Command {
	cmd := declare(a, &cobra.Command{Use: use, Short: short}, template, words)
	ask := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := ask(cmd, args)
		if is(err, cli.NotFound) {
			return a.hintedSchedule(cmd, err)
		}
		return a.orRefused(cmd.Context(), err)
	}
	return a.scheduleFlags(cmd)
}

func (a *app) scheduleFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("name", "default", "the schedule's `name`, if a key has several")
	return a.keyFlag(cmd, "the `key` of its jobs; may be empty")
}

func (a *app) hintedSchedule(cmd *cobra.Command, err error) error {
	name, _ := cmd.Flags().GetString("name")
	var of api.Schedules
	if _, listErr := a.get(cmd.Context(), path("schedules", a.policy), &of); listErr != nil {
		return err
	}
	var names, keys []string
	for _, s := range of.Schedules {
		if s.Key == a.key {
			names = append(names, s.Name)
		}
		keys = append(keys, s.Key)
	}
	if len(names) == 0 {
		return fmt.Errorf("%w%s", err, nearest.Hint(a.key, keys))
	}
	return fmt.Errorf("%w%s", err, cmp.Or(nearest.Hint(name, names),
		"; the key has --name "+names[0]))
}

func (a *app) scheduleShown(s api.ScheduleDetail) error {
	last := ""
	if s.Last != nil {
		last = cli.Clock(s.Last.At) + ", " + ran(s.Last)
	}
	return a.message(s.Header, s.Body, s.Bytes, "policy", s.Policy, "key", keyName(s.Key),
		"name", s.Name, "when", cli.Line(s.When, 100), "zone", cmp.Or(cli.Line(s.Zone, 100), "UTC"),
		"state", state(s.Paused), "from", cmp.Or(s.Set, "api"),
		"next", unless(s.NextAt.IsZero(), s.NextAt), "last", last)
}

func (a *app) schedulesSet() *cobra.Command {
	var s submission
	cmd := &cobra.Command{
		Use:     "set POLICY WHEN [BODY]",
		Aliases: []string{"add", "create"},
		Short:   "Create or replace a schedule",
		Long: `Creates a schedule whose jobs have BODY: text, "@FILE" to read a file, or "-" for standard
input. WHEN is one argument: a cron pattern of five fields, or six starting with seconds;
"@every 90s", @hourly, @daily, @weekly, @monthly, @yearly; or "@at" and a time. It replaces the
schedule with the same key and name.`,
		Example: "  penstock schedules set mail '30 6 * * 1-5' report --key acme " +
			"--zone Europe/Berlin\n" +
			"  penstock schedules set mail '@every 90s' --key acme --name ping",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 3 {
				return fmt.Errorf("%s: want POLICY WHEN [BODY]; quote WHEN, as in '30 6 * * 1-5'",
					cmd.CommandPath())
			}
			return cli.Between(2, 3)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setSchedule(cmd.Context(), &s, args[1], args[2:])
		},
	}
	s.flags(a.scheduleFlags(cmd).Flags(), "cost", "priority", "deadline")
	s.given.Lookup("deadline").Usage = "the `duration` within which jobs must start"
	s.given.String("zone", "", "the time `zone` of a cron pattern; UTC by default")
	return cmd
}

func (a *app) setSchedule(ctx context.Context, s *submission, when string, body []string) error {
	q := request{method: http.MethodPost, path: path("schedules", a.policy, a.key)}
	var err error
	if q.header, err = s.header(); err != nil {
		return cli.Misuse(err)
	}
	if q.body, err = a.body(ctx, body); err != nil {
		return cli.Misuse(err)
	}
	q.header.Set("Penstock-Schedule", when)
	return call(ctx, a, q, func(made api.Schedule) error {
		return a.Printf("%s: %s, %s\n", a.scheduleName(made.Name), cli.Plain(made.When),
			cmp.Or(cli.Plain(made.Zone), "UTC"))
	})
}

func (a *app) scheduleName(name string) string {
	return fmt.Sprintf("schedule %s of %s", cli.Plain(name), bucketName(a.policy, a.key))
}

func (a *app) scheduleChange(use, short, method, done, change string) *cobra.Command {
	var cmd *cobra.Command
	cmd = ofSchedule(a, use+" POLICY", short, method+" schedules POLICY KEY ?name "+change,
		func(any) error {
			name, _ := cmd.Flags().GetString("name")
			return a.Printf("%s %s\n", a.scheduleName(name), done)
		})
	return cmd
}
