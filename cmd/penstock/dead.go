package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
)

func (a *app) dead() *cobra.Command {
	return group("dead", "List, replay or drop dead letters", a.deadList(),
		a.deadShow(), a.deadReplay(), a.deadDrop())
}

func (a *app) deadList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [POLICY]",
		Short: "List a policy's dead letters, oldest first, or count those of all policies",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.deadPolicies(cmd.Context())
			}
			return call(cmd.Context(), a,
				request{path: path("dead", a.policy) + query(cmd, "after", "limit")}, a.letterTable)
		},
	}
	cmd.Flags().Uint64("after", 0, "only letters after this `id`")
	limitFlag(cmd, 100)
	return cmd
}

func (a *app) deadPolicies(ctx context.Context) error {
	return call(ctx, a, request{path: path("dead")},
		func(found struct{ Policies []api.DeadPolicy }) error {
			return list(a, "POLICY|LETTERS|OLDEST|NEWEST", found.Policies,
				func(p api.DeadPolicy) row {
					return row{p.Policy, p.Letters, p.OldestAt, p.NewestAt}
				})
		})
}

func (a *app) letterTable(page api.DeadLetters) error {
	err := list(a, "ID|KEY|JOB|REASON|ATTEMPTS|DIED|ERROR", page.Letters,
		func(l api.DeadLetter) row {
			return row{l.ID, keyName(l.Key), l.Job, l.Reason, l.Attempts, l.DeadAt,
				line(l.Error, 100)}
		})
	if err == nil && page.Next != nil {
		err = a.printf("more with --after %d\n", *page.Next)
	}
	if page.Discarded > 0 {
		fmt.Fprintf(a.err, "%d older letters were dropped to make room\n", page.Discarded)
	}
	return err
}

// letterArgs takes a policy and an id, or only a policy if flags select many.
func letterArgs(cmd *cobra.Command, args []string) error {
	_, many := selection(cmd)
	switch {
	case len(args) == 0 || len(args) > 2:
		return errors.New("want a policy and the id of a dead letter")
	case many && len(args) == 2:
		return errors.New("want either the id of a dead letter or a selection")
	case many:
		return nil
	case len(args) == 1:
		return fmt.Errorf("want the id of a dead letter%s",
			map[bool]string{true: ", or --all"}[cmd.Flags().Lookup("all") != nil])
	}
	if _, err := strconv.ParseUint(args[1], 10, 63); err != nil {
		return fmt.Errorf("%q: want the number of a dead letter", args[1])
	}
	return nil
}

func (a *app) deadShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show POLICY ID",
		Short: "Show a dead letter with its headers and body",
		Args:  letterArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, request{path: path("dead", args[0], args[1])}, a.letter)
		},
	}
}

func (a *app) letter(l api.DeadLetter) error {
	return a.message([]row{{"id", l.ID}, {"key", keyName(l.Key)}, {"job", l.Job},
		{"reason", l.Reason}, {"error", line(l.Error, 1000)}, {"failed attempts", l.Attempts},
		{"accepted", l.AcceptedAt}, {"died", l.DeadAt},
		{"size", strconv.Itoa(l.Size) + " bytes"}}, l.Header, l.Body, len(l.Bytes))
}

// A body that is not text is shown by its size.
func (a *app) message(rows []row, header map[string][]string, text *string, size int) error {
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			rows = append(rows, row{line(name, 100), line(value, 1000)})
		}
	}
	if err := table(a.out, "", rows); err != nil {
		return err
	}
	body := fmt.Sprintf("(%d bytes of binary data)", size)
	if text != nil {
		body = plain(*text)
	}
	return a.printf("\n%s\n", body)
}

func selectionFlags(cmd *cobra.Command, all string) {
	f := cmd.Flags()
	f.String("key", "", "only letters of this `key`")
	f.String("reason", "", "only letters with this `reason`, such as attempts")
	f.String("since", "",
		"only letters that died at this `time` or later (RFC 3339, or how long ago)")
	f.String("before", "", "only letters that died before this `time`")
	f.Bool("all", false, all)
}

// selection returns the query of the flags that select many letters; an empty one selects all.
func selection(cmd *cobra.Command) (selected string, many bool) {
	selected = query(cmd, "key", "reason", "since", "before", "through")
	all, _ := cmd.Flags().GetBool("all")
	return selected, all || selected != ""
}

func (a *app) deadReplay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay POLICY {ID | --all | --key … --reason … --since … --before …}",
		Short: "Replay dead letters as new jobs",
		Args:  letterArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if selected, many := selection(cmd); many {
				return a.replayAll(cmd, selected)
			}
			return call(cmd.Context(), a, request{method: http.MethodPost,
				path: path("dead", args[0], args[1], "replay")}, func(v verdictAnswer) error {
				return a.printf("dead letter %s is %s again\n", args[1], v.Job)
			})
		},
	}
	selectionFlags(cmd, "all current letters, in order")
	return cmd
}

// replayAll repeats the request until each selected letter has had its turn.
func (a *app) replayAll(cmd *cobra.Command, query string) error {
	var total api.Replayed
	for !total.Complete {
		var now api.Replayed
		answer, err := a.askFor(cmd.Context(), request{method: http.MethodPost,
			path: path("dead", a.policy, "replay") + query}, &now)
		if err != nil {
			return err
		}
		now.Replayed += total.Replayed
		total = now
		if a.json {
			fmt.Fprintf(a.out, "%s\n", answer)
		}
	}
	if !a.json {
		fmt.Fprintf(a.out, "%d replayed", total.Replayed)
		if total.Full > 0 {
			fmt.Fprintf(a.out, ", %d kept because their buckets are full", total.Full)
		}
		if total.Unfit > 0 {
			fmt.Fprintf(a.out, ", %d kept because they are malformed", total.Unfit)
		}
		fmt.Fprintln(a.out)
	}
	if total.Full > 0 {
		return said(exitRefused)
	}
	return nil
}

func (a *app) deadDrop() *cobra.Command {
	cmd := &cobra.Command{
		Use: "drop POLICY {ID | --all | --through ID | " +
			"--key … --reason … --since … --before …}",
		Short: "Discard dead letters permanently",
		Args:  letterArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, _ := selection(cmd)
			return a.drop(cmd, path(append([]string{"dead"}, args...)...)+selected)
		},
	}
	selectionFlags(cmd, "all letters of the policy")
	cmd.Flags().Uint64("through", 0, "all letters up to this `id`")
	for _, other := range []string{"all", "key", "reason", "since", "before"} {
		cmd.MarkFlagsMutuallyExclusive("through", other)
	}
	return cmd
}

func (a *app) drop(cmd *cobra.Command, to string) error {
	for total, more := uint64(0), true; more; {
		var dropped api.Discarded
		answer, err := a.askFor(cmd.Context(), request{method: http.MethodDelete, path: to},
			&dropped)
		if err != nil {
			return err
		}
		total, more = total+dropped.Discarded, dropped.Incomplete
		if a.json {
			fmt.Fprintf(a.out, "%s\n", answer)
		} else if !more {
			fmt.Fprintf(a.out, "%s dropped\n", count(int(total), "dead letter", "dead letters"))
		}
	}
	return nil
}
