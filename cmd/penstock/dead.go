package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// Dead letters.

func (a *app) dead() *cobra.Command {
	return group("dead", "Look at dead letters, try them again, or drop them", a.deadList(),
		a.deadShow(), a.deadReplay(), a.deadDrop())
}

func (a *app) deadList() *cobra.Command {
	var after uint64
	var limit int
	cmd := a.ofPolicy(&cobra.Command{
		Use:   "ls [POLICY]",
		Short: "List the dead letters of a policy, oldest first, or how many each policy has",
		Args:  between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.deadPolicies(cmd.Context())
			}
			var page lettersAnswer
			answer, err := a.get(cmd.Context(), fmt.Sprintf("%s?after=%d&limit=%d",
				path("dead", a.policy), after, limit), &page)
			if err != nil {
				return err
			}
			return a.show(answer, func() error { return a.letterTable(page) })
		},
	})
	cmd.Flags().Uint64Var(&after, "after", 0, "only those behind this `id`")
	cmd.Flags().IntVarP(&limit, "limit", "n", 100, "show at most this many")
	return cmd
}

// deadPolicies lists the policies with dead letters.
func (a *app) deadPolicies(ctx context.Context) error {
	var found deadPoliciesAnswer
	answer, err := a.get(ctx, path("dead"), &found)
	if err != nil {
		return err
	}
	return a.show(answer, func() error {
		now := time.Now()
		rows := [][]string{{"POLICY", "LETTERS", "OLDEST", "NEWEST"}}
		for _, p := range found.Policies {
			rows = append(rows, []string{p.Policy, strconv.FormatUint(p.Letters, 10),
				clock(p.OldestAt, now), clock(p.NewestAt, now)})
		}
		return table(a.out, rows)
	})
}

func (a *app) letterTable(page lettersAnswer) error {
	now := time.Now()
	rows := [][]string{{"ID", "KEY", "JOB", "REASON", "ATTEMPTS", "BURIED", "ERROR"}}
	for _, l := range page.Letters {
		rows = append(rows, []string{strconv.FormatUint(l.ID, 10), keyName(l.Key), l.Job, l.Reason,
			strconv.Itoa(l.Attempts), clock(l.BuriedAt, now), line(l.Error, 100)})
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	if page.Next != nil {
		fmt.Fprintf(a.out, "there are more: --after %d\n", *page.Next)
	}
	if page.Discarded > 0 {
		fmt.Fprintf(a.err, "%d older ones went to make room\n", page.Discarded)
	}
	return nil
}

// letterArgs takes a policy and the id of a dead letter, or a policy and what stands for many.
func letterArgs(many func() bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 || len(args) > 2:
			return fmt.Errorf("%s: want a policy and the id of a dead letter", cmd.CommandPath())
		case many() && len(args) == 2:
			return errors.New("want the id of a dead letter, or all of them, and not both")
		case many():
			return nil
		case len(args) == 1:
			return fmt.Errorf("%s: want the id of a dead letter%s", cmd.CommandPath(),
				map[bool]string{true: ", or --all"}[cmd.Flags().Lookup("all") != nil])
		}
		if _, err := strconv.ParseUint(args[1], 10, 63); err != nil {
			return fmt.Errorf("%q: want the number of a dead letter", args[1])
		}
		return nil
	}
}

func (a *app) deadShow() *cobra.Command {
	return a.ofPolicy(&cobra.Command{
		Use:   "show POLICY ID",
		Short: "Show a dead letter with its headers and its body",
		Args:  letterArgs(func() bool { return false }),
		RunE: func(cmd *cobra.Command, args []string) error {
			var l letterAnswer
			answer, err := a.get(cmd.Context(), path("dead", args[0], args[1]), &l)
			if err != nil {
				return err
			}
			return a.show(answer, func() error { return a.letter(l) })
		},
	})
}

func (a *app) letter(l letterAnswer) error {
	now := time.Now()
	rows := [][]string{
		{"id", strconv.FormatUint(l.ID, 10)}, {"key", keyName(l.Key)}, {"job", l.Job},
		{"reason", l.Reason}, {"error", line(l.Error, 1000)},
		{"failed attempts", strconv.Itoa(l.Attempts)}, {"accepted", clock(l.AcceptedAt, now)},
		{"buried", clock(l.BuriedAt, now)}, {"size", strconv.Itoa(l.Size) + " bytes"},
	}
	return a.message(rows, l.Header, l.Body, len(l.Bytes))
}

// message prints what rows tell of a message, its header below them, and its body, of which the
// API tells the text, or only how many bytes it has.
func (a *app) message(rows [][]string, header map[string][]string, text *string, size int) error {
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			rows = append(rows, []string{line(name, 100), line(value, 1000)})
		}
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	body := fmt.Sprintf("(%d bytes that are no text)", size)
	if text != nil {
		body = plain(*text)
	}
	_, err := fmt.Fprintf(a.out, "\n%s\n", body)
	return err
}

