package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/penstock-mq/penstock/api"
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
deepest buckets with the reason they wait. Press q to quit. With --once, or if the output is not a
terminal, it prints one view.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			first, err := a.look(cmd.Context())
			if err != nil {
				return err
			}
			file, isFile := a.out.(*os.File)
			if once || a.json || !isFile || !term.IsTerminal(int(file.Fd())) {
				return a.show(first.answer, func() error {
					return a.printf("%s", first.text(1000, 1000))
				})
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			_, err = tea.NewProgram(&screen{app: a, ctx: ctx, seen: first},
				tea.WithContext(ctx), tea.WithInput(a.in), tea.WithOutput(a.out)).Run()
			if errors.Is(err, tea.ErrProgramKilled) && cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			return err
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
		window = "watching for " + short(milliseconds(v.stats.WindowMS)) +
			": what was before is unknown"
	}
	fmt.Fprintf(&b, "penstock %s  %s  %s\n\n", v.server, v.at.Format(time.TimeOnly), window)
	room := max(height-11, 2)
	names := v.names[:min(len(v.names), room/2)]
	var rows []row
	for _, name := range names {
		rows = append(rows, v.policyRow(name))
	}
	_ = table(&b, "POLICY|STARTS|LIMIT||ACCEPTED|REFUSED|FAILED|DEAD|WAIT P50 P99|", rows)
	if more := len(v.names) - len(names); more > 0 {
		fmt.Fprintf(&b, "and %s\n", count(more, "more policy", "more policies"))
	}
	if hot := v.hottest(); hot != "" {
		fmt.Fprintf(&b, "hottest keys: %s\n", hot)
	}
	if missing := slices.Sorted(maps.Keys(v.buckets.Unanswered)); len(missing) > 0 {
		fmt.Fprintf(&b, "no drainer answers for all of %s\n", strings.Join(missing, ", "))
	}
	if all := v.buckets.Buckets; len(all) > 0 {
		fmt.Fprintf(&b, "\n%s\n", count(v.buckets.Total, "bucket holds jobs or calls",
			"buckets hold jobs or calls"))
		rows = nil
		for _, p := range all[:min(len(all), room-room/2)] {
			r := bucketRow(&p.Bucket)
			limit := v.limits[p.Policy].current()
			rows = append(rows, row{bucketName(p.Policy, p.Key), r[1], r[4], r[5], r[6],
				cmp.Or(limit.Outflow, limit.OutflowTotal), r[7], r[8], r[9]})
		}
		_ = table(&b, "BUCKET|DEPTH|RUNNING|CALLS|RATE|LIMIT|OLDEST|NEXT IN|BLOCKED BY", rows)
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

func (v *view) policyRow(name string) row {
	s, p := v.stat(name), v.limits[name]
	wait := ""
	if s.Wait != nil {
		wait = short(milliseconds(s.Wait.P50)) + " " + short(milliseconds(s.Wait.P99))
	}
	state := policyState(p.PolicyState)
	if state == "active" {
		state = ""
	}
	return row{name, fmt.Sprintf("%.4g/s", s.Rate), rate(p.Policy), sparks(s.Starts, 30),
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
	const bars = "▁▂▃▄▅▆▇█"
	levels := []rune(bars)
	var b strings.Builder
	for _, n := range heights {
		if n == 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(levels[n*int64(len(levels)-1)/slices.Max(heights)])
	}
	return strings.ReplaceAll(b.String(), " ", "·")
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

type screen struct {
	*app
	ctx           context.Context
	seen          *view
	err           error
	width, height int
}

type looked struct {
	seen *view
	err  error
}

func (s *screen) Init() tea.Cmd { return s.again }

func (s *screen) again() tea.Msg {
	if !wait(s.ctx, topEvery) {
		return nil
	}
	v, err := s.look(s.ctx)
	return looked{v, err}
}

func (s *screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		if k := m.String(); k == "q" || k == "ctrl+c" || k == "esc" {
			return s, tea.Quit
		}
	case looked:
		if s.err = m.err; m.err == nil {
			s.seen = m.seen
		}
		return s, s.again
	}
	return s, nil
}

var heading, trouble = lipgloss.NewStyle().Bold(true), tone("1")

func (s *screen) View() tea.View {
	var b strings.Builder
	for l := range strings.Lines(s.seen.text(max(s.width, 40), max(s.height, 10))) {
		if strings.HasPrefix(l, "POLICY") || strings.HasPrefix(l, "BUCKET") {
			l = heading.Render(strings.TrimSuffix(l, "\n")) + "\n"
		}
		b.WriteString(l)
	}
	if s.err != nil {
		b.WriteString("\n" + trouble.Render(line(s.err.Error(), max(s.width, 40))))
	}
	v := tea.NewView(b.String())
	v.AltScreen = true
	return v
}
