package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// Exit statuses of subcommands.
const (
	exitDone    = 0
	exitFailed  = 1
	exitInvalid = 2 // wrong arguments or configuration
)

// subcommand parses the arguments of a command such as "backup FILE", and returns its exit status.
func subcommand(usage, does string, flags *pflag.FlagSet, args []string, stderr io.Writer,
	do func(operand string) (status int, err error)) int {

	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "Usage: admitter %s\n\n%s\n\n%s", usage, does, flags.FlagUsages())
	}
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return exitDone
	}
	status := exitInvalid
	if err == nil && flags.NArg() != 1 {
		err = errors.New("want one argument: " + usage)
	}
	if err == nil {
		status, err = do(flags.Arg(0))
	}
	if err == nil {
		return exitDone
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(stderr, "admitter: "+strings.TrimSuffix(line, "\n"))
	}
	return status
}
