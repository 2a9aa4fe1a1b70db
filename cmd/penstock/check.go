package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

func (a *app) check() *cobra.Command {
	var key string
	var cost int64
	var peek, refund bool
	cmd := a.ofPolicy(&cobra.Command{
		Use:   "check POLICY [--key KEY]",
		Short: "Check a rate limit",
		Long: "Takes units from a limiter and prints the decision. The exit status is 0 if it\n" +
			"allowed them, 3 if not. Only limiter policies answer checks.",
		Example: "  penstock check signup --key 203.0.113.7 && ./sign-up",
		RunE: func(cmd *cobra.Command, args []string) error {
			method := http.MethodPost
			switch {
			case peek && refund:
				return usageError{errors.New("--peek and --refund are mutually exclusive")}
			case peek:
				method = ""
			case refund:
				method = http.MethodDelete
			}
			answer, err := a.ask(cmd.Context(), request{method: method,
				path: fmt.Sprintf("%s?cost=%d", path("check", a.policy, key), cost)})
			if p, ok := errors.AsType[*problem](err); ok &&
				p.Status == http.StatusTooManyRequests {
				return a.refused(p)
			}
			if err != nil || refund {
				return err
			}
			return a.show(answer, func() error { return a.checked(answer) })
		},
	})
	keyFlag(cmd, &key, "the `key` to limit; may be empty")
	cmd.Flags().Int64Var(&cost, "cost", 1, "`units` to take")
	cmd.Flags().BoolVar(&peek, "peek", false, "show the decision without taking units")
	cmd.Flags().BoolVar(&refund, "refund", false, "return unused units")
	return cmd
}

func (a *app) checked(answer []byte) error {
	var c struct {
		Limit     int64 `json:"limit"`
		Remaining int64 `json:"remaining"`
		DelayMS   int64 `json:"delay_ms"`
	}
	if err := read(answer, &c); err != nil {
		return err
	}
	text := fmt.Sprintf("allowed, %d of %d remain", c.Remaining, c.Limit)
	if c.DelayMS > 0 {
		text += ", proceed in " + short(milliseconds(c.DelayMS))
	}
	return a.printf("%s\n", text)
}

func (a *app) refused(p *problem) error {
	err := a.show(p.body, func() error {
		return a.printf("refused, retry in %s\n", short(milliseconds(p.RetryAfterMS)))
	})
	if err != nil {
		return err
	}
	return said(exitRefused)
}
