package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nkeys"
	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/internal/server/daemon"
	"github.com/penstock-mq/penstock/internal/server/natsusers"
)

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
			_, err = natsusers.Parse(strings.NewReader("users:\n" + line + "\n"))
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
