package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/internal/nearest"
)

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
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number, 0 or more",
	"bool": "true or false", "duration": "a time with a unit, such as 30s",
}

func flagError(cmd *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		want, known := wants[bad.GetFlag().Value.Type()]
		if !known {
			return fmt.Errorf("--%s: %q: %w", bad.GetFlag().Name, bad.GetValue(), bad.Unwrap())
		}
		return fmt.Errorf("--%s: %q: want %s", bad.GetFlag().Name, bad.GetValue(), want)
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s: want a value", bare.GetFlag().Name)
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	name := unknown.GetSpecifiedName()
	if unknown.GetSpecifiedShortnames() != "" {
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
