// Command penstock-lab works without a server: it plays recorded traffic through policies, searches
// for policies, and judges recorded answers.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/cmd/penstock/penstock-lab/advice"
	"github.com/penstock-mq/penstock/internal/base/buildinfo"
	"github.com/penstock-mq/penstock/workers/whatif"
)

func main() {
	a := lab{&cli.Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}}
	cli.Main(a.Terminal, a.root())
}

type lab struct{ *cli.Terminal }

func (a lab) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "penstock-lab",
		Short: "Play recorded traffic through policies, and find some that meet goals",
		Long: `penstock-lab plays recorded traffic through policies in virtual time, searches for
policies that meet goals, and says what a target's answers mean. It asks no server.`,
	}
	root.AddCommand(a.simulate(), a.advise(), a.checkAnswer())
	cli.Complete(root, a.Terminal)
	root.PersistentFlags().Lookup("json").Usage = "print JSON"
	return root
}

var (
	//go:embed page.html
	pageText     string
	pageTemplate = template.Must(template.New("page").Parse(pageText))

	//go:embed chartjs/chart.umd.min.js
	chartJS string
)

// page draws charts of its plays or its advice.
type page struct {
	Title, About string
	Table        [][]string
	Policy       string // as YAML; may be empty
	Plays        []plotted
	Advice       *advised
	Goals        []advice.Bound
}

type plotted struct {
	Title   string
	Seconds float64 // of a bin
	Bins    []whatif.Bin
}

func (p page) write(file string) error {
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, struct {
		page
		Version string
		ChartJS template.JS
	}{p, buildinfo.Version(), template.JS(chartJS)}) //nolint:gosec // not from users
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		return cli.Misuse(err)
	}
	return nil
}

func (a lab) simulate() *cobra.Command {
	var f traceFlags
	var configs, only []string
	var html string
	cmd := &cobra.Command{
		Use:   "simulate --config FILE --trace FILE",
		Short: "Replay recorded requests through policies, in virtual time",
		Long: `Plays a trace through the policies of a configuration file and reports refusals, waiting
times, bucket depths and the most starts in any window. It runs the production code in virtual time,
without a server.

A request that names a policy is played through it, any other request through every policy.`,
		Example: `  penstock-lab simulate --config penstock.yaml --trace access.log --policy api
  penstock-lab simulate --config now.yaml --config new.yaml --trace day.csv --html r.html`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := f.read(cmd, a)
			if err != nil {
				return err
			}
			if len(configs) == 0 {
				return cli.Misuse(errors.New("want --config FILE"))
			}
			var all []*play
			for _, config := range configs {
				some, err := plays(config, only)
				if err != nil {
					return err
				}
				all = append(all, some...)
			}
			if html != "" {
				f.options.Bins = 240
			}
			if err := playAll(all, t, f.options); err != nil {
				return err
			}
			if html != "" {
				if err := charted(f.told(t), all, f.options).write(html); err != nil {
					return err
				}
			}
			return a.played(f.told(t), all, f.options)
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&configs, "config", nil,
		"the `file` with the policies; repeat to compare several")
	flags.StringSliceVar(&only, "policy", nil, "only these `policies`")
	f.options.Window = time.Second
	flags.Var((*length)(&f.options.Window), "window", "window in which to look for the most starts")
	flags.IntVar(&f.options.Keys, "keys", 0, "list this many `keys`, those with the most requests")
	flags.StringVar(&html, "html", "", "write a report with charts to this `file`")
	return cmd
}

func charted(t traced, all []*play, o whatif.Options) page {
	report := page{Title: "Simulation", About: t.String(), Table: cli.Cells(playTable(all, o))}
	for i, title := range titles(all) {
		report.Plays = append(report.Plays, plotted{title, all[i].Width.Seconds(), all[i].Bins})
	}
	return report
}

func (a lab) played(t traced, all []*play, o whatif.Options) error {
	var text strings.Builder
	fmt.Fprintln(&text, cli.Plain(t.String()))
	columns, rows := playTable(all, o)
	_ = cli.Table(&text, columns, rows)
	for i, p := range all {
		if len(p.Keys) == 0 {
			continue
		}
		fmt.Fprintf(&text, "\n%s: %s\n", cli.Plain(titles(all)[i]),
			cli.Count(p.Buckets, "key", "keys"))
		_ = cli.Table(&text, "KEY|"+figureColumns(o),
			cli.Rows(p.Keys, func(k whatif.KeyFigures) cli.Row {
				return figures(cli.Line(string(k.Key), 60), k.Figures)
			}))
	}
	return a.Document(struct {
		Trace   traced  `json:"trace"`
		Results []*play `json:"results"`
	}{t, all}, "%s", text.String())
}

func playTable(all []*play, o whatif.Options) (columns string, rows []cli.Row) {
	for i, title := range titles(all) {
		rows = append(rows, figures(cli.Plain(title), all[i].Figures))
	}
	return "POLICY|" + figureColumns(o), rows
}

func figureColumns(o whatif.Options) string {
	return "REQUESTS|REFUSED||STALE|WAIT P50|P99|MAX|DEPTH|WORST " +
		algorithms.FormatDuration(o.Window)
}

func figures(name string, f whatif.Figures) cli.Row {
	return cli.Row{name, f.Requests, f.Refused, percent(f.RefusedShare()), f.Stale,
		time.Duration(f.Wait.P50), time.Duration(f.Wait.P99), time.Duration(f.Wait.Max), f.Depth,
		f.Worst}
}

// percent has two significant digits, and at most two decimals.
func percent(share float64) string {
	switch {
	case share == 0:
		return "0%"
	case share < 0.0001:
		return "<0.01%"
	}
	digits := 2
	if share >= 0.1 {
		digits = 1
	}
	return strconv.FormatFloat(100*share, 'f', digits, 64) + "%"
}
