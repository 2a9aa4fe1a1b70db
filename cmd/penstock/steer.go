package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
)

func (a *app) keyFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&a.key, "key", "k", "", usage)
}

func limitFlag(cmd *cobra.Command, most int) {
	cmd.Flags().IntP("limit", "n", most, "show at most this many")
}

// about names the policy, or with --key its bucket.
func (a *app) about() string {
	if a.keyed {
		return bucketName(a.policy, a.key)
	}
	return a.policy
}

func bucketName(policy, key string) string { return keyName(key) + " of " + policy }

// path is of the policy, or with --key of its bucket.
func (a *app) path(what string) string {
	if a.keyed {
		return path(what, a.policy, a.key)
	}
	return path(what, a.policy)
}

// lasting are the flags of an override of a whole policy.
type lasting struct {
	lasts, because string
	dry            bool
}

func (l *lasting) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.lasts, "for", "", "end after this `time`, such as 1h; default never")
	cmd.Flags().StringVar(&l.because, "because", "", "the `reason`, for others to see")
}

func (l *lasting) query(keyed bool) (string, error) {
	q := url.Values{}
	for name, value := range map[string]string{"for": l.lasts, "because": l.because} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if keyed && len(q) > 0 {
		return "", usageError{errors.New("--for and --because are of policies, without --key")}
	}
	if l.dry {
		q.Set("dry_run", "1")
	}
	if len(q) == 0 {
		return "", nil
	}
	return "?" + q.Encode(), nil
}

// override patches the override of the policy, or with --key the limits of its bucket.
func (a *app) override(ctx context.Context, fields map[string]any, l lasting) error {
	query, err := l.query(a.keyed)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	to := path("policies", a.policy, "override")
	if a.keyed {
		to = path("policies", a.policy, "keys", a.key)
	}
	return call(ctx, a, request{method: http.MethodPatch, path: to + query, body: patch},
		func(changed api.PolicyState) error {
			verb := "changed"
			if len(changed.Changed) == 0 {
				verb = "unchanged"
			}
			err := a.changed(a.about(), verb, changed.Changed, l.dry)
			for _, text := range changed.Overridden {
				if err == nil {
					err = a.printf("  %s\n", plain(text))
				}
			}
			return err
		})
}

func (a *app) rate() *cobra.Command {
	var peak string
	var l lasting
	cmd := &cobra.Command{
		Use:   "rate POLICY RATE",
		Short: "Override the outflow of a policy or key",
		Long: `Overrides the outflow of a policy at once, whether it comes from a file or the API, or with
--key of one bucket, including waiting jobs. It stays through restarts and changes of the file
until it expires or is reset. Examples of RATE are 50/s, 10/m and 3/10s; "default" resets a policy
to what its file or the API says now, and a key to its policy's rate.`,
		Example: "  penstock rate billing 2/s --for 1h --because \"their incident\"\n" +
			"  penstock rate billing default\n  penstock rate mail 5/s --key big",
		RunE: func(cmd *cobra.Command, args []string) error {
			fields := map[string]any{"outflow": args[1]}
			if args[1] == "default" {
				fields["outflow"], fields["peak"] = nil, nil
			}
			if cmd.Flags().Changed("peak") {
				fields["peak"] = peak
			}
			return a.override(cmd.Context(), fields, l)
		},
	}
	a.keyFlag(cmd, "only the bucket of this `key`")
	cmd.Flags().StringVar(&peak, "peak", "", "also the maximum `rate` in any second")
	cmd.Flags().BoolVar(&l.dry, "dry-run", false, "validate without writing")
	l.flags(cmd)
	return cmd
}

func (a *app) pause(paused bool) *cobra.Command {
	var l lasting
	name, short, done := "pause", "Pause a policy or key", "is paused"
	long := "Pauses a policy, or with --key one bucket: it accepts jobs and starts none."
	if !paused {
		name, done = "resume", "is resumed"
		short = "Resume a policy or key, end its target's pause, probe its target"
		long = `Resumes a paused policy, or with --key one bucket. Also ends the pauses that the target asked
for, for example by a wrong Retry-After, and probes a target that was down at once.`
	}
	cmd := &cobra.Command{
		Use:   name + " POLICY",
		Short: short,
		Long:  long,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := l.query(a.keyed)
			if err != nil {
				return err
			}
			return call(cmd.Context(), a, request{method: http.MethodPost,
				path: a.path(name) + query}, func(r api.Resumed) error {
				if len(r.Unanswered) > 0 {
					fmt.Fprintln(a.err, "no drainer answered for", partitions(r.Unanswered)+
						": pauses that the target asked for remain there")
				}
				if r.Ended > 0 {
					done += "; ended " + count(r.Ended, "pause", "pauses") +
						" that its target asked for"
				}
				if r.Probes > 0 {
					done += "; " + count(r.Probes, "probe of its target starts",
						"probes of its target start") + " now"
				}
				return a.printf("%s %s\n", a.about(), done)
			})
		},
	}
	a.keyFlag(cmd, "only the bucket of this `key`")
	if paused {
		l.flags(cmd)
	}
	return cmd
}

func (a *app) purge() *cobra.Command {
	cmd := &cobra.Command{
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
			all := api.Purged{Key: a.key, More: true}
			for all.More {
				var some api.Purged
				if _, err := a.askFor(cmd.Context(), request{method: http.MethodPost,
					path: a.path("purge")}, &some); err != nil {
					return err
				}
				all.Removed, all.More = all.Removed+some.Removed, some.More
			}
			return a.document(all, func() error {
				return a.printf("%s: %s dropped\n", a.about(),
					count(all.Removed, "job", "jobs"))
			})
		},
	}
	a.keyFlag(cmd, "the bucket's `key`")
	return cmd
}

func (a *app) cancel() *cobra.Command {
	var tag string
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tag") {
				return a.cancelTagged(cmd.Context(), tag)
			}
			return call(cmd.Context(), a, request{method: http.MethodDelete,
				path: path("jobs", args[0])}, func(j jobAnswer) error {
				return a.printf("cancelled %s of %s\n", j.Job, keyName(j.Key))
			})
		},
	}
	cmd.Flags().StringVar(&tag, "tag", "", "cancel the jobs of POLICY with this `tag`")
	a.keyFlag(cmd, "with --tag: only jobs of this `key`")
	return cmd
}

func (a *app) cancelTagged(ctx context.Context, tag string) error {
	var all api.Cancelled
	for again := true; again; again = all.Next != nil {
		to := a.path("cancel") + "?tag=" + url.QueryEscape(tag)
		if all.Next != nil {
			to += "&after=" + strconv.FormatUint(*all.Next, 10)
		}
		var some api.Cancelled
		if _, err := a.askFor(ctx, request{method: http.MethodPost, path: to}, &some); err != nil {
			return err
		}
		some.Cancelled, some.Left = some.Cancelled+all.Cancelled, some.Left+all.Left
		all = some
	}
	return a.document(all, func() error {
		return a.printf("%s: %s with the tag %s cancelled, %d left running\n", a.about(),
			count(all.Cancelled, "job", "jobs"), tag, all.Left)
	})
}
