package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/nearest"
	"github.com/penstock-mq/penstock/queue"
)

func (a *app) schedules() *cobra.Command {
	g := group("schedules", "List, create, run, pause and delete schedules", a.schedulesList(),
		a.schedulesShow(), a.schedulesSet(), a.scheduleRun(),
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
		Short: "List the schedules of one or all policies, with their last runs",
		RunE: func(cmd *cobra.Command, policies []string) error {
			place := path("schedules") + "?limit=1000"
			if len(policies) > 0 {
				place = path("schedules", policies[0])
			}
			return call(cmd.Context(), a, request{path: place}, a.schedulesListed)
		},
	}
}

func (a *app) schedulesListed(all api.Schedules) error {
	now := time.Now()
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return clock(t, now)
	}
	err := list(a, "POLICY|KEY|NAME|WHEN|ZONE|STATE|FROM|NEXT|LAST|OUTCOME", all.Schedules,
		func(s api.Schedule) row {
			last := cmp.Or(s.Last, &api.ScheduleRun{Outcome: "-"})
			return row{s.Policy, keyName(s.Key), s.Name, line(s.When, 60), line(s.Zone, 60),
				scheduleState(s), cmp.Or(s.Set, "api"), at(s.NextAt), at(last.At), ran(last)}
		})
	if more := all.Total - len(all.Schedules); err == nil && more > 0 {
		err = a.printf("and %d more: name a policy\n", more)
	}
	return err
}

func ran(last *api.ScheduleRun) string {
	if last.Reason != "" {
		return last.Outcome + ": " + line(last.Reason, 100)
	}
	return strings.TrimSpace(last.Outcome + " " + last.Job)
}

func scheduleState(s api.Schedule) string {
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

func askSchedule[T any](ctx context.Context, a *app, method, at, change string,
	words func(T) error) error {
	err := call(ctx, a, request{method: method, path: path(at, a.policy, a.key) + "?name=" +
		url.QueryEscape(a.schedule) + change}, words)
	if p, ok := errors.AsType[*problem](err); ok && p.Status == http.StatusNotFound {
		return a.hintedSchedule(ctx, err)
	}
	return err
}

func (a *app) hintedSchedule(ctx context.Context, err error) error {
	var of api.Schedules
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
			return askSchedule(cmd.Context(), a, "", "schedules", "", a.scheduleShown)
		},
	}
	a.scheduleFlags(cmd)
	return cmd
}

func (a *app) scheduleShown(s api.ScheduleDetail) error {
	rows := []row{{"policy", s.Policy}, {"key", keyName(s.Key)}, {"name", s.Name},
		{"when", line(s.When, 100)}, {"zone", cmp.Or(line(s.Zone, 100), "UTC")},
		{"state", scheduleState(s.Schedule)}, {"from", cmp.Or(s.Set, "api")}}
	if !s.NextAt.IsZero() {
		rows = append(rows, row{"next", clock(s.NextAt, time.Now())})
	}
	if s.Last != nil {
		rows = append(rows, row{"last", clock(s.Last.At, time.Now()) + ", " + ran(s.Last)})
	}
	return a.message(append(rows, row{"size", strconv.Itoa(s.Bytes) + " bytes"}), s.Header, s.Body,
		s.Bytes)
}

func (a *app) scheduleRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run POLICY",
		Short: "Submit a schedule's job now, besides those of its times",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := askSchedule(cmd.Context(), a, http.MethodPost, "run", "",
				func(v verdictAnswer) error { return a.submitted(v, 0) })
			if p, ok := errors.AsType[*problem](err); ok && statusOf(p.Status) == exitRefused {
				return a.refused(cmd.Context(), p)
			}
			return err
		},
	}
	a.scheduleFlags(cmd)
	return cmd
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
				func(made api.Schedule) error {
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
			return askSchedule(cmd.Context(), a, method, "schedules", change, func(any) error {
				return a.printf("%s %s\n", a.scheduleName(), done)
			})
		},
	}
	a.scheduleFlags(cmd)
	return cmd
}
