// Package cli has what the command lines share: how they read their usage, print and fail.
package cli

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

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/internal/base/buildinfo"
	"github.com/penstock-mq/penstock/internal/base/nearest"
)

// Terminal is where a program reads and writes, and how.
type Terminal struct {
	In       io.ReadCloser
	Out, Err io.Writer
	JSON     bool // documents instead of text
}

// Main runs a program with the process's arguments, and ends it.
func Main(t *Terminal, root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	err := run(ctx, t, root)
	stop()
	_, told := errors.AsType[Said](err)
	if err != nil && !told && Status(err) != Interrupted {
		for text := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(t.Err, "%s: %s\n", root.Name(), Plain(text))
		}
	}
	os.Exit(Status(err))
}

func run(ctx context.Context, t *Terminal, root *cobra.Command) error {
	addDefaults(root)
	ran := false
	for _, cmd := range All(root) {
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				ran = true
				return run(cmd, args)
			}
		}
	}
	root.SetIn(t.In)
	root.SetOut(t.Out)
	root.SetErr(t.Err)
	err := root.ExecuteContext(ctx)
	if err != nil && !ran { // cobra's own errors come before a command runs
		return Misuse(err)
	}
	return err
}

// Complete completes the root of a program, whose commands are all there.
func Complete(root *cobra.Command, t *Terminal) {
	root.PersistentFlags().BoolVar(&t.JSON, "json", false, "print the API's JSON answers")
	root.AddCommand(version(t), man())
	root.Version, root.SilenceUsage, root.SilenceErrors = buildinfo.Version(), true, true
	root.SetVersionTemplate(root.Name() + " {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	needsCommand(root)
	root.RunE = func(*cobra.Command, []string) error { return root.Help() }
	for _, cmd := range All(root) {
		if cmd.Args == nil {
			cmd.Args = Between(arguments(cmd))
		}
	}
}

// addDefaults adds cobra's own commands.
func addDefaults(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"})
	needsCommand(completion)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		of, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = unknown(of, rest[0])
		}
		return err
	}
}

// All are a command and all below it.
func All(root *cobra.Command) []*cobra.Command {
	commands := []*cobra.Command{root}
	for _, sub := range root.Commands() {
		commands = append(commands, All(sub)...)
	}
	return commands
}

var flagsInUse = regexp.MustCompile(` \[?--.*`)

// Arguments are the names of a command's arguments, from its usage.
func Arguments(cmd *cobra.Command) []string {
	return strings.Fields(flagsInUse.ReplaceAllString(cmd.Use, ""))[1:]
}

// arguments counts them; brackets mark optional ones.
func arguments(cmd *cobra.Command) (least, most int) {
	words := Arguments(cmd)
	least = slices.IndexFunc(words, func(word string) bool { return word[0] == '[' })
	if least < 0 {
		least = len(words)
	}
	return least, len(words)
}

func version(t *Terminal) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			version := buildinfo.Version()
			return t.Document(map[string]string{"version": version}, "%s %s\n",
				cmd.Root().Name(), version)
		},
	}
}

func man() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write manual pages for all commands",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Manual: "Penstock",
				Source: root.Name() + " " + buildinfo.Version()}, args[0])
		},
	}
}

// Group is a command of commands.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
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
		if !g.HasParent() {
			return nil
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

// Between is cobra.RangeArgs with the usage in its error.
func Between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		given := Count(len(args), "argument", "arguments")
		if len(args) == 0 {
			given = "no argument"
		}
		return fmt.Errorf("%s: usage: %s", given, cmd.UseLine())
	}
}

// flagError adds the nearest flag to the error about an unknown one.
func flagError(cmd *cobra.Command, err error) error {
	extra, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	if before := cmd.Flags().Args(); len(before) > 0 && cmd.HasSubCommands() {
		return unknown(cmd, before[0]) // of a command, to which the flag may belong
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if hint := nearest.To(extra.GetSpecifiedName(), names); hint != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, hint)
	}
	return err
}

// Exit statuses, for scripts.
const (
	Done        = 0
	Failed      = 1
	Usage       = 2
	Refused     = 3
	NotFound    = 4
	Forbidden   = 5
	Conflict    = 6
	Unavailable = 7
	Interrupted = 130
)

type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

func (misuse) ExitStatus() int { return Usage }

// Misuse is an error of the command line, or of a file that it names.
func Misuse(err error) error { return misuse{err} }

// Said is the exit status of a command that has printed its error.
type Said int

func (Said) Error() string { return "said" }

// ExitStatus is the number itself.
func (s Said) ExitStatus() int { return int(s) }

// Status is the exit status of an error.
func Status(err error) int {
	var of interface{ ExitStatus() int }
	switch {
	case err == nil:
		return Done
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.As(err, &of):
		return of.ExitStatus()
	}
	return Failed
}
