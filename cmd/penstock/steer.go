package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/admission/manage"
)

func keyFlag(cmd *cobra.Command, key *string, usage string) {
	cmd.Flags().StringVarP(key, "key", "k", "", usage)
}

func bucketName(policy, key string, keyed bool) string {
	if !keyed {
		return policy
	}
	return keyName(key) + " of " + policy
}

func place(what, policy, key string, keyed bool) string {
	if keyed {
		return path(what, policy, key)
	}
	return path(what, policy)
}

func (a *app) rate() *cobra.Command {
	var key, peak string
	var dry bool
	cmd := a.ofPolicy(&cobra.Command{
		Use:   "rate POLICY RATE",
		Short: "Change the outflow of a policy or key",
		Long: `Changes the outflow of a policy, or with --key of one bucket, including waiting jobs.
Examples of RATE are 50/s, 10/m and 3/10s; "default" resets a key to its policy's rate.`,
		Example: "  penstock rate mail 50/s\n  penstock rate mail 5/s --key big",
		Args:    exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			keyed := cmd.Flags().Changed("key")
			fields := map[string]any{"outflow": args[1]}
			if args[1] == "default" {
				if !keyed {
					return usageError{errors.New("a policy has no default outflow; specify a rate")}
				}
				fields["outflow"] = nil
			}
			if cmd.Flags().Changed("peak") {
				fields["peak"] = peak
			}
			patch, err := json.Marshal(fields)
			if err != nil {
				return err
			}
			to := path("policies", a.policy)
			if keyed {
				to = path("policies", a.policy, "keys", key)
			}
			if dry {
				to += "?dry_run=1"
			}
			return call(cmd.Context(), a, request{method: http.MethodPatch, path: to, body: patch},
				func(changed manage.Policy) error {
					verb := "changed"
					if len(changed.Changed) == 0 {
						verb = "unchanged"
					}
					err := a.changed(bucketName(a.policy, key, keyed), verb, changed.Changed, dry)
					if err == nil && changed.Note != "" {
						err = a.printf("%s\n", changed.Note)
					}
					return err
				})
		},
	})
	keyFlag(cmd, &key, "only the bucket of this `key`")
	cmd.Flags().StringVar(&peak, "peak", "", "also the maximum `rate` in any second")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "validate without writing")
	return cmd
}

func (a *app) pause(paused bool) *cobra.Command {
	name, short, done := "pause", "Pause a policy or key", "is paused"
	if !paused {
		name, short, done = "resume", "Resume a policy or key", "is resumed"
	}
	var key string
	cmd := a.ofPolicy(&cobra.Command{
		Use:   name + " POLICY",
		Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			keyed := cmd.Flags().Changed("key")
			return call(cmd.Context(), a, request{method: http.MethodPost,
				path: place(name, a.policy, key, keyed)}, func(any) error {
				return a.printf("%s %s\n", bucketName(a.policy, key, keyed), done)
			})
		},
	})
	keyFlag(cmd, &key, "only the bucket of this `key`")
	return cmd
}

func (a *app) purge() *cobra.Command {
	var key string
	cmd := a.ofPolicy(&cobra.Command{
		Use:   "purge POLICY --key KEY",
		Short: "Drop the waiting jobs of a bucket permanently",
		Long: `Drops the waiting jobs of a bucket permanently, without dead letters. Running jobs
are not affected. You cannot purge a whole policy at once.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("key") {
				return errors.New("want --key; --key '' is the bucket of jobs without a key")
			}
			return exactly(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			all := manage.Purged{Key: key, More: true}
			for all.More {
				var some manage.Purged
				if _, err := a.askFor(cmd.Context(), request{method: http.MethodPost,
					path: path("purge", a.policy, key)}, &some); err != nil {
					return err
				}
				all.Removed, all.More = all.Removed+some.Removed, some.More
			}
			answer, err := json.Marshal(all)
			if err != nil {
				return err
			}
			return a.show(answer, func() error {
				return a.printf("%s: %s dropped\n", bucketName(a.policy, key, true),
					count(all.Removed, "job", "jobs"))
			})
		},
	})
	keyFlag(cmd, &key, "the bucket's `key`")
	return cmd
}

func (a *app) cancel() *cobra.Command {
	var tag, key string
	cmd := &cobra.Command{
		Use:   "cancel JOB | cancel POLICY --tag TAG",
		Short: "Cancel waiting jobs, permanently and without dead letters",
		Long: `Cancels a waiting job permanently, without a dead letter. --tag cancels all jobs of a
policy with the tag, --key limits that to one bucket. Running jobs are not affected.`,
		Example: "  penstock cancel mail:42\n  penstock cancel mail --tag campaign-7",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("tag"):
				return exactly(1)(cmd, args)
			case cmd.Flags().Changed("key"):
				return errors.New("--key requires --tag; to drop all jobs of a bucket, use purge")
			}
			return jobArgs(cmd, args)
		},
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tag") {
				a.policy = args[0]
				return a.cancelTagged(cmd.Context(), tag, key, cmd.Flags().Changed("key"))
			}
			return call(cmd.Context(), a, request{method: http.MethodDelete,
				path: path("jobs", args[0])}, func(j jobAnswer) error {
				return a.printf("cancelled %s of %s\n", j.Job, keyName(j.Key))
			})
		},
	}
	cmd.Flags().StringVar(&tag, "tag", "", "cancel the jobs of POLICY with this `tag`")
	keyFlag(cmd, &key, "with --tag: only jobs of this `key`")
	return cmd
}

func (a *app) cancelTagged(ctx context.Context, tag, key string, keyed bool) error {
	var all manage.CancelledTagged
	for again := true; again; again = all.Next != nil {
		to := place("cancel", a.policy, key, keyed) + "?tag=" + url.QueryEscape(tag)
		if all.Next != nil {
			to += "&after=" + strconv.FormatUint(*all.Next, 10)
		}
		var some manage.CancelledTagged
		if _, err := a.askFor(ctx, request{method: http.MethodPost, path: to}, &some); err != nil {
			return err
		}
		some.Cancelled, some.Left = some.Cancelled+all.Cancelled, some.Left+all.Left
		all = some
	}
	answer, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return a.show(answer, func() error {
		return a.printf("%s: %s with the tag %s cancelled, %d left running\n",
			bucketName(a.policy, key, keyed), count(all.Cancelled, "job", "jobs"), tag, all.Left)
	})
}
