package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
)

type submission struct {
	headers []string
	given   *pflag.FlagSet
	tags    []string
	file    string
	run     string
	wait    time.Duration
}

type headerFlag struct{ name, header, usage string }

var headerName = regexp.MustCompile("^[0-9A-Za-z!#$%&'*+.^_`|~-]+$")

const idempotencyKey = "Idempotency-Key"

var headerFlags = []headerFlag{
	{"id", idempotencyKey, "the job's Idempotency-Key; repeats create no second job"},
	{"deadline", "Penstock-Deadline", "latest start, as a `time` (RFC 3339) or duration"},
	{"not-before", "Penstock-Not-Before", "earliest start, as a `time` (RFC 3339) or duration"},
	{"max-attempts", "Penstock-Max-Attempts", "`number` of failures that make a dead letter"},
	{"attempt-timeout", "Penstock-Timeout", "maximum `duration` of an attempt"},
	{"retention", "Penstock-Retention", "the `duration` to keep the ended job"},
	{"unique", "Penstock-Unique",
		"allow one waiting job with this `name`; \"NAME; replace\" replaces it"},
	{"cost", "Penstock-Cost", "the `slots` of the rate a job takes"},
	{"priority", "Penstock-Priority", "a `number`; higher priorities start first within a bucket"},
	// defined elsewhere
	{name: "tag", header: "Penstock-Tag"},
	{name: "name", header: "Penstock-Schedule-Name"},
	{name: "zone", header: "Penstock-Schedule-Zone"},
}

// flags defines the flags of headers, of all or of those with these names.
func (s *submission) flags(f *pflag.FlagSet, only ...string) {
	f.StringArrayVarP(&s.headers, "header", "H", nil, "header such as \"Name: value\"; repeatable")
	f.StringArrayVar(&s.tags, "tag", nil, "a `tag` to find the job by; repeatable")
	s.given = f
	for _, h := range headerFlags {
		if h.usage != "" && (len(only) == 0 || slices.Contains(only, h.name)) {
			f.String(h.name, "", h.usage)
		}
	}
}

func (a *app) submit() *cobra.Command {
	var s submission
	cmd := &cobra.Command{
		Use:   "submit POLICY [BODY] | submit [POLICY] --file FILE",
		Short: "Submit a job, or jobs from a file",
		Long: `Submits a job with BODY: text, "@FILE" to read a file, or "-" for standard input.

With --file it submits many jobs, one JSON object per line (NDJSON; "-" is standard input):

  {"policy":"mail","key":"acme","headers":{"Penstock-Priority":"2"},"body":{"to":"ann"}}

All fields are optional; policy and key default to the command line's. body is any JSON; use "text"
for a string and "base64" for bytes instead. Refused lines are retried when the server says so.
Lines without an Idempotency-Key get one from their number and text, so after an interruption the
same command continues where it stopped. To submit the same file again within the policy's
duplicate_window, name the run, as in --run again.`,
		Example: "  penstock submit mail '{\"to\":\"ann\"}' --key acme\n" +
			"  penstock submit mail --file jobs.ndjson",
		Args: submitArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.wait < 0 {
				return cli.Misuse(fmt.Errorf("wait: %v: want 0 or more", s.wait))
			}
			header, err := s.header()
			if err != nil {
				return cli.Misuse(err)
			}
			if s.file != "" {
				if !cmd.Flags().Changed("wait") {
					s.wait = patience
				}
				return a.submitFile(cmd.Context(), s, header)
			}
			body, err := a.body(cmd.Context(), args[1:])
			if err != nil {
				return cli.Misuse(err)
			}
			return a.submitOne(cmd.Context(), s, header, body)
		},
	}
	a.keyFlag(cmd, "the bucket's `key`; may be empty")
	f := cmd.Flags()
	s.flags(f)
	f.StringVarP(&s.file, "file", "f", "", "submit the jobs of this NDJSON `file`")
	f.StringVar(&s.run, "run", "", "`name` of this run; a new name submits the file's jobs again")
	f.DurationVar(&s.wait, "wait", 0,
		"how long to retry a refused job and wait for its outcome; "+
			"for a file, how long without an accepted job (default 5m)")
	return cmd
}

func submitArgs(cmd *cobra.Command, args []string) error {
	file, _ := cmd.Flags().GetString("file")
	switch {
	case file == "" && cmd.Flags().Changed("file"):
		return errors.New("--file: want a value")
	case file == "" && cmd.Flags().Changed("run"):
		return errors.New("--run requires --file")
	case file == "":
		return cli.Between(1, 2)(cmd, args)
	case len(args) > 1:
		return errors.New("want either BODY or --file")
	case cmd.Flags().Changed("id"):
		return errors.New("--id is for a single job; set Idempotency-Key in the file")
	}
	return nil
}