// some is which dead letters are meant, as the API takes it.
type some map[string]*string

func someFlags(cmd *cobra.Command) some {
	f, s := cmd.Flags(), some{}
	s["key"] = f.String("key", "", "only those of this `key`")
	s["reason"] = f.String("reason", "", "only those buried for this `reason`, such as attempts")
	s["since"] = f.String("since", "", "only those buried at a `time` (RFC 3339, or how long ago)")
	s["before"] = f.String("before", "", "only those buried before a `time`")
	return s
}

// query is that of a request, with a question mark; empty: all are meant.
func (s some) query(cmd *cobra.Command) string {
	values := url.Values{}
	for name, value := range s {
		if cmd.Flags().Changed(name) {
			values.Set(name, *value)
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

func (a *app) deadReplay() *cobra.Command {
	var all bool
	var s some
	var cmd *cobra.Command
	many := func() bool { return all || s.query(cmd) != "" }
	cmd = a.ofPolicy(&cobra.Command{
		Use:   "replay POLICY {ID | --all | --key … --reason … --since … --before …}",
		Short: "Make a dead letter a job again, or many",
		Args:  letterArgs(many),
		RunE: func(cmd *cobra.Command, args []string) error {
			if many() {
				return a.replayAll(cmd, s.query(cmd))
			}
			var v verdictAnswer
			answer, err := a.askFor(cmd.Context(), http.MethodPost,
				path("dead", args[0], args[1], "replay"), nil, nil, &v)
			if err != nil {
				return err
			}
			return a.show(answer, func() error {
				_, err := fmt.Fprintf(a.out, "dead letter %s is %s again\n", args[1], v.Job)
				return err
			})
		},
	})
	cmd.Flags().BoolVar(&all, "all", false, "all that there are now, in their order")
	s = someFlags(cmd)
	return cmd
}

// replayAll asks again until all letters that are meant have had their turn.
func (a *app) replayAll(cmd *cobra.Command, query string) error {
	type counts struct {
		Replayed int  `json:"replayed"`
		Full     int  `json:"full"`
		Unfit    int  `json:"unfit"`
		Complete bool `json:"complete"`
	}
	var total counts
	for !total.Complete {
		var now counts
		answer, err := a.askFor(cmd.Context(), http.MethodPost,
			path("dead", a.policy, "replay")+query, nil, nil, &now)
		if err != nil {
			return err
		}
		total.Replayed += now.Replayed
		total.Full, total.Unfit, total.Complete = now.Full, now.Unfit, now.Complete
		if a.json {
			fmt.Fprintf(a.out, "%s\n", answer)
		}
	}
	if !a.json {
		fmt.Fprintf(a.out, "%d replayed", total.Replayed)
		if total.Full > 0 {
			fmt.Fprintf(a.out, ", %d stay because their buckets are full", total.Full)
		}
		if total.Unfit > 0 {
			fmt.Fprintf(a.out, ", %d stay because they cannot be jobs", total.Unfit)
		}
		fmt.Fprintln(a.out)
	}
	if total.Full > 0 {
		return said(exitRefused)
	}
	return nil
}

func (a *app) deadDrop() *cobra.Command {
	var all bool
	var through uint64
	var s some
	var cmd *cobra.Command
	cmd = a.ofPolicy(&cobra.Command{
		Use: "drop POLICY {ID | --all | --through ID | " +
			"--key … --reason … --since … --before …}",
		Short: "Discard a dead letter for good, or many",
		Args: letterArgs(func() bool {
			return all || through > 0 || s.query(cmd) != ""
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := path(append([]string{"dead"}, args...)...)
			if through > 0 {
				to += "?through=" + strconv.FormatUint(through, 10)
			} else {
				to += s.query(cmd)
			}
			return a.drop(cmd, to)
		},
	})
	s = someFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all of the policy's")
	cmd.Flags().Uint64Var(&through, "through", 0, "all up to this `id`")
	cmd.MarkFlagsMutuallyExclusive("all", "through")
	for name := range s {
		cmd.MarkFlagsMutuallyExclusive("through", name)
	}
	return cmd
}

// drop asks again until all letters that are meant are gone.
func (a *app) drop(cmd *cobra.Command, to string) error {
	for total, more := 0, true; more; {
		var dropped struct {
			Discarded  int
			Incomplete bool
		}
		answer, err := a.askFor(cmd.Context(), http.MethodDelete, to, nil, nil, &dropped)
		if err != nil {
			return err
		}
		total, more = total+dropped.Discarded, dropped.Incomplete
		if a.json {
			fmt.Fprintf(a.out, "%s\n", answer)
		} else if !more {
			fmt.Fprintf(a.out, "%s dropped\n", count(total, "dead letter", "dead letters"))
		}
	}
	return nil
}
