package main

import (
	"errors"
	"io"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/internal/server/daemon"
)

var place = regexp.MustCompile(`(?m)^line 2: (clients|users)\[0\][.:] ?`)

// withoutPlace removes the place in a file that the user has not written.
func withoutPlace(err error) error {
	return errors.New(place.ReplaceAllString(err.Error(), ""))
}

// subcommand parses the arguments of a command such as "backup FILE", and returns its exit status.
func subcommand(usage, does string, flags *pflag.FlagSet, args []string,
	stdout, stderr io.Writer, do func(operand string) (status int, err error)) int {

	err := daemon.Parse(flags, args, stdout, "Usage: admitter "+usage+"\n\n"+does)
	if err == nil && flags.NArg() != 1 {
		err = errors.New("want one argument: " + usage)
	}
	status := daemon.Invalid
	if err == nil {
		status, err = do(flags.Arg(0))
	}
	return daemon.Report(stderr, "admitter", status, err)
}
