package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
)

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

// tell prints a sentence of the server after its subject, and before a command that ends the wait.
func (a *app) tell(r reason, subject, sentence string, eta *int64) error {
	if eta != nil {
		at := time.Now().Add(milliseconds(*eta)).Truncate(time.Millisecond)
		r.Starts = &at
	}
	r.Why = subject + sentence
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
	if j.Letter > 0 && j.Reason != "malformed" {
		j.Why += fmt.Sprintf("; penstock dead replay %s %d retries it", policy, j.Letter)
	}
	return a.tell(reason{Job: id, Policy: policy, Key: &j.Key, State: j.State, BlockedBy: j.By,
		Until: j.Until}, name+" ", j.Why, j.ETAMS)
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
		r := reason{Policy: a.policy, Key: &b.Key, BlockedBy: b.By, Until: b.Until}
		var eta *int64
		if b.BucketState != nil {
			eta = b.ETAMS
		}
		subject := "the bucket " + bucketName(a.policy, b.Key) + " "
		if err := a.tell(r, subject, b.Why, eta); err != nil {
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
	for _, text := range texts {
		if err := a.tell(of, "", text, nil); err != nil {
			return err
		}
	}
	return nil
}
