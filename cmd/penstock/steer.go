package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
)

// lastingFlags are those of an override of a whole policy.
func lastingFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("for", "", "end after this `time`, such as 1h; default never")
	cmd.Flags().String("because", "", "the `reason`, for others to see")
	if cmd.Flags().Lookup("key") != nil {
		cmd.MarkFlagsMutuallyExclusive("key", "for")
		cmd.MarkFlagsMutuallyExclusive("key", "because")
	}
	return cmd
}

func dryRunFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("dry-run", false, "validate without writing")
	return cmd
}

// override patches the override of the policy, or with --key the limits of its bucket.
func (a *app) override(cmd *cobra.Command, fields map[string]any) error {
	patch, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	to := path("policies", a.policy, "override")
	if a.keyed {
		to = path("policies", a.policy, "keys", a.key)
	}
	return call(cmd.Context(), a, request{method: http.MethodPatch, body: patch,
		path: to + query(cmd, "for", "because", "dry-run")}, func(p api.PolicyState) error {
		verb := "changed"
		if len(p.Changed) == 0 {
			verb = "unchanged"
		}
		err := a.changed(a.about(), verb, p.Written)
		for _, text := range p.Overridden {
			err = cmp.Or(err, a.Printf("  %s\n", cli.Plain(text)))
		}
		return err
	})
}

func (a *app) rate() *cobra.Command {
	cmd := a.keyFlag(&cobra.Command{
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
			if peak := cmd.Flags().Lookup("peak"); peak.Changed {
				fields["peak"] = peak.Value.String()
			}
			return a.override(cmd, fields)
		},
	}, "only the bucket of this `key`")
	cmd.Flags().String("peak", "", "also the maximum `rate` in any second")
	return lastingFlags(dryRunFlag(cmd))
}

func (a *app) pause() *cobra.Command {
	cmd := declare(a, &cobra.Command{
		Use:   "pause POLICY",
		Short: "Pause a policy or key",
		Long:  "Pauses a policy, or with --key one bucket: it accepts jobs and starts none.",
	}, "POST pause POLICY [KEY] ?for because", func(any) error {
		return a.Printf("%s is paused\n", a.about())
	})
	return lastingFlags(a.keyFlag(cmd, "only the bucket of this `key`"))
}

func (a *app) resume() *cobra.Command {
	return a.keyFlag(declare(a, &cobra.Command{
		Use:   "resume POLICY",
		Short: "Resume a policy or key, end its target's pause, probe its target",
		Long: `Resumes a paused policy, or with --key one bucket. Also ends the pauses that the target asked
for, for example by a wrong Retry-After, and probes a target that was down at once.`,
	}, "POST resume POLICY [KEY]", func(r api.Resumed) error {
		if len(r.Unanswered) > 0 {
			fmt.Fprintln(a.Err, "no drainer answered for", partitions(r.Unanswered)+
				": pauses that the target asked for remain there")
		}
		done := "is resumed"
		if r.Ended > 0 {
			done += "; ended " + cli.Count(r.Ended, "pause", "pauses") +
				" that its target asked for"
		}
		if r.Probes > 0 {
			done += "; " + cli.Count(r.Probes, "probe of its target starts",
				"probes of its target start") + " now"
		}
		return a.Printf("%s %s\n", a.about(), done)
	}), "only the bucket of this `key`")
}

