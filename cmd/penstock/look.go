package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue/job"
)

func (a *app) buckets() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "buckets [POLICY]",
		Short: "List non-empty buckets of one or all policies, deepest first",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.Flags().Changed("by") {
				return errors.New("--by requires that no POLICY is given")
			}
			if len(args) == 0 && (cmd.Flags().Changed("key") || cmd.Flags().Changed("offset")) {
				return errors.New("--key and --offset require a POLICY")
			}
			return between(0, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.allBuckets(cmd)
			}
			if a.keyed {
				return call(cmd.Context(), a, request{path: a.path("buckets")},
					func(b api.Bucket) error {
						return a.bucketTable(api.Buckets{Buckets: []api.Bucket{b}, Total: 1})
					})
			}
			return call(cmd.Context(), a, request{path: a.path("buckets") +
				query(cmd, "offset", "limit")}, a.bucketTable)
		},
	}
	a.keyFlag(cmd, "only the bucket of this `key`")
	limitFlag(cmd, 20)
	cmd.Flags().Int("offset", 0, "skip this many buckets")
	cmd.Flags().String("by", job.ByDepth, "of all policies, what comes first: depth, age, "+
		"late (in\nthe last minute) or refused (in it, by the admitter asked)")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(
		job.BucketOrders, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) allBuckets(cmd *cobra.Command) error {
	at := request{path: path("buckets") + query(cmd, "by", "limit")}
	return call(cmd.Context(), a, at, func(page api.AllBuckets) error {
		columns, refused := "POLICY|"+bucketColumns, page.WindowMS != nil
		if refused {
			fmt.Fprintln(a.err, "refusals by this admitter, counted for",
				short(milliseconds(*page.WindowMS)))
			columns += "|REFUSED"
		}
		err := list(a, columns, page.Buckets, func(b api.PlacedBucket) row {
			r := append(row{b.Policy}, bucketRow(&b.Bucket)...)
			if refused {
				r = append(r, b.Refused)
			}
			return r
		})
		if err == nil {
			err = a.moreBuckets(len(page.Buckets), page.Total)
		}
		for _, name := range slices.Sorted(maps.Keys(page.Unanswered)) {
			fmt.Fprintf(a.err, "no drainer answered for %s of %s; their buckets are missing\n",
				partitions(page.Unanswered[name]), name)
		}
		return err
	})
}

func (a *app) bucketTable(page api.Buckets) error {
	err := list(a, bucketColumns, page.Buckets, func(b api.Bucket) row { return bucketRow(&b) })
	if err == nil {
		err = a.moreBuckets(len(page.Buckets), page.Total)
	}
	if len(page.Unanswered) > 0 {
		fmt.Fprintln(a.err, "no drainer answered for", partitions(page.Unanswered)+
			"; their buckets are missing")
	}
	return err
}

func (a *app) moreBuckets(shown, total int) error {
	if shown >= total {
		return nil
	}
	return a.printf("%d of %s\n", shown, count(total, "bucket", "buckets"))
}

const bucketColumns = "KEY|DEPTH|WAITING|DELAYED|RUNNING|CALLS|RATE|OLDEST|NEXT IN|BLOCKED BY"

func bucketRow(b *api.Bucket) row {
	if b.BucketState == nil {
		return row{keyName(b.Key), b.Depth, "?", "?", "?", "?", "?", "?", "?", b.By}
	}
	oldest, next := "", "?"
	if b.HeadAgeMS > 0 {
		oldest = short(milliseconds(b.HeadAgeMS))
	}
	if b.ETAMS != nil {
		next = short(milliseconds(*b.ETAMS))
	}
	held := b.By
	if b.Until != nil {
		held += " until " + clock(*b.Until, time.Now())
	}
	return row{keyName(b.Key), b.Depth, b.Waiting, b.Delayed, b.Running, b.Calls,
		fmt.Sprintf("%.4g/s", b.Rate), oldest, next, held}
}

func partitions(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	if len(words) == 1 {
		return "partition " + words[0]
	}
	return "partitions " + strings.Join(words, ", ")
}

func jobArgs(cmd *cobra.Command, args []string) error {
	if err := exactly(1)(cmd, args); err != nil {
		return err
	}
	if !isJob(args[0]) {
		return fmt.Errorf("%q is not a job id such as mail:42", args[0])
	}
	return nil
}

