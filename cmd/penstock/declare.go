package main

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
)

// A command that asks for one answer is declared by a template such as
//
//	PUT things POLICY [KEY] ?limit all=1
//
// which has the method, the segments of the path, and the parameters: words of the command's usage
// stand for its arguments, KEY for the flag (in brackets only if it is given), and a parameter
// without a value for the flag of its name.

func (a *app) request(cmd *cobra.Command, args []string, template string) request {
	place, parameters, _ := strings.Cut(template, "?")
	words, names := strings.Fields(place), cli.Arguments(cmd)
	var segments []string
	for _, word := range words[1:] {
		switch i := slices.Index(names, word); {
		case word == strings.ToLower(word):
			segments = append(segments, word)
		case word == "KEY", word == "[KEY]" && a.keyed:
			segments = append(segments, a.key)
		case i >= 0 && i < len(args):
			segments = append(segments, args[i])
		}
	}
	return request{method: words[0],
		path: path(segments...) + query(cmd, strings.Fields(parameters)...)}
}

// query has fixed parameters, and those of flags that are given or have a default.
func query(cmd *cobra.Command, names ...string) string {
	values := url.Values{}
	for _, name := range names {
		if name, value, fixed := strings.Cut(name, "="); fixed {
			values.Set(name, value)
			continue
		}
		f := cmd.Flags().Lookup(name)
		switch {
		case f == nil, !f.Changed && slices.Contains([]string{"", "0", "false", "[]"}, f.DefValue):
		case f.Value.Type() == "bool":
			values.Set(strings.ReplaceAll(name, "-", "_"), "1")
		case f.Value.Type() == "stringSlice":
			several, _ := cmd.Flags().GetStringSlice(name)
			values.Set(name, strings.Join(several, ","))
		default:
			values.Set(name, f.Value.String())
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// declare lets a command ask for an answer and show it in words.
func declare[T any](a *app, cmd *cobra.Command, template string, words func(T) error,
) *cobra.Command {

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return call(cmd.Context(), a, a.request(cmd, args, template), words)
	}
	return cmd
}

// call prints an answer, unchanged with --json.
func call[T any](ctx context.Context, a *app, q request, words func(T) error) error {
	var answer T
	text, err := a.askFor(ctx, q, &answer)
	if err != nil {
		return err
	}
	return a.show(text, func() error { return words(answer) })
}

func (a *app) show(answer []byte, words func() error) error {
	if a.JSON {
		return a.Printf("%s\n", answer)
	}
	return words()
}

// repeat makes a request until its answers, which it adds up, say that nothing is left.
func repeat[T any](ctx context.Context, a *app, q *request, add func(T) (more bool)) error {
	for more := true; more; {
		var some T
		if _, err := a.askFor(ctx, *q, &some); err != nil {
			return err
		}
		more = add(some)
	}
	return nil
}

// list prints a table, or what to say of an empty one.
func list[T any](a *app, columns string, all []T, of func(T) cli.Row, none string) error {
	if len(all) == 0 && none != "" {
		return a.Printf("%s\n", none)
	}
	return cli.Table(a.Out, columns, cli.Rows(all, of))
}

// fields prints names and values; empty values are left out.
func (a *app) fields(pairs ...any) error {
	var rows []cli.Row
	for pair := range slices.Chunk(pairs, 2) {
		if r := cli.Row(pair); cli.Cells("", []cli.Row{r})[0][1] != "" {
			rows = append(rows, r)
		}
	}
	return cli.Table(a.Out, "", rows)
}

func (a *app) keyFlag(cmd *cobra.Command, usage string) *cobra.Command {
	cmd.Flags().StringVarP(&a.key, "key", "k", "", usage)
	return cmd
}

func limitFlag(cmd *cobra.Command, most int) *cobra.Command {
	cmd.Flags().IntP("limit", "n", most, "show at most this many")
	return cmd
}

// about names the policy, or with --key its bucket.
func (a *app) about() string {
	if a.keyed {
		return bucketName(a.policy, a.key)
	}
	return a.policy
}

func bucketName(policy, key string) string { return keyName(key) + " of " + policy }

func keyName(key string) string { return cmp.Or(cli.Line(key, 60), `""`) }

func isJob(arg string) bool {
	_, digits, _ := strings.Cut(arg, ":")
	_, err := strconv.ParseUint(digits, 10, 64)
	return err == nil
}

// unless is a value that is not worth its place if none.
func unless(none bool, value any) any {
	if none {
		return ""
	}
	return value
}
