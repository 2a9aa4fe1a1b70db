package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/cmd/penstock/penstock-lab/advice"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/whatif"
)

func (a lab) advise() *cobra.Command {
	var f traceFlags
	var goal, name, html string
	cmd := &cobra.Command{
		Use:   "advise --trace FILE --goal GOALS",
		Short: "Find a policy that meets your goals for recorded requests",
		Long: `Plays a trace under policies of every algorithm with many rates, capacities and bursts. Of
the policies that meet the goals with half to spare, it prints the one that allows the fewest
starts; without any, it prints the one with the most to spare, first of those whose outflow holds at
the target. If no policy meets the goals, the exit status is 3.

An outflow goal applies per key. It limits what a policy's rule allows for any trace. A limit with
count_from: answer keeps to it as the target counts, and starts less the longer answers take: give
their mean time with --duration, or a column duration in the trace.`,
		Example: "  penstock-lab advise --trace access.log --key user " +
			"--goal 'refused <= 0.1%, wait p99 <= 30s, outflow <= 50/s'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			goals, err := advice.ParseGoals(goal)
			if err != nil {
				return cli.Misuse(err)
			}
			t, err := f.read(cmd, a)
			if err != nil {
				return err
			}
			found, err := advice.Search(name, of(name, t), goals, f.options, a.searching())
			if err != nil {
				return cli.Misuse(err)
			}
			d := document(f.told(t), found)
			if html != "" {
				if err := writeAdvice(html, goal, goals, d, found); err != nil {
					return err
				}
			}
			if err := a.told(d, found); err != nil {
				return err
			}
			if !found.Meets() {
				fmt.Fprintln(a.Err, "penstock-lab: no tried policy meets the goals;",
					"this one comes nearest")
				return cli.Said(cli.Refused)
			}
			return nil
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&goal, "goal", "",
		"`goals` such as 'refused <= 0.1%, wait p99 <= 30s, outflow <= 50/s'")
	flags.StringVar(&name, "policy", "advised",
		"the policy's `name`; requests of other policies are skipped")
	flags.StringVar(&html, "html", "", "write a chart of the frontier to this `file`")
	return cmd
}

func (a lab) searching() func(done, of int) {
	file, ok := a.Err.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return func(done, of int) {
		fmt.Fprintf(a.Err, "\r%d of %d policies played", done, of)
		if done == of {
			fmt.Fprint(a.Err, "\r\033[K")
		}
	}
}

// advised is the document of an advice, of which the page draws its charts.
type advised struct {
	Trace  traced  `json:"trace"`
	Per    string  `json:"per"`
	Meets  bool    `json:"meets"`
	Chosen int     `json:"chosen"`
	Price  string  `json:"price,omitempty"`
	Tried  []tried `json:"tried"`
}

type tried struct {
	Policy   policy.Policy `json:"policy"`
	Most     float64       `json:"most"`
	Strain   *float64      `json:"strain"`   // null: infinite
	Frontier bool          `json:"frontier"` // no other is better in one thing, and worse in none
	*whatif.Report
}

func document(t traced, found advice.Advice) *advised {
	d := &advised{t, algorithms.FormatDuration(found.Per), found.Meets(), found.Chosen,
		priced(found), nil}
	for i, p := range found.Tried {
		one := tried{p.Policy, p.Most, &p.Strain, found.OnFrontier(i), p.Report}
		if math.IsInf(p.Strain, 0) {
			one.Strain = nil
		}
		d.Tried = append(d.Tried, one)
	}
	return d
}

func (a lab) told(d *advised, found advice.Advice) error {
	var text strings.Builder
	fmt.Fprintln(&text, cli.Plain(d.Trace.String()))
	fmt.Fprintf(&text, "%s played; each of these trades one goal for another:\n\n",
		cli.Count(len(found.Tried), "policy", "policies"))
	columns, rows := frontier(found)
	_ = cli.Table(&text, columns, rows)
	if d.Price != "" {
		fmt.Fprintf(&text, "\n%s\n", d.Price)
	}
	chosen, err := inFile(found.Tried[found.Chosen].Policy)
	if err != nil {
		return err
	}
	return a.Document(d, "%s\n%s", text.String(), chosen)
}

