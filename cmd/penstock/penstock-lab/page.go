package main

import (
	"bytes"
	_ "embed"
	"html/template"

	"github.com/penstock-mq/penstock/cmd/penstock/penstock-lab/advice"
	"github.com/penstock-mq/penstock/internal/base/buildinfo"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/whatif"
)

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
	Advice       *plottedAdvice
}

type plotted struct {
	Title   string
	Seconds float64 // of a bin
	Bins    []whatif.Bin
}

type plottedAdvice struct {
	Per    string
	Tried  []plottedPolicy
	Chosen int
	Goals  []advice.Bound
}

type plottedPolicy struct {
	Algorithm           policy.Algorithm
	Most, Refused, Wait float64
	OnFrontier          bool
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
	return writeFile(file, out.Bytes())
}
