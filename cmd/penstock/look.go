package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/queue/job"
)

// What shows how things stand: buckets, jobs and drainers.

func (a *app) buckets() *cobra.Command {
	var key, by string
	var limit, offset int
	cmd := &cobra.Command{
		Use:   "buckets [POLICY]",
		Short: "List the buckets that hold jobs, of a policy or of all, deepest first",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.Flags().Changed("by") {
				return errors.New("--by is for the buckets of all policies")
			}
			if len(args) == 0 && (cmd.Flags().Changed("key") || offset != 0) {
				return errors.New("--key and --offset want a policy")
			}
			return between(0, 1)(cmd, args)
		},
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.allBuckets(cmd.Context(), by, limit)
			}
			a.policy = args[0]
			var page bucketsAnswer
			var answer []byte
			var err error
			if cmd.Flags().Changed("key") {
				page.Buckets, page.Total = make([]bucketAnswer, 1), 1
				answer, err = a.get(cmd.Context(), path("buckets", a.policy, key),
					&page.Buckets[0])
			} else {
				answer, err = a.get(cmd.Context(), fmt.Sprintf("%s?offset=%d&limit=%d",
					path("buckets", a.policy), offset, limit), &page)
			}
			if err != nil {
				return err
			}
			return a.show(answer, func() error { return a.bucketTable(page) })
		},
	}
	keyFlag(cmd, &key, "only the bucket of this `key`")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "show at most this many")
	cmd.Flags().IntVar(&offset, "offset", 0, "leave out this many, the deepest")
	cmd.Flags().StringVar(&by, "by", job.ByDepth, "of all policies, what comes first: depth, age, "+
		"late (in\nthe last minute) or refused (in it, by the admitter asked)")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions( // there is such a flag
		job.BucketOrders, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// allBuckets lists the first buckets of all policies.
func (a *app) allBuckets(ctx context.Context, by string, limit int) error {
	var page allBucketsAnswer
	answer, err := a.get(ctx, fmt.Sprintf("%s?by=%s&limit=%d", path("buckets"),
		url.QueryEscape(by), limit), &page)
	if err != nil {
		return err
	}
	return a.show(answer, func() error {
		rows := [][]string{append([]string{"POLICY"}, bucketColumns...)}
		for _, b := range page.Buckets {
			rows = append(rows, append([]string{b.Policy}, bucketRow(b.bucketAnswer,
				time.Now())...))
		}
		if by == job.ByRefused {
			fmt.Fprintln(a.err, "refusals by this admitter, counted for",
				short(milliseconds(page.WindowMS)))
			rows[0] = append(rows[0], "REFUSED")
			for i, b := range page.Buckets {
				rows[i+1] = append(rows[i+1], strconv.FormatInt(b.Refused, 10))
			}
		}
		if err := table(a.out, rows); err != nil {
			return err
		}
		if len(page.Buckets) < page.Total {
			fmt.Fprintf(a.out, "%d of %s\n", len(page.Buckets),
				count(page.Total, "bucket", "buckets"))
		}
		for _, name := range slices.Sorted(maps.Keys(page.Unanswered)) {
			fmt.Fprintf(a.err, "nobody answered for %s of %s: their buckets are missing\n",
				partitions(page.Unanswered[name]), name)
		}
		return nil
	})
}

// bucketColumns are the names of what bucketRow returns.
var bucketColumns = []string{"KEY", "DEPTH", "WAITING", "DELAYED", "RUNNING", "RATE", "OLDEST",
	"NEXT IN", "HELD BY"}

func (a *app) bucketTable(page bucketsAnswer) error {
	rows := [][]string{bucketColumns}
	for _, b := range page.Buckets {
		rows = append(rows, bucketRow(b, time.Now()))
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	if more := page.Total - len(page.Buckets); more > 0 {
		fmt.Fprintf(a.out, "%d of %s\n", len(page.Buckets), count(page.Total, "bucket", "buckets"))
	}
	if len(page.Unanswered) > 0 {
		fmt.Fprintln(a.err, "nobody answered for", partitions(page.Unanswered)+
			": their buckets are missing")
	}
	return nil
}

func bucketRow(b bucketAnswer, now time.Time) []string {
	if len(b.Unanswered) > 0 {
		return []string{keyName(b.Key), strconv.Itoa(b.Depth), "?", "?", "?", "?", "?", "?",
			b.By}
	}
	oldest, next := "", "?"
	if b.HeadAgeMS > 0 {
		oldest = short(milliseconds(b.HeadAgeMS))
	}
	if b.ExpectMS != nil {
		next = short(milliseconds(*b.ExpectMS))
	}
	held := b.By
	if b.Until != nil {
		held += " until " + clock(*b.Until, now)
	}
	return []string{keyName(b.Key), strconv.Itoa(b.Depth), strconv.Itoa(b.Waiting),
		strconv.Itoa(b.Delayed), strconv.Itoa(b.Running), fmt.Sprintf("%.4g/s", b.Rate), oldest,
		next, held}
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

// jobArgs takes the id of a job.
func jobArgs(cmd *cobra.Command, args []string) error {
	if err := exactly(1)(cmd, args); err != nil {
		return err
	}
	if _, _, ok := job.ParseID(args[0]); !ok {
		return fmt.Errorf("%q is no job: want an id such as mail:42", args[0])
	}
	return nil
}

func (a *app) jobCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job JOB",
		Short: "Show how a job stands, or what became of it",
		Args:  jobArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var j jobAnswer
			answer, err := a.get(cmd.Context(), path("jobs", args[0]), &j)
			if err != nil {
				return err
			}
			return a.show(answer, func() error { return table(a.out, j.rows(time.Now())) })
		},
	}
	cmd.AddCommand(a.jobChanges()...)
	return cmd
}

