package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/admission/schedules"
	"github.com/penstock-mq/penstock/internal/nearest"
	"github.com/penstock-mq/penstock/queue"
)

func (a *app) schedules() *cobra.Command {
	g := group("schedules", "List, create, pause and delete schedules", a.schedulesList(),
		a.schedulesShow(), a.schedulesSet(),
		a.scheduleChange("pause", "Pause a schedule", http.MethodPatch, "is paused", "&paused=1"),
		a.scheduleChange("resume", "Resume a paused schedule", http.MethodPatch, "is resumed",
			"&paused=0"),
		a.scheduleChange("rm", "Delete a schedule", http.MethodDelete, "is gone", ""))
	g.Aliases = []string{"schedule"}
	return g
}

func (a *app) schedulesList() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [POLICY]",
		Short: "List the schedules of one or all policies",
		RunE: func(cmd *cobra.Command, policies []string) (err error) {
			if len(policies) == 0 {
				if policies, err = a.policyNames(cmd.Context()); err != nil {
					return err
				}
			}
			all := schedulesAnswer{Schedules: []schedules.Schedule{}}
			for _, a.policy = range policies {
				var of schedulesAnswer
				if _, err := a.get(cmd.Context(), path("schedules", a.policy), &of); err != nil {
					return err
				}
				all.Schedules = append(all.Schedules, of.Schedules...)
			}
			return a.document(all, func() error {
				return list(a, "POLICY|KEY|NAME|WHEN|ZONE|STATE|FROM", all.Schedules,
					func(s schedules.Schedule) row {
						return row{s.Policy, keyName(s.Key), s.Name, line(s.When, 60),
							line(s.Zone, 60), scheduleState(s), cmp.Or(s.Set, "api")}
					})
			})
		},
	}
}

type schedulesAnswer struct {
	Schedules []schedules.Schedule `json:"schedules"`
}

func scheduleState(s schedules.Schedule) string {
	if s.Paused {
		return "paused"
	}
	return "active"
}

func (a *app) scheduleFlags(cmd *cobra.Command) {
	a.keyFlag(cmd, "the `key` of its jobs; may be empty")
	cmd.Flags().StringVar(&a.schedule, "name", "default",
		"the schedule's `name`, if a key has several")
}

func (a *app) scheduleName() string {
	return fmt.Sprintf("schedule %s of %s", plain(a.schedule), bucketName(a.policy, a.key))
}

func askSchedule[T any](ctx context.Context, a *app, method, change string,
	words func(T) error) error {
	err := call(ctx, a, request{method: method, path: path("schedules", a.policy, a.key) +
		"?name=" + url.QueryEscape(a.schedule) + change}, words)
	if p, ok := errors.AsType[*problem](err); ok && p.Status == http.StatusNotFound {
		return a.hintedSchedule(ctx, err)
	}
	return err
}

func (a *app) hintedSchedule(ctx context.Context, err error) error {
	var of schedulesAnswer
	if _, listErr := a.get(ctx, path("schedules", a.policy), &of); listErr != nil {
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
	hint := nearest.Hint(a.schedule, names)
	if hint == "" {
		hint = "; the key has --name " + names[0]
	}
	return fmt.Errorf("%w%s", err, hint)
}

func (a *app) schedulesShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show POLICY",
		Short: "Show a schedule with its jobs' headers and body",
		RunE: func(cmd *cobra.Command, args []string) error {
			return askSchedule(cmd.Context(), a, "", "", a.scheduleShown)
		},
	}
	a.scheduleFlags(cmd)
	return cmd
}

func (a *app) scheduleShown(s schedules.Detail) error {
	return a.message([]row{{"policy", s.Policy}, {"key", keyName(s.Key)}, {"name", s.Name},
		{"when", line(s.When, 100)}, {"zone", cmp.Or(line(s.Zone, 100), "UTC")},
		{"state", scheduleState(s.Schedule)}, {"from", cmp.Or(s.Set, "api")},
		{"size", strconv.Itoa(s.Bytes) + " bytes"}}, s.Header, s.Body, s.Bytes)
}

func (a *app) schedulesSet() *cobra.Command {
	var s submission
	var zone string
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
			return between(2, 3)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			header, err := s.header()
			if err != nil {
				return usageError{err}
			}
			body, err := a.body(cmd.Context(), args[2:])
			if err != nil {
				return usageError{err}
			}
			header.Set(queue.HeaderSchedule, args[1])
			header.Set(queue.HeaderScheduleName, a.schedule)
			if zone != "" {
				header.Set(queue.HeaderScheduleZone, zone)
			}
			return call(cmd.Context(), a, request{method: http.MethodPost,
				path: path("schedules", a.policy, a.key), body: body, header: header},
				func(made schedules.Schedule) error {
					return a.printf("%s: %s, %s\n", a.scheduleName(), plain(made.When),
						cmp.Or(plain(made.Zone), "UTC"))
				})
		},
	}
	a.scheduleFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&zone, "zone", "", "the time `zone` of a cron pattern; UTC by default")
	s.flags(f, "cost", "priority", "deadline")
	f.Lookup("deadline").Usage = "the `duration` within which jobs must start"
	return cmd
}

func (a *app) scheduleChange(use, short, method, done, change string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use + " POLICY",
		Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			return askSchedule(cmd.Context(), a, method, change, func(any) error {
				return a.printf("%s %s\n", a.scheduleName(), done)
			})
		},
	}
	a.scheduleFlags(cmd)
	return cmd
}
