package deploy_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard checks that every panel asks for metrics that there are, says what it means, and that
// the rows ask what the console's overview asks, in its order.
func dashboard(t *testing.T, text []byte) {
	var d struct {
		UID    string
		Panels []struct {
			Title, Type, Description string
			Targets                  []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	exposed := exposition(t)
	var questions []string
	for _, panel := range d.Panels {
		if panel.Type == "row" {
			questions = append(questions, panel.Title)
			continue
		}
		if panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("%s: says nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			names := metricName.FindAllString(target.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s: no metric in %s", panel.Title, target.Expr)
			}
			for _, name := range names {
				if !exposes(exposed, name) {
					t.Errorf("%s: no metric %s", panel.Title, name)
				}
			}
		}
	}
	console, err := os.ReadFile("../admission/console/static/findings.js")
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, q := range regexp.MustCompile(`question: "(.+?)"`).FindAllSubmatch(console, -1) {
		asked = append(asked, string(q[1]))
	}
	if len(asked) == 0 || !slices.Equal(questions, asked) {
		t.Errorf("the dashboard asks %q, and the console %q", questions, asked)
	}
}

// Every metric has its line in docs/metrics.md, with its type and its labels, and nothing else has.
func TestEveryMetricIsDescribed(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]string{} // type and labels
	table := regexp.MustCompile("(?m)^\\| `(penstock_[a-z_]+)` \\| ([a-z]+) \\| (.*?) \\|")
	for _, line := range table.FindAllStringSubmatch(string(text), -1) {
		described[line[1]] = line[2] + " " + line[3]
	}
	exposed := exposition(t)
	labels := regexp.MustCompile(`([a-z]+)="`)
	types := regexp.MustCompile(`(?m)^# TYPE (penstock_[a-z_]+) ([a-z]+)$`)
	for _, line := range types.FindAllStringSubmatch(exposed, -1) {
		name, kind := line[1], line[2]
		got, ok := described[name]
		if !ok {
			t.Errorf("docs/metrics.md says nothing of %s", name)
			continue
		}
		delete(described, name)
		if !strings.HasPrefix(got, kind+" ") {
			t.Errorf("%s is a %s, and described as %s", name, kind, got)
		}
		ofIt := regexp.MustCompile(`(?m)^` + name + `(?:_count)?\{(.*)\}`)
		series := ofIt.FindStringSubmatch(exposed)
		if series == nil {
			continue
		}
		for _, label := range labels.FindAllStringSubmatch(series[1], -1) {
			if !strings.Contains(got, "`"+label[1]+"`") {
				t.Errorf("%s has a label %s, and is described as %s", name, label[1], got)
			}
		}
	}
	for name := range described {
		t.Errorf("docs/metrics.md describes %s, which there is not", name)
	}
}
