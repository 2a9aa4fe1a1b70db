package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
)

func (a *app) dead() *cobra.Command {
	show := declare(a, &cobra.Command{
		Use: "show POLICY ID", Short: "Show a dead letter with its headers and body",
		Args: letterArgs,
	}, "GET dead POLICY ID", a.letter)
	return cli.Group("dead", "List, replay or drop dead letters", a.deadList(), show,
		a.deadReplay(), a.deadDrop())
}

func (a *app) deadList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [POLICY]",
		Short: "List a policy's dead letters, oldest first, or count those of all policies",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return call(cmd.Context(), a, a.request(cmd, args, "GET dead"), a.deadPolicies)
			}
			return call(cmd.Context(), a, a.request(cmd, args, "GET dead [POLICY] ?after limit"),
				a.letters)
		},
	}
	cmd.Flags().Uint64("after", 0, "only letters after this `id`")
	return limitFlag(cmd, 100)
}

func (a *app) deadPolicies(found api.DeadPolicies) error {
	return list(a, "POLICY|LETTERS|OLDEST|NEWEST", found.Policies,
		func(p api.DeadPolicy) cli.Row {
			return cli.Row{p.Policy, p.Letters, p.OldestAt, p.NewestAt}
		}, "")
}

func (a *app) letters(page api.DeadLetters) error {
	err := list(a, "ID|KEY|JOB|REASON|ATTEMPTS|DIED|ERROR", page.Letters,
		func(l api.DeadLetter) cli.Row {
			return cli.Row{l.ID, keyName(l.Key), l.Job, l.Reason, l.Attempts, l.DeadAt,
				cli.Line(l.Error, 100)}
		}, "")
	if err == nil && page.Next != nil {
		err = a.Printf("more with --after %d\n", *page.Next)
	}
	if page.Discarded > 0 {
		fmt.Fprintf(a.Err, "%d older letters were dropped to make room\n", page.Discarded)
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

func (a *app) letter(l api.DeadLetter) error {
	return a.message(l.Header, l.Body, l.Size, "id", l.ID, "key", keyName(l.Key), "job", l.Job,
		"reason", l.Reason, "error", cli.Line(l.Error, 1000), "failed attempts", l.Attempts,
		"accepted", l.AcceptedAt, "died", l.DeadAt)
}

// message prints fields, then a header and a body; of one that is not text only the size.
func (a *app) message(header map[string][]string, text *string, size int, fields ...any) error {
	fields = append(fields, "size", strconv.Itoa(size)+" bytes")
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			fields = append(fields, cli.Line(name, 100), cmp.Or(cli.Line(value, 1000), `""`))
		}
	}
	body := fmt.Sprintf("(%d bytes of binary data)", size)
	if text != nil {
		body = cli.Plain(*text)
	}
	return cmp.Or(a.fields(fields...), a.Printf("\n%s\n", body))
}

func selectionFlags(cmd *cobra.Command, all string) *cobra.Command {
	f := cmd.Flags()
	f.String("key", "", "only letters of this `key`")
	f.String("reason", "", "only letters with this `reason`, such as attempts")
	f.String("since", "",
		"only letters that died at this `time` or later (RFC 3339, or how long ago)")
	f.String("before", "", "only letters that died before this `time`")
	f.Bool("all", false, all)
	return cmd
}

// selection returns the query of the flags that select many letters; an empty one selects all.
func selection(cmd *cobra.Command) (selected string, many bool) {
	selected = query(cmd, "key", "reason", "since", "before", "through")
	all, _ := cmd.Flags().GetBool("all")
	return selected, all || selected != ""
}

func (a *app) deadReplay() *cobra.Command {
	return selectionFlags(&cobra.Command{
		Use:   "replay POLICY {ID | --all | --key … --reason … --since … --before …}",
		Short: "Replay dead letters as new jobs",
		Args:  letterArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if selected, many := selection(cmd); many {
				return a.replayAll(cmd, selected)
			}
			q := request{method: http.MethodPost, path: path("dead", args[0], args[1], "replay")}
			return call(cmd.Context(), a, q, func(v api.Accepted) error {
				return a.Printf("dead letter %s is %s again\n", args[1], v.Job)
			})
		},
	}, "all current letters, in order")
}

// replayAll gives each selected letter its turn.
func (a *app) replayAll(cmd *cobra.Command, query string) error {
	var all api.Replayed
	err := repeat(cmd.Context(), a, &request{method: http.MethodPost,
		path: path("dead", a.policy, "replay") + query}, func(some api.Replayed) bool {
		some.Replayed += all.Replayed
		all = some
		return !some.Complete
	})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d replayed", all.Replayed)
	if all.Full > 0 {
		text += fmt.Sprintf(", %d kept because their buckets are full", all.Full)
	}
	if all.Unfit > 0 {
		text += fmt.Sprintf(", %d kept because they are malformed", all.Unfit)
	}
	if err := a.Document(all, "%s\n", text); err != nil {
		return err
	}
	if all.Full > 0 {
		return cli.Said(cli.Refused)
	}
	return nil
}

func (a *app) deadDrop() *cobra.Command {
	cmd := selectionFlags(&cobra.Command{
		Use: "drop POLICY {ID | --all | --through ID | " +
			"--key … --reason … --since … --before …}",
		Short: "Discard dead letters permanently",
		Args:  letterArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, _ := selection(cmd)
			var all api.Discarded
			err := repeat(cmd.Context(), a, &request{method: http.MethodDelete,
				path: path(append([]string{"dead"}, args...)...) + selected},
				func(some api.Discarded) bool {
					all.Discarded += some.Discarded
					return some.Incomplete
				})
			if err != nil {
				return err
			}
			return a.Document(all, "%s dropped\n",
				cli.Count(int(all.Discarded), "dead letter", "dead letters"))
		},
	}, "all letters of the policy")
	cmd.Flags().Uint64("through", 0, "all letters up to this `id`")
	for _, other := range []string{"all", "key", "reason", "since", "before"} {
		cmd.MarkFlagsMutuallyExclusive("through", other)
	}
	return cmd
}
