package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/internal/server/daemon"
)

// token prints a new token, which is stored nowhere, and its entry for the file of http.tokens.
func token(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("token", pflag.ContinueOnError)
	rights := flags.StringSlice("rights", nil,
		"`rights`: any of submit, check, read, operate and admin, separated by commas")
	policies := flags.StringSlice("policies", []string{"*"},
		"`names` of policies; * matches anything")
	keys := flags.StringSlice("keys", nil, "`keys`; * matches anything; default all")
	return subcommand("token NAME --rights RIGHTS [flags]",
		"Creates a token and prints it with its entry for the file of http.tokens.", flags, args,
		stdout, stderr, func(name string) (int, error) {
			if len(*rights) == 0 {
				return daemon.Invalid, errors.New("--rights: want any of submit, check, read, " +
					"operate and admin")
			}
			secret := access.NewToken()
			line := access.Line(name, *rights, *policies, *keys, secret)
			_, err := access.Parse(strings.NewReader("clients:\n" + line + "\n"))
			if err != nil {
				return daemon.Invalid, withoutPlace(err)
			}
			_, err = fmt.Fprintf(stdout, "%s\nclients:\n%s\n", secret, line)
			return daemon.Failed, err
		})
}
