// Command penstock is the command-line client of an admitter's HTTP API. With --json it prints the
// API's own answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/internal/nearest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	err := a.run(ctx, os.Args[1:])
	stop()
	if p, ok := errors.AsType[*problem](err); ok && a.json && len(p.body) > 0 {
		fmt.Fprintf(a.out, "%s\n", p.body)
	}
	_, quiet := errors.AsType[said](err)
	if err != nil && !quiet && status(err) != exitInterrupted {
		for text := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(a.err, "penstock:", plain(text))
		}
	}
	os.Exit(status(err))
}

type app struct {
	in       io.ReadCloser
	out, err io.Writer

	settings settings
	json     bool
	*client

	// of the command
	policy, key string
	keyed       bool   // --key is given
	schedule    string // its name
}

func (a *app) run(ctx context.Context, args []string) error {
	root, running := a.root()
	help := &recorder{Writer: a.out}
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"})
	needsCommand(completion)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(help)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	switch {
	case help.err != nil:
		return help.err
	case err == nil:
		return nil
	case !*running: // cobra's own errors come before a command runs
		return usageError{err}
	}
	return a.hinted(ctx, err)
}

// running is set once a command runs.
func (a *app) root() (root *cobra.Command, running *bool) {
	running = new(bool)
	root = &cobra.Command{
		Use:   "penstock",
		Short: "Submit jobs to Penstock, inspect them and manage policies",
		Long: "penstock submits jobs to an admitter over HTTP, explains why they wait, and\n" +
			"manages policies, buckets and dead letters.\n\n" + statusHelp,
		Version:       buildinfo.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if a.client, err = a.settings.client(cmd.Root().PersistentFlags()); err == nil {
				*running = true
			}
			return err
		},
	}
	a.settings.flags(root.PersistentFlags())
	root.PersistentFlags().BoolVar(&a.json, "json", false,
		"print the API's JSON answers")
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(root, args[0])
		}
		return nil
	}
	root.RunE = func(*cobra.Command, []string) error { return root.Help() }
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("penstock {{.Version}}\n")
	root.AddCommand(a.submit(), a.check(), a.policies(), a.rate(), a.pause(true),
		a.pause(false), a.buckets(), a.purge(), a.jobCommand(), a.history(), a.cancel(),
		a.why(), a.dead(), a.schedules(), a.drainers(), a.audit(), a.tail(), a.top(), a.simulate(),
		a.advise(), a.checkAnswer(), a.man(), a.version())
	a.readUsage(root)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		of, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = unknown(of, rest[0])
		}
		return err
	}
	return root, running
}

var flagsInUse = regexp.MustCompile(` \[?--.*`)

// readUsage derives the number of arguments from the usage, where brackets mark optional ones. An
// argument POLICY is completed.
func (a *app) readUsage(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.readUsage(sub)
	}
	if words := strings.Fields(flagsInUse.ReplaceAllString(cmd.Use, ""))[1:]; cmd.Args == nil {
		required := slices.IndexFunc(words, func(word string) bool { return word[0] == '[' })
		if required < 0 {
			required = len(words)
		}
		cmd.Args = between(required, len(words))
	}
	ofPolicy, run := strings.Contains(cmd.Use, "POLICY"), cmd.RunE
	if ofPolicy {
		cmd.ValidArgsFunction = a.names
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.keyed = cmd.Flags().Changed("key")
		if ofPolicy && len(args) > 0 && !isJob(args[0]) {
			a.policy = args[0]
		}
		return run(cmd, args)
	}
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printf("{\"version\":%q}\n", buildinfo.Version())
			}
			return a.printf("penstock %s\n", buildinfo.Version())
		},
	}
}

func (a *app) man() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write manual pages for all commands",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Manual: "Penstock",
				Source: "penstock " + buildinfo.Version()}, args[0])
		},
	}
}

func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short}
	g.AddCommand(commands...)
	needsCommand(g)
	return g
}

// needsCommand refuses a group without one of its commands.
func needsCommand(g *cobra.Command) {
	g.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(g, args[0])
		}
		var names []string
		for _, c := range g.Commands() {
			names = append(names, c.Name())
		}
		return fmt.Errorf("%s: want one of %s", g.Name(), strings.Join(names, ", "))
	}
	g.RunE = func(*cobra.Command, []string) error { return nil }
	g.SuggestionsMinimumDistance = 2
}

func unknown(parent *cobra.Command, word string) error {
	hint := ""
	if near := parent.SuggestionsFor(word); len(near) > 0 {
		hint = "; did you mean " + near[0] + "?"
	}
	return fmt.Errorf("unknown command %q for %q%s", word, parent.CommandPath(), hint)
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// between is cobra.RangeArgs with the usage in its error.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		given := count(len(args), "argument", "arguments")
		if len(args) == 0 {
			given = "no argument"
		}
		return fmt.Errorf("%s: usage: %s", given, cmd.UseLine())
	}
}

func exactly(n int) cobra.PositionalArgs { return between(n, n) }

var wants = map[string]string{
	"int": "a whole number", "int64": "a whole number",
	"uint": "a whole number, 0 or more", "uint64": "a whole number, 0 or more",
	"bool": "true or false",
}

// length is a duration as in the API, also in days and weeks.
type length time.Duration

func (l *length) Set(text string) (err error) {
	*(*time.Duration)(l), err = algorithms.ParseDuration(text)
	return err
}

func (l *length) String() string {
	if *l == 0 {
		return ""
	}
	return algorithms.FormatDuration(time.Duration(*l))
}

func (*length) Type() string { return "duration" }

func flagError(cmd *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		want, known := wants[bad.GetFlag().Value.Type()]
		if !known {
			return fmt.Errorf("--%s: %w", bad.GetFlag().Name, bad.Unwrap())
		}
		return fmt.Errorf("--%s: %q: want %s", bad.GetFlag().Name, bad.GetValue(), want)
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s: want a value", bare.GetFlag().Name)
	}
	extra, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	if before := cmd.Flags().Args(); len(before) > 0 && cmd.HasSubCommands() {
		return unknown(cmd, before[0]) // of a command, to which the flag may belong
	}
	name := extra.GetSpecifiedName()
	if extra.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("unknown flag -%s", name)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	hint := nearest.To(name, names)
	if hint != "" {
		hint = "; did you mean --" + hint + "?"
	}
	return fmt.Errorf("unknown flag --%s%s", name, hint)
}
