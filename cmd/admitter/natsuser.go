package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nkeys"
	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/internal/natsusers"
)

// natsUser prints a new user's seed, which is stored nowhere, and its entry for the file of
// nats.embedded.users. It returns the exit status.
func natsUser(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("admitter nats-user", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	role := flags.String("role", "",
		"`role`: producer, checker, worker, operator, drainer or admitter")
	policies := flags.StringSlice("policies", nil, "`names` of policies, or *")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "Usage: admitter nats-user NAME --role ROLE [flags]\n\n"+
			"Makes an nkey, and prints its seed and how the file of nats.embedded.users lists its "+
			"user.\n\n%s", flags.FlagUsages())
	}
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return exitMade
	}
	if err == nil && flags.NArg() != 1 {
		err = errors.New("want one name of a user")
	}
	var seed, public string
	if err == nil {
		seed, public, err = newNKey()
	}
	var line string
	if err == nil {
		line = fmt.Sprintf("  - {name: %q, role: %q, nkey: %s", flags.Arg(0), *role, public)
		if len(*policies) > 0 {
			line += `, policies: ["` + strings.Join(*policies, `", "`) + `"]`
		}
		line += "}"
		_, err = natsusers.Parse(strings.NewReader("users:\n" + line + "\n"))
	}
	if err != nil {
		fmt.Fprintln(stderr, "admitter: "+err.Error())
		return exitInvalid
	}
	fmt.Fprintf(stdout, "%s\nusers:\n%s\n", seed, line)
	return exitMade
}

func newNKey() (seed, public string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", "", fmt.Errorf("make an nkey: %w", err)
	}
	text, err := pair.Seed()
	if err != nil {
		return "", "", fmt.Errorf("make an nkey: %w", err)
	}
	public, err = pair.PublicKey()
	return string(text), public, err
}
