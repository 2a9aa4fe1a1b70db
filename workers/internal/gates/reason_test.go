package gates

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// part returns what is between two texts of a page.
func part(t *testing.T, name, from, to string) string {
	t.Helper()
	_, text, found := strings.Cut(page(t, name), from)
	text, _, ends := strings.Cut(text, to)
	if !found || !ends {
		t.Fatalf("%s has no part from %q to %q", name, from, to)
	}
	return text
}

// A reason that is forgotten somewhere is an unexplained wait there.
func TestEveryReasonIsExplainedEverywhere(t *testing.T) {
	late := part(t, "docs/operate.md", "| cause | what it is | do |", "\n\n")
	console := part(t, "internal/admission/console/static/words.js", "const LATE = {", "};")
	for r := None + 1; r < reasons; r++ {
		name := r.String()
		if name == "" {
			t.Errorf("reason %d has no name", r)
		}
		if name != job.LateByProcessor && name != job.LateByLimit && job.Causes[name].Why == "" {
			t.Errorf("%s has no sentence in job.Causes", name)
		}
		if r == ByRate { // the bucket's own: nothing is late
			continue
		}
		word := regexp.MustCompile(`\b` + name + `\b`)
		if !strings.Contains(late, "`"+name+"`") {
			t.Errorf("%s is no cause of lost time in docs/operate.md", name)
		}
		if !job.Causes[name].Meant && !word.MatchString(console) {
			t.Errorf("%s is missing in LATE of the console's words.js", name)
		}
	}
}

func TestEveryCauseIsExplainedInTheAPI(t *testing.T) {
	hold := part(t, "api/jobs.go", "type Hold struct", "}")
	var meant []string
	for name, c := range job.Causes {
		if c.Why == "" || !strings.Contains(hold, "`"+name+"`") {
			t.Errorf("%s has no sentence, or none in the comment of api.Hold", name)
		}
		if c.Meant {
			meant = append(meant, fmt.Sprintf("%q", name))
		}
	}
	slices.Sort(meant)
	words := part(t, "internal/admission/console/static/words.js", "MEANT = [", "]")
	if want := strings.Join(meant, ", "); words != want {
		t.Errorf("MEANT of the console's words.js is [%s], want [%s]", words, want)
	}
}
