package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
)

const (
	topEvery   = time.Second
	topBuckets = 100
)

func (a *app) top() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show policies and their deepest buckets, live",
		Long: `Shows each policy's accepted, started and failed jobs, its starts in the last minute, and the
deepest buckets with the reason they wait, until you press ctrl+c. With --once, or if the output is
not a terminal, it prints one view.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			first, err := a.look(cmd.Context())
			if err != nil {
				return err
			}
			file, isFile := a.Out.(*os.File)
			if once || a.JSON || !isFile || !term.IsTerminal(int(file.Fd())) {
				return a.show(first.answer, func() error {
					return a.Printf("%s", first.text(1000, 1000))
				})
			}
			return a.watch(cmd.Context(), first, int(file.Fd()))
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one view and exit")
	return cmd
}

type view struct {
	server  string
	at      time.Time
	stats   api.Stats
	answer  []byte // the stats as received
	names   []string
	limits  map[string]policyDocument
	buckets api.AllBuckets
}

func (a *app) look(ctx context.Context) (v *view, err error) {
	v = &view{server: a.server, at: time.Now(), limits: map[string]policyDocument{}}
	if v.answer, err = a.get(ctx, path("stats")+"?keys=3", &v.stats); err != nil {
		return nil, err
	}
	var all allPolicies
	if _, err = a.get(ctx, path("policies"), &all); err != nil {
		return nil, err
	}
	for _, p := range all.Policies {
		v.names = append(v.names, p.Policy.Name)
		v.limits[p.Policy.Name] = p
	}
	slices.SortStableFunc(v.names, func(a, b string) int {
		return cmp.Compare(busy(v.stat(b)), busy(v.stat(a)))
	})
	_, err = a.get(ctx, fmt.Sprintf("%s?limit=%d", path("buckets"), topBuckets), &v.buckets)
	return v, err
}

func (v *view) stat(policy string) api.Stat {
	i := slices.IndexFunc(v.stats.Policies, func(s api.Stat) bool { return s.Policy == policy })
	if i < 0 {
		return api.Stat{Policy: policy}
	}
	return v.stats.Policies[i]
}

func busy(s api.Stat) int64 {
	return s.Accepted + s.Started + s.Refused + s.ChecksAllowed + s.ChecksRefused
}

func (v *view) text(width, height int) string {
	var b strings.Builder
	window := "the last minute"
	if v.stats.WindowMS < 59_000 {
		window = "watching for " + cli.Short(milliseconds(v.stats.WindowMS)) +
			": what was before is unknown"
	}
	fmt.Fprintf(&b, "penstock %s  %s  %s\n\n", v.server, v.at.Format(time.TimeOnly), window)
	room := max(height-11, 2)
	names := v.names[:min(len(v.names), room/2)]
	_ = cli.Table(&b, "POLICY|STARTS|LIMIT||ACCEPTED|REFUSED|FAILED|DEAD|WAIT P50 P99|",
		cli.Rows(names, v.policyRow))
	if more := len(v.names) - len(names); more > 0 {
		fmt.Fprintf(&b, "and %s\n", cli.Count(more, "more policy", "more policies"))
	}
	if hot := v.hottest(); hot != "" {
		fmt.Fprintf(&b, "hottest keys: %s\n", hot)
	}
	if missing := slices.Sorted(maps.Keys(v.buckets.Unanswered)); len(missing) > 0 {
		fmt.Fprintf(&b, "no drainer answers for all of %s\n", strings.Join(missing, ", "))
	}
	if all := v.buckets.Buckets; len(all) > 0 {
		fmt.Fprintf(&b, "\n%s\n", cli.Count(v.buckets.Total, "bucket holds jobs or calls",
			"buckets hold jobs or calls"))
		_ = cli.Table(&b, "BUCKET|DEPTH|RUNNING|CALLS|STARTS|LIMIT|OLDEST|NEW JOB IN|BLOCKED BY",
			cli.Rows(all[:min(len(all), room-room/2)], v.bucketRow))
	}
	return cut(b.String(), width)
}

func (v *view) hottest() string {
	var hot []string
	for _, s := range v.stats.Policies {
		for _, k := range s.Keys {
			hot = append(hot, fmt.Sprintf("%s %d allowed %d refused",
				bucketName(s.Policy, k.Key), k.Allowed, k.Refused))
		}
	}
	return strings.Join(hot, ", ")
}

func (v *view) bucketRow(p api.PlacedBucket) cli.Row {
	r, limit := bucketRow(p.Bucket), v.limits[p.Policy].current()
	return cli.Row{bucketName(p.Policy, p.Key), r[1], r[4], r[5], r[6],
		cmp.Or(limit.Outflow, limit.OutflowTotal), r[7], r[8], r[9]}
}

func (v *view) policyRow(name string) cli.Row {
	s, p := v.stat(name), v.limits[name]
	wait := ""
	if s.Wait != nil {
		wait = cli.Short(milliseconds(s.Wait.P50)) + " " + cli.Short(milliseconds(s.Wait.P99))
	}
	state := policyState(p.PolicyState)
	if state == "active" {
		state = ""
	}
	return cli.Row{name, fmt.Sprintf("%.4g/s", s.Rate), p.Policy.rate(), sparks(s.Starts, 30),
		s.Accepted + s.ChecksAllowed, s.Refused + s.ChecksRefused, s.Failed, s.Dead, wait, state}
}

func sparks(numbers []int64, columns int) string {
	if len(numbers) > 1 {
		numbers = numbers[:len(numbers)-1] // the last second is incomplete
	}
	each := max((len(numbers)+columns-1)/columns, 1)
	var heights []int64
	for part := range slices.Chunk(numbers, each) {
		sum := int64(0)
		for _, n := range part {
			sum += n
		}
		heights = append(heights, sum*int64(each)/int64(len(part)))
	}
	if len(heights) == 0 || slices.Max(heights) == 0 {
		return ""
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range heights {
		bar := '·'
		if n > 0 {
			bar = levels[n*int64(len(levels)-1)/slices.Max(heights)]
		}
		b.WriteRune(bar)
	}
	return b.String()
}

func cut(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if runes := []rune(l); len(runes) > width {
			lines[i] = string(runes[:width])
		}
	}
	return strings.Join(lines, "\n")
}

// watch looks again and again, on a screen of its own.
func (a *app) watch(ctx context.Context, v *view, terminal int) error {
	const begin, home, end = "\x1b[?1049h\x1b[?25l", "\x1b[H\x1b[J", "\x1b[?25h\x1b[?1049l"
	fmt.Fprint(a.Out, begin)
	defer fmt.Fprint(a.Out, end)
	trouble := ""
	for {
		width, height, err := term.GetSize(terminal)
		if err != nil {
			return err
		}
		if err := a.Printf("%s%s%s", home, v.text(width, height), trouble); err != nil {
			return err
		}
		if !wait(ctx, topEvery) {
			return nil
		}
		seen, err := a.look(ctx)
		if trouble = ""; err != nil {
			trouble = "\n" + cli.Line(err.Error(), width)
		} else {
			v = seen
		}
	}
}
