package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
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
			return cli.Between(0, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := func(template string) request { return a.request(cmd, args, template) }
			switch {
			case len(args) == 0:
				return call(cmd.Context(), a, ask("GET buckets ?by limit"), a.allBuckets)
			case a.keyed:
				return call(cmd.Context(), a, ask("GET buckets [POLICY] KEY"),
					func(b api.Bucket) error {
						return a.bucketsOf(api.Buckets{Buckets: []api.Bucket{b}, Total: 1})
					})
			}
			return call(cmd.Context(), a, ask("GET buckets [POLICY] ?offset limit"), a.bucketsOf)
		},
	}
	limitFlag(a.keyFlag(cmd, "only the bucket of this `key`"), 20)
	cmd.Flags().Int("offset", 0, "skip this many buckets")
	cmd.Flags().String("by", "depth", "of all policies, what comes first: depth, age, "+
		"late (in\nthe last minute) or refused (in it, by the admitter asked)")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(
		[]string{"depth", "age", "late", "refused"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) allBuckets(page api.AllBuckets) error {
	columns, refused := "POLICY|"+bucketColumns, page.WindowMS != nil
	if refused {
		fmt.Fprintln(a.Err, "refusals by this admitter, counted for",
			cli.Short(milliseconds(*page.WindowMS)))
		columns += "|REFUSED"
	}
	for _, name := range slices.Sorted(maps.Keys(page.Unanswered)) {
		fmt.Fprintf(a.Err, "no drainer answered for %s of %s; their buckets are missing\n",
			partitions(page.Unanswered[name]), name)
	}
	return bucketTable(a, columns, page.Buckets, func(b api.PlacedBucket) cli.Row {
		row := append(cli.Row{b.Policy}, bucketRow(b.Bucket)...)
		return append(row, unless(!refused, b.Refused))
	}, page.Total)
}

func (a *app) bucketsOf(page api.Buckets) error {
	if len(page.Unanswered) > 0 {
		fmt.Fprintln(a.Err, "no drainer answered for", partitions(page.Unanswered)+
			"; their buckets are missing")
	}
	return bucketTable(a, bucketColumns, page.Buckets, bucketRow, page.Total)
}

func bucketTable[T any](a *app, columns string, all []T, of func(T) cli.Row, total int) error {
	err := list(a, columns, all, of, "")
	if err == nil && len(all) < total {
		err = a.Printf("%d of %s\n", len(all), cli.Count(total, "bucket", "buckets"))
	}
	return err
}

const bucketColumns = "KEY|DEPTH|WAITING|DELAYED|RUNNING|CALLS|STARTS|OLDEST|NEW JOB IN|BLOCKED BY"

func bucketRow(b api.Bucket) cli.Row {
	if b.BucketState == nil {
		return cli.Row{keyName(b.Key), b.Depth, "?", "?", "?", "?", "?", "?", "?", b.By}
	}
	oldest, next := "", "?"
	if b.HeadAgeMS > 0 {
		oldest = cli.Short(milliseconds(b.HeadAgeMS))
	}
	if b.ETAMS != nil {
		next = cli.Short(milliseconds(*b.ETAMS))
	}
	held := b.By
	if b.Until != nil {
		held += " until " + cli.Clock(*b.Until)
	}
	return cli.Row{keyName(b.Key), b.Depth, b.Waiting, b.Delayed, b.Running, b.Calls,
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
	if err := cli.Between(1, 1)(cmd, args); err != nil {
		return err
	}
	if !isJob(args[0]) {
		return fmt.Errorf("%q is not a job id such as mail:42", args[0])
	}
	return nil
}

// jobAnswer is a [api.Job], or a [api.EndedJob] with the fields below.
type jobAnswer struct {
	api.Job
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

func (a *app) jobCommand() *cobra.Command {
	cmd := declare(a, &cobra.Command{Use: "job JOB", Short: "Show a job's state or outcome",
		Args: jobArgs}, "GET jobs JOB", a.job)
	set := a.jobChange("set JOB --priority N --deadline TIME",
		"Change the priority or deadline of a waiting job", "Gives a job that waits another "+
			"priority or deadline: RFC 3339, how long\nfrom now, such as 90m, or none.",
		"PATCH jobs JOB ?priority deadline")
	set.Flags().String("priority", "", "the `number`; higher goes first")
	set.Flags().String("deadline", "", "the `time` until which it may start")
	set.MarkFlagsOneRequired("priority", "deadline")
	cmd.AddCommand(set,
		a.jobChange("run JOB", "End a job's backoff or delay",
			"Ends the backoff or delay of a job, which then waits for its turn. Its bucket's\n"+
				"rate still applies.", "PATCH jobs JOB ?run=1"),
		a.jobChange("front JOB", "Move a job to the front of its bucket",
			"Moves a waiting job ahead of all others in its bucket.", "PATCH jobs JOB ?front=1"))
	return cmd
}

func (a *app) jobChange(use, short, long, template string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: jobArgs}
	return declare(a, cmd, template, func(j jobAnswer) error {
		return cmp.Or(a.Printf("changed %s of %s\n", j.Job.Job, keyName(j.Key)), a.job(j))
	})
}

func (a *app) job(j jobAnswer) error {
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
	unknown := j.Key == "" && j.Size == nil // of ended jobs without a record
	return a.fields("job", j.Job.Job, "key", unless(unknown, keyName(j.Key)), "state", j.State,
		"before it", j.Position,
		"calls in its bucket", unless(j.Calls == 0, j.Calls),
		"starts in", took(j.ETAMS), "blocked by", j.By, "until", j.Until, "accepted",
		cli.Clock(j.AcceptedAt)+", "+cli.Short(time.Since(j.AcceptedAt))+" ago",
		"progress", cli.Line(j.Progress, 300),
		"failed attempts", unless(j.Attempts == nil || *j.Attempts == 0, j.Attempts),
		"reason", j.Reason, "last error", cli.Line(j.LastError, 300), "died", j.DeadAt,
		"dead letter", unless(j.Letter == 0, j.Letter),
		"replayed as", j.ReplayedAs, "ended", j.EndedAt, "took", took(j.DurationMS),
		"answer", j.answered(300), "deadline", j.Deadline, "not before", j.NotBefore,
		"cost", unless(j.Cost <= 1, j.Cost), "priority", unless(j.Priority == 0, j.Priority),
		"changed", unless(!j.Changed, "by an operator"),
		"tags", cli.Line(strings.Join(j.Tags, ", "), 300), "size", size)
}

func (j *jobAnswer) answered(most int) string {
	if j.Status == 0 {
		return cli.Line(j.Answer, most)
	}
	return strings.TrimSpace(strconv.Itoa(j.Status) + " " + cli.Line(j.Answer, most))
}

func (a *app) history() *cobra.Command {
	cmd := declare(a, &cobra.Command{
		Use:   "history POLICY [--key KEY]",
		Short: "List ended jobs, most recent first",
		Long: "Lists the ended jobs of a policy or one of its buckets, most recent first. The\n" +
			"policy needs a result_retention, which says how long to keep them.",
	}, "GET history POLICY [KEY] ?limit", func(page struct{ Jobs []jobAnswer }) error {
		return list(a, "JOB|KEY|STATE|ENDED|WAITED AND RAN|FAILED|ANSWER", page.Jobs, ended,
			"no ended jobs; a policy keeps them only with result_retention")
	})
	return limitFlag(a.keyFlag(cmd, "only jobs of this `key`"), 20)
}

func ended(j jobAnswer) cli.Row {
	failed := any("?")
	if j.Attempts != nil {
		failed = *j.Attempts
	}
	return cli.Row{j.Job.Job, keyName(j.Key), j.State, j.EndedAt, j.EndedAt.Sub(j.AcceptedAt),
		failed, cmp.Or(j.answered(60), strings.TrimSpace(j.Reason+" "+cli.Line(j.LastError, 60)))}
}

func (a *app) audit() *cobra.Command {
	return limitFlag(declare(a, &cobra.Command{
		Use: "audit [POLICY]", Short: "List changes and their authors, most recent first",
	}, "GET audit [POLICY] ?limit", func(page api.AuditList) error {
		return list(a, "WHEN|WHO|FROM|POLICY|KEY|WHAT|BEFORE AND AFTER", page.Changes, audited,
			"no changes")
	}), 20)
}

func audited(c api.AuditEntry) cli.Row {
	key := ""
	if c.Key != nil {
		key = keyName(*c.Key)
	}
	said := slices.Concat(c.Changed, c.Details)
	if c.Job != "" {
		said = append(said, c.Job)
	}
	return cli.Row{c.At, cmp.Or(cli.Line(c.By, 60), "?"), c.From, c.Policy, key, c.What,
		cli.Line(strings.Join(said, ", "), 300)}
}

func (a *app) drainers() *cobra.Command {
	return declare(a, &cobra.Command{
		Use: "drainers", Short: "List drainers with their state, partitions and load",
	}, "GET drainers", func(all struct{ Drainers []api.Drainer }) error {
		var parts []cli.Row
		for _, d := range all.Drainers {
			parts = append(parts, drainerRows(d)...)
		}
		return list(a, "DRAINER|HOST|VERSION|UP|STATE|POLICY|OWNS|BUSY", parts,
			func(r cli.Row) cli.Row { return r }, "no drainer holds a lease")
	})
}

func drainerRows(d api.Drainer) (rows []cli.Row) {
	for _, name := range slices.Sorted(maps.Keys(d.Policies)) {
		p := d.Policies[name]
		owns, busy := "nothing", "remote workers"
		if len(p.Owned) > 0 {
			owns = partitions(p.Owned)
		}
		if p.Workers > 0 {
			busy = fmt.Sprintf("%d of %d", p.Busy, p.Workers)
		}
		rows = append(rows, cli.Row{"", "", "", "", "", name, owns, busy})
	}
	for _, limit := range d.SharedLimits {
		rows = append(rows, cli.Row{"", "", "", "", "", "limit " + cli.Line(limit, 60),
			"all of it", ""})
	}
	if len(rows) == 0 {
		rows = []cli.Row{make(cli.Row, 5)}
	}
	state := "alive"
	switch {
	case !d.Alive:
		state = "lease expired"
	case d.Draining:
		state = "draining"
	}
	copy(rows[0], cli.Row{d.ID, fmt.Sprintf("%s:%d", cmp.Or(cli.Line(d.Host, 60), "?"), d.PID),
		cli.Line(d.Version, 30), time.Since(d.StartedAt), state})
	return rows
}

func (a *app) why() *cobra.Command {
	return a.keyFlag(&cobra.Command{
		Use:   "why JOB | why POLICY [--key KEY]",
		Short: "Explain why a job or bucket waits",
		Long: "Explains in a sentence why a job waits, when it starts or how it ended. For a\n" +
			"policy, it explains why its deepest buckets wait, or with --key one bucket.",
		Example: "  penstock why mail:42\n  penstock why mail --key big",
		Args:    cli.Between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case strings.Contains(args[0], ":") && !isJob(args[0]):
				return cli.Misuse(fmt.Errorf("%q is not a job id such as mail:42", args[0]))
			case !isJob(args[0]):
				return a.whyBuckets(cmd.Context())
			case a.keyed:
				return cli.Misuse(fmt.Errorf("--key requires a POLICY, not a JOB"))
			}
			return a.whyJob(cmd.Context(), args[0])
		},
	}, "the bucket of this `key`")
}