func (s *submission) header() (http.Header, error) {
	header := http.Header{}
	for _, text := range s.headers {
		name, value, ok := strings.Cut(text, ":")
		name = strings.TrimSpace(name)
		if !ok || !headerName.MatchString(name) || strings.ContainsFunc(value, unicode.IsControl) {
			return nil, fmt.Errorf("header: %q: want \"Name: value\"", text)
		}
		header.Add(name, strings.TrimSpace(value))
	}
	for _, h := range headerFlags {
		f := s.given.Lookup(h.name)
		if f == nil || !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if h.name == "tag" {
			values = s.tags
		}
		value := strings.Join(values, ",")
		switch {
		case slices.Contains(values, ""): // as of an unset variable of a script
			return nil, fmt.Errorf("--%s: want a value", h.name)
		case header.Get(h.header) != "":
			return nil, fmt.Errorf("%s is given twice, as a header and as a flag", h.header)
		case strings.ContainsFunc(value, unicode.IsControl):
			return nil, fmt.Errorf("%s: %q contains a control character", h.header, value)
		}
		header.Set(h.header, value)
	}
	return header, nil
}

func (a *app) body(ctx context.Context, args []string) ([]byte, error) {
	if len(args) == 0 {
		return nil, nil
	}
	name, file := strings.CutPrefix(args[0], "@")
	if !file && name != "-" {
		return []byte(name), nil
	}
	in, err := a.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

const mostWait = 5 * time.Minute

// submitOne repeats a refused submission within --wait, and waits for the job's end for the rest.
func (a *app) submitOne(ctx context.Context, s submission, header http.Header,
	body []byte) error {

	patience := a.timeout
	for end := time.Now().Add(s.wait); ; {
		to := path("jobs", a.policy, a.key)
		if left := min(time.Until(end), mostWait); s.wait > 0 {
			to += fmt.Sprintf("?wait=%dms", max(left.Milliseconds(), 1))
			a.timeout = patience + max(left, 0)
		}
		answer, err := a.ask(ctx, request{http.MethodPost, to, body, header})
		if err == nil {
			return a.taken(answer, min(s.wait, mostWait))
		}
		p, _ := errors.AsType[*problem](err)
		if !is(err, cli.Refused) {
			return err
		}
		again := milliseconds(max(p.RetryAfterMS, 1))
		if s.wait == 0 || !time.Now().Add(again).Before(end) {
			return a.orRefused(ctx, err)
		}
		if !wait(ctx, again) {
			return ctx.Err()
		}
	}
}

// orRefused prints a refusal: when to retry, and of a policy that is full by bytes, who fills it.
func (a *app) orRefused(ctx context.Context, err error) error {
	p, _ := errors.AsType[*problem](err)
	if p == nil || p.Status != http.StatusTooManyRequests {
		return err
	}
	text := "refused, retry in " + cli.Short(milliseconds(p.RetryAfterMS))
	if slices.Contains(p.ViolatedPolicies, a.policy+"/max_bytes") {
		full, err := a.full(ctx)
		if err != nil {
			return err
		}
		text = strings.TrimSuffix(text+": "+full, ": ")
	}
	err = a.show(p.body, func() error { return a.Printf("%s\n", text) })
	return cmp.Or(err, error(cli.Said(cli.Refused)))
}

// full says what the bytes of a policy are, if they nearly fill it and the client may read that.
func (a *app) full(ctx context.Context) (string, error) {
	var all api.AllBuckets
	_, err := a.get(ctx, path("buckets")+"?limit=1", &all)
	if is(err, cli.Forbidden, cli.NotFound, cli.Conflict) {
		return "", nil
	}
	return all.Bytes[a.policy].Why, err
}

// verdictAnswer is the answer to a job, or to a line of a batch; with End that of a job whose end
// was waited for.
type verdictAnswer struct {
	api.BatchLine
	Progress string     `json:"progress"`
	End      string     `json:"end"`
	Error    string     `json:"error"`
	Reply    *api.Reply `json:"reply"`
}

// taken shows a job for whose end the caller has waited so long. The exit status shows that it
// ended without success.
func (a *app) taken(answer []byte, waited time.Duration) error {
	var v verdictAnswer
	if err := read(answer, &v); err != nil {
		return err
	}
	if v.Job == "" {
		return errForeign
	}
	err := a.show(answer, func() error {
		if v.End != "" {
			return a.outcome(v)
		}
		return a.submitted(v, waited)
	})
	if err == nil && v.End != "" && v.End != "done" {
		return cli.Said(cli.Failed)
	}
	return err
}

func (a *app) submitted(v verdictAnswer, waited time.Duration) error {
	text := v.Verdict + " " + v.Job
	switch {
	case v.Duplicate:
		text += ": a repeat of an accepted job"
	case v.Progress != "":
		text += ", running: " + cli.Line(v.Progress, 300)
	case v.Verdict == "queued" && v.DelayMS != nil:
		text += ", starts in " + cli.Short(milliseconds(*v.DelayMS))
	case v.Position != nil && *v.Position > 0:
		text += fmt.Sprintf(", %d ahead of it", *v.Position)
	}
	if waited > 0 {
		text += "; it has not ended within " + cli.Short(waited) + ": penstock why " + v.Job
	}
	return a.Printf("%s\n", text)
}

func (a *app) outcome(v verdictAnswer) error {
	text := v.Job + " is " + v.End
	if v.Error != "" {
		text += ": " + cli.Line(v.Error, 300)
	}
	if r := v.Reply; r != nil {
		if r.Status > 0 {
			text += fmt.Sprintf(", its target answered %d", r.Status)
		}
		if r.Body != nil {
			text += "\n" + cli.Plain(*r.Body)
		}
	}
	return a.Printf("%s\n", text)
}