func isJob(arg string) bool {
	_, _, ok := job.ParseID(arg)
	return ok
}

// jobAnswer is a [api.Job], or a [api.EndedJob] with the fields below.
type jobAnswer struct {
	pending
	Size       *int       `json:"size"`
	Letter     uint64     `json:"letter"`
	Reason     string     `json:"reason"`
	DeadAt     *time.Time `json:"dead_at"`
	ReplayedAs string     `json:"replayed_as"`
	EndedAt    *time.Time `json:"ended_at"`
	DurationMS *int64     `json:"duration_ms"`
	Status     int        `json:"status"`
	Answer     string     `json:"answer"`
}

type pending = api.Job

func (a *app) jobCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job JOB",
		Short: "Show a job's state or outcome",
		Args:  jobArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, request{path: path("jobs", args[0])},
				func(j jobAnswer) error { return table(a.out, "", j.rows()) })
		},
	}
	cmd.AddCommand(a.jobChanges()...)
	return cmd
}

// jobChange makes a change that is fixed, or with an empty one that of flags.
func (a *app) jobChange(use, short, long, change string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  jobArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			change := cmp.Or(change, query(cmd, "priority", "deadline"))
			if change == "" {
				return usageError{errors.New("want --priority or --deadline")}
			}
			return call(cmd.Context(), a, request{method: http.MethodPatch,
				path: path("jobs", args[0]) + change}, func(j jobAnswer) error {
				if err := a.printf("changed %s of %s\n", j.Job, keyName(j.Key)); err != nil {
					return err
				}
				return table(a.out, "", j.rows())
			})
		},
	}
}

func (a *app) jobChanges() []*cobra.Command {
	set := a.jobChange("set JOB --priority N --deadline TIME",
		"Change the priority or deadline of a waiting job", "Gives a job that waits another "+
			"priority or deadline: RFC 3339, how long\nfrom now, such as 90m, or none.", "")
	set.Flags().String("priority", "", "the `number`; higher goes first")
	set.Flags().String("deadline", "", "the `time` until which it may start")
	return []*cobra.Command{
		a.jobChange("run JOB", "End a job's backoff or delay",
			"Ends the backoff or delay of a job, which then waits for its turn. Its bucket's\n"+
				"rate still applies.", "?run=1"),
		a.jobChange("front JOB", "Move a job to the front of its bucket",
			"Moves a waiting job ahead of all others in its bucket.", "?front=1"),
		set,
	}
}

func (j *jobAnswer) rows() []row {
	unless := func(none bool, value any) any {
		if none {
			return ""
		}
		return value
	}
	took := func(ms *int64) any {
		if ms == nil {
			return ""
		}
		return milliseconds(*ms)
	}
	size := ""
	if j.Size != nil {
		size = strconv.Itoa(*j.Size) + " bytes"
	}
	now := time.Now()
	unknown := j.Key == "" && j.Size == nil // of ended jobs without a record
	return fields("job", j.Job, "key", unless(unknown, keyName(j.Key)), "state", j.State,
		"before it", j.Position,
		"calls in its bucket", unless(j.Calls == 0, j.Calls),
		"starts in", took(j.ETAMS), "blocked by", j.By, "until", j.Until,
		"accepted", clock(j.AcceptedAt, now)+", "+short(now.Sub(j.AcceptedAt))+" ago",
		"progress", line(j.Progress, 300), "failed attempts",
		unless(value(j.Attempts) == 0, j.Attempts), "reason", j.Reason,
		"last error", line(j.LastError, 300), "died", j.DeadAt,
		"dead letter", unless(j.Letter == 0, j.Letter),
		"replayed as", j.ReplayedAs, "ended", j.EndedAt, "took", took(j.DurationMS),
		"answer", j.answered(300), "deadline", j.Deadline, "not before", j.NotBefore,
		"cost", unless(j.Cost <= 1, j.Cost), "priority", unless(j.Priority == 0, j.Priority),
		"changed", unless(!j.Changed, "by an operator"),
		"tags", line(strings.Join(j.Tags, ", "), 300), "size", size)
}

