package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// The live view of an installation.

const (
	topEvery = time.Second
	// topBuckets is how many are asked for.
	topBuckets = 100
)

func (a *app) top() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show policies and their deepest buckets, live",
		Long: `Shows what goes in, out and wrong in each policy, with the starts of the last minute, and
the deepest buckets with what holds them. q ends it. --once prints one view, as does an output that
is no terminal.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			first, err := a.look(cmd.Context())
			if err != nil {
				return err
			}
			file, isFile := a.out.(*os.File)
			if once || a.json || !isFile || !term.IsTerminal(int(file.Fd())) {
				return a.once(cmd.Context())
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
	cmd.Flags().BoolVar(&once, "once", false, "print one view and end")
	return cmd
}

// once prints one view, of figures that the first look has begun.
func (a *app) once(ctx context.Context) error {
	if !wait(ctx, topEvery) {
		return ctx.Err()
	}
	v, err := a.look(ctx)
	if err != nil {
		return err
	}
	return a.show(v.answer, func() error {
		_, err := fmt.Fprint(a.out, v.text(1000, 1000))
		return err
	})
}

// view is what there is to see at one moment.
type view struct {
	server  string
	at      time.Time
	stats   statsAnswer
	answer  []byte // the stats as they came
	names   []string
	limits  map[string]policyAnswer
	buckets allBucketsAnswer
}

type statsAnswer struct {
	WindowMS int64        `json:"window_ms"`
	Policies []statAnswer `json:"policies"`
}

type statAnswer struct {
	Policy        string     `json:"policy"`
	Accepted      int64      `json:"accepted"`
	Started       int64      `json:"started"`
	Done          int64      `json:"done"`
	Failed        int64      `json:"failed"`
	Throttled     int64      `json:"throttled"`
	Dead          int64      `json:"dead"`
	Refused       int64      `json:"refused"`
	ChecksAllowed int64      `json:"checks_allowed"`
	ChecksRefused int64      `json:"checks_refused"`
	Rate          float64    `json:"rate"`
	Wait          *quantiles `json:"wait_ms"`
	Starts        []int64    `json:"starts"`
	Keys          []struct {
		Key              string
		Allowed, Refused int64
	} `json:"keys"`
}

type quantiles struct{ P50, P99 int64 }

// look asks for everything that a view shows.
func (a *app) look(ctx context.Context) (v *view, err error) {
	v = &view{server: a.server, at: time.Now(), limits: map[string]policyAnswer{}}
	if v.answer, err = a.get(ctx, path("stats")+"?keys=3", &v.stats); err != nil {
		return nil, err
	}
	all, _, err := a.allPolicies(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		v.names = append(v.names, p.Policy.Name)
		v.limits[p.Policy.Name] = p
	}
	slices.SortStableFunc(v.names, func(a, b string) int {
		return cmp.Compare(v.stat(b).busy(), v.stat(a).busy())
	})
	_, err = a.get(ctx, fmt.Sprintf("%s?limit=%d", path("buckets"), topBuckets), &v.buckets)
	return v, err
}

// stat returns the figures of a policy, which are zero where nothing happened.
func (v *view) stat(policy string) statAnswer {
	i := slices.IndexFunc(v.stats.Policies, func(s statAnswer) bool { return s.Policy == policy })
	if i < 0 {
		return statAnswer{Policy: policy}
	}
	return v.stats.Policies[i]
}

// busy is how much happened.
func (s statAnswer) busy() int64 {
	return s.Accepted + s.Started + s.Refused + s.ChecksAllowed + s.ChecksRefused
}

// text is the view within so many columns and lines.
func (v *view) text(width, height int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "penstock %s  %s  the last %s\n\n", v.server, v.at.Format(time.TimeOnly),
		short(milliseconds(v.stats.WindowMS)))
	rows := [][]string{{"POLICY", "STARTS", "LIMIT", "", "ACCEPTED", "REFUSED", "FAILED", "DEAD",
		"WAIT P50 P99", ""}}
	room := max(height-11, 2)
	for _, name := range v.names[:min(len(v.names), room/2)] {
		rows = append(rows, v.policyRow(name))
	}
	_ = table(&b, rows) // into memory
	if more := len(v.names) + 1 - len(rows); more > 0 {
		fmt.Fprintf(&b, "and %s\n", count(more, "more policy", "more policies"))
	}
	if hot := v.hottest(); hot != "" {
		fmt.Fprintf(&b, "hottest keys: %s\n", hot)
	}
	if nobody := slices.Sorted(maps.Keys(v.buckets.Unanswered)); len(nobody) > 0 {
		fmt.Fprintf(&b, "no drainer answers for all of %s\n", strings.Join(nobody, ", "))
	}
	if all := v.buckets.Buckets; len(all) > 0 {
		fmt.Fprintf(&b, "\n%s\n", count(v.buckets.Total, "bucket holds jobs",
			"buckets hold jobs"))
		rows = [][]string{{"BUCKET", "DEPTH", "RUNNING", "RATE", "LIMIT", "OLDEST", "NEXT IN",
			"HELD BY"}}
		for _, p := range all[:min(len(all), room-room/2)] {
			r := bucketRow(p.bucketAnswer, v.at)
			limit := v.limits[p.Policy]
			rows = append(rows, []string{bucketName(p.Policy, p.Key, true), r[1], r[4], r[5],
				cmp.Or(limit.Policy.Outflow, limit.Policy.OutflowTotal), r[6], r[7], r[8]})
		}
		_ = table(&b, rows) // as above
	}
	return cut(b.String(), width)
}

// hottest names the keys that ask most for checks.
func (v *view) hottest() string {
	var hot []string
	for _, s := range v.stats.Policies {
		for _, k := range s.Keys {
			hot = append(hot, fmt.Sprintf("%s %d allowed %d refused",
				bucketName(s.Policy, k.Key, true), k.Allowed, k.Refused))
		}
	}
	return strings.Join(hot, ", ")
}

func (v *view) policyRow(name string) []string {
	s, p := v.stat(name), v.limits[name]
	wait := ""
	if s.Wait != nil {
		wait = short(milliseconds(s.Wait.P50)) + " " + short(milliseconds(s.Wait.P99))
	}
	state := p.state()
	if state == "active" {
		state = ""
	}
	in, out := s.Accepted+s.ChecksAllowed, s.Refused+s.ChecksRefused
	return []string{name, fmt.Sprintf("%.4g/s", s.Rate), p.rate(), sparks(s.Starts, 30),
		strconv.FormatInt(in, 10), strconv.FormatInt(out, 10), strconv.FormatInt(s.Failed, 10),
		strconv.FormatInt(s.Dead, 10), wait, state}
}

// sparks draws numbers in so many columns, the tallest as high as a line.
func sparks(numbers []int64, columns int) string {
	if len(numbers) > 1 {
		numbers = numbers[:len(numbers)-1] // the last second is not over
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

// cut cuts lines that are too wide.
func cut(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if runes := []rune(l); len(runes) > width {
			lines[i] = string(runes[:width])
		}
	}
	return strings.Join(lines, "\n")
}

// screen is the live view as bubbletea wants it.
type screen struct {
	*app
	ctx           context.Context
	seen          *view
	err           error
	width, height int
}

// looked is what a look came to.
type looked struct {
	seen *view
	err  error
}

// Init implements [tea.Model].
func (s *screen) Init() tea.Cmd { return s.again }

// again looks after a while.
func (s *screen) again() tea.Msg {
	if !wait(s.ctx, topEvery) {
		return nil
	}
	v, err := s.look(s.ctx)
	return looked{v, err}
}

// Update implements [tea.Model].
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

// heading shows the names of columns, and trouble what is wrong.
var heading, trouble = lipgloss.NewStyle().Bold(true), tone("1")

// View implements [tea.Model].
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
