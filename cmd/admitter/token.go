package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/nats-io/nkeys"
	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/internal/admission/access"
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

// natsUser prints a new user's seed, which is stored nowhere, and its entry for the file of
// nats.embedded.users.
func natsUser(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("nats-user", pflag.ContinueOnError)
	role := flags.String("role", "",
		"`role`: producer, checker, caller, reader, worker, operator, drainer or admitter")
	policies := flags.StringSlice("policies", nil, "`names` of policies, or *")
	return subcommand("nats-user NAME --role ROLE [flags]", "Creates an nkey and prints its seed "+
		"and the user's entry for the file of nats.embedded.users.", flags, args,
		stdout, stderr,
		func(name string) (int, error) {
			seed, public, err := newNKey()
			if err != nil {
				return daemon.Failed, err
			}
			line := fmt.Sprintf("  - {name: %q, role: %q, nkey: %s", name, *role, public)
			if len(*policies) > 0 {
				line += `, policies: ["` + strings.Join(*policies, `", "`) + `"]`
			}
			line += "}"
			_, err = daemon.ParseUsers(strings.NewReader("users:\n" + line + "\n"))
			if err != nil {
				return daemon.Invalid, withoutPlace(err)
			}
			_, err = fmt.Fprintf(stdout, "%s\nusers:\n%s\n", seed, line)
			return daemon.Failed, err
		})
}

func newNKey() (seed, public string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", "", fmt.Errorf("create an nkey: %w", err)
	}
	text, err := pair.Seed()
	if err != nil {
		return "", "", fmt.Errorf("create an nkey: %w", err)
	}
	public, err = pair.PublicKey()
	return string(text), public, err
}

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