type reason struct {
	Job       string     `json:"job,omitempty"`
	Policy    string     `json:"policy"`
	Key       *string    `json:"key,omitempty"`
	State     string     `json:"state,omitempty"`
	BlockedBy string     `json:"blocked_by,omitempty"`
	Until     *time.Time `json:"until,omitempty"`
	Starts    *time.Time `json:"starts_at,omitempty"`
	Why       string     `json:"why"`
}

// tell prints a reason, with a command that ends the wait.
func (a *app) tell(r reason, eta *int64) error {
	if eta != nil {
		at := time.Now().Add(milliseconds(*eta)).Truncate(time.Millisecond)
		r.Starts = &at
	}
	switch r.BlockedBy {
	case "paused", "throttled_by_target", "breaker":
		r.Why += "; penstock resume " + r.Policy + " --key " + quoted(*r.Key) + " ends that"
	case "policy_paused":
		r.Why += "; penstock resume " + r.Policy + " ends that"
	}
	return a.Document(r, "%s\n", cli.Plain(r.Why))
}

// quoted is an argument for a shell.
func quoted(text string) string {
	simple := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:/@%+=,", r)
	}
	if text != "" && strings.TrimFunc(text, simple) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(cli.Plain(text), "'", `'\''`) + "'"
}

func (a *app) whyJob(ctx context.Context, id string) error {
	var j jobAnswer
	if _, err := a.get(ctx, path("jobs", id), &j); err != nil {
		return err
	}
	name := id
	if j.Key != "" {
		name += " of " + keyName(j.Key)
	}
	policy, _, _ := strings.Cut(id, ":")
	r := reason{Job: id, Policy: policy, Key: &j.Key, State: j.State, BlockedBy: j.By,
		Until: j.Until, Why: name + " " + j.Why}
	if j.Letter > 0 && j.Reason != "malformed" {
		r.Why += fmt.Sprintf("; penstock dead replay %s %d retries it", policy, j.Letter)
	}
	return a.tell(r, j.ETAMS)
}

