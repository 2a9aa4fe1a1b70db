package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/admission/access"
)

// Exit statuses of commands that make something.
const (
	exitMade    = 0
	exitInvalid = 2
)

// token prints a new token, which is stored nowhere, and its entry for the file of http.tokens. It
// returns the exit status.
func token(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("admitter token", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	rights := flags.StringSlice("rights", nil,
		"`rights`: any of submit, check, read, operate and admin, with commas between them")
	policies := flags.StringSlice("policies", []string{"*"},
		"`names` of policies, in which * stands for anything")
	keys := flags.StringSlice("keys", nil, "`keys`, in which * stands for anything; default all")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "Usage: admitter token NAME --rights RIGHTS [flags]\n\n"+
			"Makes a token, and prints it and how the file of http.tokens lists it.\n\n%s",
			flags.FlagUsages())
	}
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return exitMade
	}
	if err == nil && flags.NArg() != 1 {
		err = errors.New("want one name of a client")
	}
	secret := access.NewToken()
	var line string
	if err == nil {
		line = access.Line(flags.Arg(0), *rights, *policies, *keys, secret)
		_, err = access.Parse(strings.NewReader("clients:\n" + line + "\n"))
	}
	if err != nil {
		fmt.Fprintln(stderr, "admitter: token: "+err.Error())
		return exitInvalid
	}
	fmt.Fprintf(stdout, "%s\nclients:\n%s\n", secret, line)
	return exitMade
}