func (a *app) purge() *cobra.Command {
	return a.keyFlag(&cobra.Command{
		Use:   "purge POLICY --key KEY",
		Short: "Drop the waiting jobs of a bucket permanently",
		Long: `Drops the waiting jobs of a bucket permanently, without dead letters. Running jobs
are not affected. You cannot purge a whole policy at once.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("key") {
				return errors.New("want --key; --key '' is the bucket of jobs without a key")
			}
			return cli.Between(1, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			all, q := api.Purged{Key: a.key}, a.request(cmd, args, "POST purge POLICY KEY")
			err := repeat(cmd.Context(), a, &q, func(some api.Purged) bool {
				all.Removed += some.Removed
				return some.More
			})
			if err != nil {
				return err
			}
			return a.Document(all, "%s: %s dropped\n", a.about(),
				cli.Count(all.Removed, "job", "jobs"))
		},
	}, "the bucket's `key`")
}

func (a *app) cancel() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel JOB | cancel POLICY --tag TAG",
		Short: "Cancel waiting jobs, permanently and without dead letters",
		Long: `Cancels a waiting job permanently, without a dead letter. --tag cancels all jobs of a
policy with the tag, --key limits that to one bucket. Running jobs are not affected.`,
		Example: "  penstock cancel mail:42\n  penstock cancel mail --tag campaign-7",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("tag"):
				return cli.Between(1, 1)(cmd, args)
			case cmd.Flags().Changed("key"):
				return errors.New("--key requires --tag; to drop all jobs of a bucket, use purge")
			}
			return jobArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tag") {
				return a.cancelTagged(cmd, args)
			}
			return call(cmd.Context(), a, a.request(cmd, args, "DELETE jobs JOB"),
				func(j api.Job) error {
					return a.Printf("cancelled %s of %s\n", j.Job, keyName(j.Key))
				})
		},
	}
	cmd.Flags().String("tag", "", "cancel the jobs of POLICY with this `tag`")
	return a.keyFlag(cmd, "with --tag: only jobs of this `key`")
}

func (a *app) cancelTagged(cmd *cobra.Command, args []string) error {
	var all api.Cancelled
	q := a.request(cmd, args, "POST cancel JOB [KEY] ?tag")
	to := q.path
	err := repeat(cmd.Context(), a, &q, func(some api.Cancelled) bool {
		all.Cancelled, all.Left = all.Cancelled+some.Cancelled, all.Left+some.Left
		if some.Next != nil {
			q.path = fmt.Sprintf("%s&after=%d", to, *some.Next)
		}
		return some.Next != nil
	})
	if err != nil {
		return err
	}
	tag, _ := cmd.Flags().GetString("tag")
	return a.Document(all, "%s: %s with the tag %s cancelled, %d left running\n", a.about(),
		cli.Count(all.Cancelled, "job", "jobs"), tag, all.Left)
}

func (a *app) check() *cobra.Command {
	cmd := a.keyFlag(&cobra.Command{
		Use:   "check POLICY [--key KEY]",
		Short: "Check a rate limit",
		Long: "Takes units from a limiter and prints the decision. The exit status is 0 if it\n" +
			"allowed them, 3 if not. Only policies without a queue answer checks.",
		Example: "  penstock check signup --key 203.0.113.7 && ./sign-up",
		RunE: func(cmd *cobra.Command, args []string) error {
			q := a.request(cmd, args, "POST check POLICY KEY ?cost")
			peek, _ := cmd.Flags().GetBool("peek")
			if refund, _ := cmd.Flags().GetBool("refund"); refund {
				q.method = http.MethodDelete
				_, err := a.ask(cmd.Context(), q)
				return err
			}
			if peek {
				q.method = http.MethodGet
			}
			return a.orRefused(cmd.Context(), call(cmd.Context(), a, q, func(d api.Decision) error {
				text := fmt.Sprintf("allowed, %d of %d remain", d.Remaining, d.Limit)
				if d.DelayMS > 0 {
					text += ", proceed in " + cli.Short(milliseconds(d.DelayMS))
				}
				return a.Printf("%s\n", text)
			}))
		},
	}, "the `key` to limit; may be empty")
	cmd.Flags().Int64("cost", 1, "`units` to take")
	cmd.Flags().Bool("peek", false, "show the decision without taking units")
	cmd.Flags().Bool("refund", false, "return unused units")
	cmd.MarkFlagsMutuallyExclusive("peek", "refund")
	return cmd
}