func (j *jobAnswer) answered(most int) string {
	if j.Status == 0 {
		return line(j.Answer, most)
	}
	return strings.TrimSpace(strconv.Itoa(j.Status) + " " + line(j.Answer, most))
}

func (a *app) history() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history POLICY [--key KEY]",
		Short: "List ended jobs, most recent first",
		Long: "Lists the ended jobs of a policy or one of its buckets, most recent first. The\n" +
			"policy needs a result_retention, which says how long to keep them.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return call(cmd.Context(), a, request{path: a.path("history") + query(cmd, "limit")},
				a.historyTable)
		},
	}
	a.keyFlag(cmd, "only jobs of this `key`")
	limitFlag(cmd, 20)
	return cmd
}

func (a *app) historyTable(page struct{ Jobs []jobAnswer }) error {
	if len(page.Jobs) == 0 {
		return a.printf("no ended jobs; a policy keeps them only with result_retention\n")
	}
	return list(a, "JOB|KEY|STATE|ENDED|WAITED AND RAN|FAILED|ANSWER", page.Jobs,
		func(j jobAnswer) row {
			failed := any("?")
			if j.Attempts != nil {
				failed = *j.Attempts
			}
			said := cmp.Or(j.answered(60), strings.TrimSpace(j.Reason+" "+line(j.LastError, 60)))
			return row{j.Job, keyName(j.Key), j.State, j.EndedAt, j.EndedAt.Sub(j.AcceptedAt),
				failed, said}
		})
}

func (a *app) audit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit [POLICY]",
		Short: "List changes and their authors, most recent first",
		RunE: func(cmd *cobra.Command, args []string) error {
			at := path(append([]string{"audit"}, args...)...)
			return call(cmd.Context(), a, request{path: at + query(cmd, "limit")}, a.auditTable)
		},
	}
	limitFlag(cmd, 20)
	return cmd
}

func (a *app) auditTable(page api.AuditList) error {
	if len(page.Changes) == 0 {
		return a.printf("no changes\n")
	}
	return list(a, "WHEN|WHO|FROM|POLICY|KEY|WHAT|BEFORE AND AFTER", page.Changes,
		func(c api.AuditEntry) row {
			key := any("")
			if c.Key != nil {
				key = keyName(*c.Key)
			}
			said := slices.Concat(c.Changed, c.Details)
			if c.Job != "" {
				said = append(said, c.Job)
			}
			return row{c.At, cmp.Or(line(c.By, 60), "?"), c.From, c.Policy, key, c.What,
				line(strings.Join(said, ", "), 300)}
		})
}

func (a *app) drainers() *cobra.Command {
	return &cobra.Command{
		Use:   "drainers",
		Short: "List drainers with their state, partitions and load",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return call(cmd.Context(), a, request{path: path("drainers")}, a.drainerTable)
		},
	}
}

func (a *app) drainerTable(all struct{ Drainers []api.Drainer }) error {
	if len(all.Drainers) == 0 {
		return a.printf("no drainer holds a lease\n")
	}
	var rows []row
	for _, d := range all.Drainers {
		state := "alive"
		switch {
		case !d.Alive:
			state = "unresponsive"
		case d.Draining:
			state = "draining"
		}
		begin := row{d.ID, fmt.Sprintf("%s:%d", cmp.Or(line(d.Host, 60), "?"), d.PID),
			line(d.Version, 30), time.Since(d.StartedAt), state}
		add := func(cells ...any) {
			rows, begin = append(rows, append(begin, cells...)), row{"", "", "", "", ""}
		}
		for _, name := range slices.Sorted(maps.Keys(d.Policies)) {
			p := d.Policies[name]
			owns, busy := "nothing", "remote workers"
			if len(p.Owned) > 0 {
				owns = partitions(p.Owned)
			}
			if p.Workers > 0 {
				busy = fmt.Sprintf("%d of %d", p.Busy, p.Workers)
			}
			add(name, owns, busy)
		}
		for _, limit := range d.SharedLimits {
			add("limit "+line(limit, 60), "all of it")
		}
		if len(d.Policies)+len(d.SharedLimits) == 0 {
			add()
		}
	}
	return table(a.out, "DRAINER|HOST|VERSION|UP|STATE|POLICY|OWNS|BUSY", rows)
}