func (j *jobAnswer) rows(now time.Time) (rows [][]string) {
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	number := func(n *int) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(*n)
	}
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return clock(*t, now)
	}
	add("job", j.Job)
	add("key", keyName(j.Key))
	add("state", j.State)
	add("before it", number(j.Position))
	if j.ExpectMS != nil {
		add("starts in", short(milliseconds(*j.ExpectMS)))
	}
	add("held by", j.By)
	add("until", at(j.Until))
	add("accepted", fmt.Sprintf("%s, %s ago", clock(j.AcceptedAt, now),
		short(now.Sub(j.AcceptedAt))))
	add("failed attempts", number(j.Attempts))
	add("reason", j.Reason)
	add("last error", line(j.LastError, 300))
	add("buried", at(j.BuriedAt))
	if j.Letter > 0 {
		add("dead letter", strconv.FormatUint(j.Letter, 10))
	}
	add("replayed as", j.ReplayedAs)
	add("ended", at(j.EndedAt))
	if j.DurationMS != nil {
		add("took", short(milliseconds(*j.DurationMS)))
	}
	add("answer", j.answered(300))
	add("deadline", at(j.Deadline))
	add("not before", at(j.NotBefore))
	if j.Cost > 1 {
		add("cost", strconv.FormatInt(j.Cost, 10))
	}
	if j.Priority != 0 {
		add("priority", strconv.Itoa(j.Priority))
	}
	if j.Changed {
		add("changed", "by an operator")
	}
	add("tags", line(strings.Join(j.Tags, ", "), 300))
	if j.Size != nil {
		add("size", strconv.Itoa(*j.Size)+" bytes")
	}
	return rows
}

// answered is what the target of a job that has ended said.
func (j *jobAnswer) answered(most int) string {
	if j.Status == 0 {
		return line(j.Answer, most)
	}
	return strings.TrimSpace(strconv.Itoa(j.Status) + " " + line(j.Answer, most))
}

func (a *app) history() *cobra.Command {
	var key string
	var limit int
	cmd := a.ofPolicy(&cobra.Command{
		Use:   "history POLICY [--key KEY]",
		Short: "List the jobs that have ended, the last one first",
		Long: "Lists the jobs of a policy that have ended, or of one of its buckets, the last\n" +
			"one first. The policy must say keep_done: for how long they are to be known.",
		RunE: func(cmd *cobra.Command, args []string) error {
			at := path("history", a.policy)
			if cmd.Flags().Changed("key") {
				at = path("history", a.policy, key)
			}
			var page historyAnswer
			answer, err := a.get(cmd.Context(), fmt.Sprintf("%s?limit=%d", at, limit), &page)
			if err != nil {
				return err
			}
			return a.show(answer, func() error { return a.historyTable(page.Jobs) })
		},
	})
	keyFlag(cmd, &key, "only those of this `key`")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "show at most this many")
	return cmd
}

func (a *app) historyTable(jobs []jobAnswer) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(a.out, "none is known: a policy keeps them if it says keep_done")
		return err
	}
	rows := [][]string{{"JOB", "KEY", "STATE", "ENDED", "WAITED AND RAN", "FAILED", "ANSWER"}}
	for _, j := range jobs {
		failed := "?"
		if j.Attempts != nil {
			failed = strconv.Itoa(*j.Attempts)
		}
		said := cmp.Or(j.answered(60), strings.TrimSpace(j.Reason+" "+line(j.LastError, 60)))
		rows = append(rows, []string{j.Job, keyName(j.Key), j.State,
			clock(*j.EndedAt, time.Now()), short(j.EndedAt.Sub(j.AcceptedAt)), failed, said})
	}
	return table(a.out, rows)
}

func (a *app) drainers() *cobra.Command {
	return &cobra.Command{
		Use:   "drainers",
		Short: "List the drainers: who is alive, owns what, and how busy it is",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all struct{ Drainers []drainerAnswer }
			answer, err := a.get(cmd.Context(), path("drainers"), &all)
			if err != nil {
				return err
			}
			return a.show(answer, func() error { return a.drainerTable(all.Drainers) })
		},
	}
}

func (a *app) drainerTable(all []drainerAnswer) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(a.out, "no drainer holds a lease")
		return err
	}
	rows := [][]string{{"DRAINER", "HOST", "VERSION", "UP", "STATE", "POLICY", "OWNS", "BUSY"}}
	for _, d := range all {
		state := "alive"
		switch {
		case !d.Alive:
			state = "silent"
		case d.Leaving:
			state = "leaving"
		}
		row := []string{d.ID, fmt.Sprintf("%s:%d", cmp.Or(line(d.Host, 60), "?"), d.PID),
			line(d.Version, 30), short(time.Since(d.StartedAt)), state}
		for _, name := range slices.Sorted(maps.Keys(d.Policies)) {
			p := d.Policies[name]
			busy := "elsewhere"
			if p.Workers > 0 {
				busy = fmt.Sprintf("%d of %d", p.Busy, p.Workers)
			}
			owns := "nothing"
			if len(p.Owned) > 0 {
				owns = partitions(p.Owned)
			}
			rows = append(rows, append(row, name, owns, busy))
			row = make([]string, 5)
		}
		for _, limit := range d.SharedLimits {
			rows = append(rows, append(row, "limit "+line(limit, 60), "all of it", ""))
			row = make([]string, 5)
		}
		if len(d.Policies)+len(d.SharedLimits) == 0 {
			rows = append(rows, row)
		}
	}
	return table(a.out, rows)
}
