package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/cmd/penstock/penstock-lab/trace"
	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/server/policyfile"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/whatif"
)

// length is a duration as in policies, also in days and weeks.
type length time.Duration

func (l *length) Set(text string) (err error) {
	*(*time.Duration)(l), err = algorithms.ParseDuration(text)
	return err
}

func (l *length) String() string {
	if *l == 0 {
		return ""
	}
	return algorithms.FormatDuration(time.Duration(*l))
}

func (*length) Type() string { return "duration" }

type traceFlags struct {
	file    string
	trace   trace.Options
	options whatif.Options
}

func (f *traceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.file, "trace", "", "the `file` of requests, or - for standard input")
	flags.StringVar(&f.trace.Format, "format", trace.Auto,
		fmt.Sprintf("the trace's format, one of %v", trace.Formats))
	flags.StringVar(&f.trace.Key, "key", "", "the `column` or field of the key; in logs also ip, "+
		"path, user or host; '' for none")
	flags.StringVar(&f.trace.Time, "time", "", "the `column` or field of the time")
	flags.Var((*length)(&f.options.Duration), "duration",
		"how long each job runs, and its target takes to answer")
	flags.Var((*length)(&f.options.Deadline), "deadline",
		"deadline of jobs without one in the trace")
	flags.IntVar(&f.options.Workers, "workers", 0,
		"total number of workers (default one drainer's)")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(
		trace.Formats, cobra.ShellCompDirectiveNoFileComp))
}

// read reports skipped lines on standard error.
func (f *traceFlags) read(cmd *cobra.Command, a lab) (*trace.Trace, error) {
	ctx := cmd.Context()
	f.trace.Keyless = f.trace.Key == "" && cmd.Flags().Changed("key")
	o := f.options
	switch {
	case f.file == "":
		return nil, cli.Misuse(errors.New("want --trace FILE"))
	case min(o.Duration, o.Deadline, o.Window) < 0, min(o.Workers, o.Keys) < 0:
		return nil, cli.Misuse(errors.New("--duration, --deadline, --window, --workers and " +
			"--keys must not be negative"))
	}
	in, err := a.Open(ctx, f.file)
	if err != nil {
		return nil, cli.Misuse(err)
	}
	defer in.Close()
	t, err := trace.Read(in, f.trace)
	if err != nil {
		return nil, cli.Misuse(fmt.Errorf("%s: %w", f.file, err))
	}
	for _, p := range t.Problems {
		fmt.Fprintf(a.Err, "penstock-lab: %s:%d: %s: %s\n", f.file, p.Line, cli.Plain(p.Reason),
			cli.Line(p.Text, 60))
	}
	if more := t.Skipped - len(t.Problems); more > 0 {
		fmt.Fprintf(a.Err, "penstock-lab: %s: and %s more\n", f.file,
			cli.Count(more, "line", "lines"))
	}
	if len(t.Requests) == 0 {
		return nil, cli.Misuse(fmt.Errorf("%s: no requests", f.file))
	}
	return t, nil
}

type traced struct {
	File     string          `json:"file"`
	Format   string          `json:"format"`
	Requests int             `json:"requests"`
	Skipped  int             `json:"skipped"`
	Keyless  int             `json:"keyless,omitempty"`
	Problems []trace.Problem `json:"problems,omitempty"`
	First    time.Time       `json:"first"`
	Last     time.Time       `json:"last"`
}

func (f *traceFlags) told(t *trace.Trace) traced {
	date := func(r trace.Request) time.Time { return time.Unix(0, r.At).UTC() }
	return traced{f.file, t.Format, len(t.Requests), t.Skipped, t.Keyless, t.Problems,
		date(t.Requests[0]), date(t.Requests[len(t.Requests)-1])}
}

func (t traced) String() string {
	text := fmt.Sprintf("%s of %s, from %s to %s", cli.Count(t.Requests, "request", "requests"),
		t.File, t.First.Format(time.DateTime), t.Last.Format(time.DateTime))
	if t.Keyless > 0 {
		text += fmt.Sprintf("; %s without the key", cli.Count(t.Keyless, "request", "requests"))
	}
	if t.Skipped > 0 {
		text += fmt.Sprintf("; %s skipped", cli.Count(t.Skipped, "line", "lines"))
	}
	return text
}

type play struct {
	Config string `json:"config"`
	*whatif.Report
	policy policy.Policy
}

func plays(config string, only []string) (all []*play, err error) {
	policies, err := policyfile.Load(config)
	if err != nil {
		return nil, cli.Misuse(err)
	}
	var names []string
	for _, p := range policies {
		names = append(names, p.Name)
		if len(only) == 0 || slices.Contains(only, p.Name) {
			all = append(all, &play{Config: config, policy: p})
		}
	}
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, cli.Misuse(fmt.Errorf("%s: no policy %q%s", config, name,
				nearest.Hint(name, names)))
		}
	}
	if len(all) == 0 {
		return nil, cli.Misuse(fmt.Errorf("%s: no policies", config))
	}
	return all, nil
}

// Requests without a policy are of any.
func of(policy string, t *trace.Trace) func(func(whatif.Request) bool) {
	return func(yield func(whatif.Request) bool) {
		for i := range t.Requests {
			r := &t.Requests[i]
			if (r.Policy == "" || r.Policy == policy) && !yield(r.Request) {
				return
			}
		}
	}
}

func playAll(all []*play, t *trace.Trace, o whatif.Options) error {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range all {
		g.Go(func() (err error) {
			p.Report, err = whatif.Play(p.policy, of(p.policy.Name, t), o)
			return err
		})
	}
	return g.Wait()
}

// titles returns short distinct names for the plays.
func titles(all []*play) (titles []string) {
	several := func(name func(*play) string) bool {
		return slices.ContainsFunc(all, func(p *play) bool { return name(p) != name(all[0]) })
	}
	configs := several(func(p *play) string { return p.Config })
	policies := several(func(p *play) string { return p.policy.Name })
	for _, p := range all {
		title := p.policy.Name
		if config := strings.TrimSuffix(p.Config, ".yaml"); configs && policies {
			title = config + " " + title
		} else if configs {
			title = config
		}
		titles = append(titles, title)
	}
	return titles
}
