package claimant

import (
	"os"
	"strings"
	"testing"
)

var (
	stateNames = [states]string{"unknown", "waiting", "offered", "claiming", "granted", "running",
		"ended"}
	eventNames = [events]string{"claim, not near", "claim, near", "offer", "silence", "start",
		"pass", "return", "progress", "answered", "settle", "leave"}
)

func (s State) String() string { return stateNames[s] }
func (e Event) String() string { return eventNames[e] }

// drawing has a line for each event and each state that it leads to.
func drawing() string {
	const first, width = 18, 10
	column := func(s State) int { return first + width*int(s) }
	text := strings.Repeat(" ", first-1)
	for s := range states {
		text += stateNames[s] + strings.Repeat(" ", width-len(stateNames[s]))
	}
	lines := []string{text}
	for e := range events {
		for to := Waiting; to < states; to++ {
			low, high := to, to
			for s := range states {
				if s != to && table[s][e] == to {
					low, high = min(low, s), max(high, s)
				}
			}
			if low == high {
				continue
			}
			line := []rune(e.String() + strings.Repeat(" ", column(states)-len(e.String())))
			for i := column(low) + 1; i < column(high); i++ {
				line[i] = '─'
			}
			line[column(to)] = ' '
			if low < to {
				line[column(to)-1] = '▶'
			}
			if high > to {
				line[column(to)+1] = '◀'
			}
			for s := range states {
				switch is := table[s][e]; {
				case is == s && s != Unknown:
					line[column(s)] = '○'
				case is == to:
					line[column(s)] = '●'
				}
			}
			lines = append(lines, string(line))
		}
	}
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestThePageHasTheDrawingOfTheTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/workers-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n```\n"+drawing()+"```\n") {
		t.Errorf("docs/workers-protocol.md does not have\n%s", drawing())
	}
}
