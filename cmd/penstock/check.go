package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
)

func (a *app) check() *cobra.Command {
	var peek, refund bool
	cmd := &cobra.Command{
		Use:   "check POLICY [--key KEY]",
		Short: "Check a rate limit",
		Long: "Takes units from a limiter and prints the decision. The exit status is 0 if it\n" +
			"allowed them, 3 if not. Only policies without a queue answer checks.",
		Example: "  penstock check signup --key 203.0.113.7 && ./sign-up",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			q := request{path: path("check", a.policy, a.key) + query(cmd, "cost")}
			switch {
			case peek && refund:
				return usageError{errors.New("--peek and --refund are mutually exclusive")}
			case refund:
				q.method = http.MethodDelete
				_, err = a.ask(cmd.Context(), q)
			case peek:
				err = call(cmd.Context(), a, q, a.checked)
			default:
				q.method = http.MethodPost
				err = call(cmd.Context(), a, q, a.checked)
			}
			if p, ok := errors.AsType[*problem](err); ok &&
				p.Status == http.StatusTooManyRequests {
				return a.refused(cmd.Context(), p)
			}
			return err
		},
	}
	a.keyFlag(cmd, "the `key` to limit; may be empty")
	cmd.Flags().Int64("cost", 1, "`units` to take")
	cmd.Flags().BoolVar(&peek, "peek", false, "show the decision without taking units")
	cmd.Flags().BoolVar(&refund, "refund", false, "return unused units")
	return cmd
}

func (a *app) checked(d api.Decision) error {
	text := fmt.Sprintf("allowed, %d of %d remain", d.Remaining, d.Limit)
	if d.DelayMS > 0 {
		text += ", proceed in " + short(milliseconds(d.DelayMS))
	}
	return a.printf("%s\n", text)
}

func (a *app) refused(ctx context.Context, p *problem) error {
	full := ""
	if !a.json && slices.Contains(p.ViolatedPolicies, a.policy+"/max_bytes") {
		var err error
		if full, err = a.room(ctx); err != nil {
			return err
		}
	}
	err := a.show(p.body, func() error {
		text := "refused, retry in " + short(milliseconds(p.RetryAfterMS))
		if full != "" {
			text += ": " + full
		}
		return a.printf("%s\n", text)
	})
	if err != nil {
		return err
	}
	return said(exitRefused)
}