const deepest = 5

func (a *app) whyBuckets(ctx context.Context) error {
	var page api.Buckets
	var err error
	if a.keyed {
		page.Buckets, page.Total = make([]api.Bucket, 1), 1
		_, err = a.get(ctx, path("buckets", a.policy, a.key), &page.Buckets[0])
	} else {
		_, err = a.get(ctx, fmt.Sprintf("%s?limit=%d", path("buckets", a.policy), deepest), &page)
	}
	if err != nil {
		return err
	}
	for _, b := range page.Buckets {
		r := reason{Policy: a.policy, Key: &b.Key, BlockedBy: b.By, Until: b.Until,
			Why: "the bucket " + bucketName(a.policy, b.Key) + " " + b.Why}
		if err := a.tell(r, cmp.Or(b.BucketState, &api.BucketState{}).ETAMS); err != nil {
			return err
		}
	}
	return a.whyPolicy(ctx, page)
}

// whyPolicy says what concerns the buckets of a page together.
func (a *app) whyPolicy(ctx context.Context, page api.Buckets) error {
	of := reason{Policy: a.policy}
	var p policyDocument
	_, err := a.get(ctx, path("policies", a.policy), &p)
	if err != nil && !is(err, cli.Forbidden, cli.NotFound) {
		return err
	}
	full, err := a.full(ctx)
	if err != nil {
		return err
	}
	var texts []string
	if p.News != "" {
		texts = append(texts, a.policy+" "+p.News)
	}
	if full != "" {
		texts = append(texts, full)
	}
	switch more := page.Total - len(page.Buckets); {
	case len(page.Unanswered) > 0:
		of.BlockedBy = "no_drainer"
		texts = append(texts, "no drainer answers for "+partitions(page.Unanswered)+" of "+a.policy+
			"; its jobs start when one runs: drainer, or admitter --drain")
	case page.Total == 0:
		texts = append(texts, a.policy+
			" holds no jobs and no calls; --key KEY says when one of a key would start")
	case more > 0 && !a.JSON:
		texts = append(texts, "and "+cli.Count(more, "more bucket", "more buckets"))
	}
	for _, of.Why = range texts {
		if err := a.tell(of, nil); err != nil {
			return err
		}
	}
	return nil
}