// priced says what is promised at the target, and what that costs; "" without a goal for it.
func priced(found advice.Advice) string {
	strictest := found.Strictest()
	if strictest < 0 {
		return ""
	}
	latency := found.Latency
	l := advice.Strict(found.Tried[found.Chosen].Policy)
	if l == nil {
		l = advice.Strict(found.Tried[strictest].Policy)
		return fmt.Sprintf("It counts starts, and more than that may arrive together at the "+
			"target. A limit of %d in %s that counts from the answer would keep to the goal "+
			"there, with %s until an answer at %.3g/s, and comes to %s of the goals.", l.Limit,
			l.Window, algorithms.FormatDuration(latency), advice.Sustained(*l, latency),
			strained(found.Tried[strictest].Strain))
	}
	text := fmt.Sprintf("At the target no window of %s has more than %d requests. The price is "+
		"the time until the answer: ", l.Window, l.Limit)
	if latency == 0 {
		return text + "give its mean with --duration, such as 110ms."
	}
	return text + fmt.Sprintf("with %s, %.3g/s start in the long run, and not %.3g/s.",
		algorithms.FormatDuration(latency), advice.Sustained(*l, latency),
		advice.Sustained(*l, 0))
}

func frontier(found advice.Advice) (columns string, rows []cli.Row) {
	for i, p := range found.Tried {
		if !found.OnFrontier(i) && i != found.Chosen {
			continue
		}
		mark := ""
		if i == found.Chosen {
			mark = ">"
		}
		rows = append(rows, cli.Row{mark, p.Policy.Algorithm, numbers(p.Policy),
			strconv.FormatFloat(p.Most, 'f', 1, 64), percent(p.RefusedShare()),
			time.Duration(p.Wait.P50), time.Duration(p.Wait.P99), time.Duration(p.Wait.Max),
			p.Depth, strained(p.Strain)})
	}
	return "|ALGORITHM|NUMBERS|MOST IN " + algorithms.FormatDuration(found.Per) +
		"|REFUSED|WAIT P50|P99|MAX|DEPTH|OF THE GOALS", rows
}

func strained(strain float64) string {
	if strain > 9.99 {
		return "over 10×"
	}
	return fmt.Sprintf("%.0f%%", 100*strain)
}

func numbers(p policy.Policy) string {
	if l := advice.Strict(p); l != nil {
		return fmt.Sprintf("limit %d window %s from the answer capacity %d", l.Limit, l.Window,
			p.Capacity)
	}
	if p.Paced() {
		return fmt.Sprintf("outflow %s burst %d capacity %d", p.Outflow, p.Burst, p.Capacity)
	}
	b := p.AtDoor().Bound()
	if b.Window == 0 {
		return fmt.Sprintf("capacity %d refill %s", b.Units, b.Rate)
	}
	return fmt.Sprintf("limit %d window %s", b.Units, algorithms.FormatDuration(b.Window))
}

func inFile(p policy.Policy) ([]byte, error) {
	text, err := json.Marshal(map[string][]policy.Policy{"policies": {p}})
	if err != nil {
		return nil, err
	}
	return cli.YAML(text)
}

func writeAdvice(file, goal string, goals advice.Goals, d *advised, found advice.Advice) error {
	text, err := inFile(found.Tried[found.Chosen].Policy)
	if err != nil {
		return err
	}
	return page{Title: "Advice", About: d.Trace.String() + ". Goals: " + goal, Policy: string(text),
		Table: cli.Cells(frontier(found)), Advice: d, Goals: goals.Bounds}.write(file)
}
