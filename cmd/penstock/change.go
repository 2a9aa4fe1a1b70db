package main

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func (a *app) jobChange(use, short, long string, query func() (url.Values, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  jobArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := query()
			if err != nil {
				return err
			}
			return call(cmd.Context(), a, request{method: http.MethodPatch,
				path: path("jobs", args[0]) + "?" + change.Encode()}, func(j jobAnswer) error {
				if err := a.printf("%s of %s is changed\n", j.Job, keyName(j.Key)); err != nil {
					return err
				}
				return table(a.out, "", j.rows())
			})
		},
	}
}

func (a *app) jobChanges() []*cobra.Command {
	always := func(name string) func() (url.Values, error) {
		return func() (url.Values, error) { return url.Values{name: {"1"}}, nil }
	}
	var priority, deadline string
	set := a.jobChange("set JOB --priority N --deadline TIME",
		"Give a job that waits another priority or deadline", "Gives a job that waits another "+
			"priority or deadline: RFC 3339, how long\nfrom now, such as 90m, or none.",
		func() (url.Values, error) {
			query := url.Values{}
			for name, value := range map[string]string{"priority": priority,
				"deadline": deadline} {
				if value != "" {
					query.Set(name, value)
				}
			}
			if len(query) == 0 {
				return nil, usageError{errors.New("want --priority or --deadline")}
			}
			return query, nil
		})
	set.Flags().StringVar(&priority, "priority", "", "the `number`; higher goes first")
	set.Flags().StringVar(&deadline, "deadline", "", "the `time` until which it may start")
	return []*cobra.Command{
		a.jobChange("run JOB", "Have a job wait for its turn from now on",
			"Has a job that backs off, or is not due yet, wait for its turn from now on. Its\n"+
				"bucket's rate holds for it as for others.", always("run")),
		a.jobChange("front JOB", "Move a job to the front of its bucket",
			"Moves a job that waits before all others that its bucket holds.", always("front")),
		set,
	}
}
