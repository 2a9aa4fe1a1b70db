package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/template"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

func perSecond(all []arrival) float64 {
	if len(all) < 2 {
		return 0
	}
	return float64(len(all)-1) / (all[len(all)-1].at - all[0].at).Seconds()
}

func standstill(all []arrival) (longest time.Duration) {
	for i := 1; i < len(all); i++ {
		longest = max(longest, all[i].at-all[i-1].at)
	}
	return longest
}

func fate(all []arrival, jobs int) (never, again int) {
	came := make([]int, jobs)
	for _, a := range all {
		came[a.number]++
	}
	for _, n := range came {
		switch {
		case n == 0:
			never++
		case n > 1:
			again++
		}
	}
	return never, again
}

func table(results []result) paper.Table {
	t := paper.Table{{""}}
	for _, r := range results {
		t[0] = append(t[0], r.name)
	}
	add := func(what string, cell func(r *result) string) {
		line := []string{what}
		for i := range results {
			line = append(line, cell(&results[i]))
		}
		t.Add(line...)
	}
	once := func(cell func(r *result) string) func(r *result) string {
		return func(r *result) string {
			if !r.first {
				return "as before"
			}
			return cell(r)
		}
	}
	add("version", func(r *result) string { return r.version })
	add("limit", func(r *result) string { return r.setting })
	add("worst second, starts", func(r *result) string {
		most, _ := paper.WorstSecond(times(r.paced))
		return paper.Grouped(most)
	})
	add("rate from first to last start, /s", func(r *result) string {
		return fmt.Sprintf("%.1f (%+.1f %%)", perSecond(r.paced), (perSecond(r.paced)/limit-1)*100)
	})
	add("a worker is killed: worst second, starts", func(r *result) string {
		most, _ := paper.WorstSecond(times(r.killed))
		return paper.Grouped(most)
	})
	add("nothing starts for, s", func(r *result) string {
		return fmt.Sprintf("%.2f", standstill(r.killed).Seconds())
	})
	add("last start after, s", func(r *result) string {
		all := r.killed
		text := fmt.Sprintf("%.1f", (all[len(all)-1].at - all[0].at).Seconds())
		if !r.back {
			text += fmt.Sprintf(", not all within %v", comeBack)
		}
		return text
	})
	add("jobs that never started · that started twice", func(r *result) string {
		never, again := fate(r.killed, r.jobs)
		return fmt.Sprintf("%d · %d", never, again)
	})
	add("added one at a time, /s",
		once(func(r *result) string { return paper.Grouped(int(r.one)) }))
	add("added in bulk, /s", once(func(r *result) string { return paper.Grouped(int(r.bulk)) }))
	add("started without a limit, /s",
		once(func(r *result) string { return paper.Grouped(int(r.free)) }))
	add("memory per waiting job, bytes",
		once(func(r *result) string {
			if r.onDisk {
				return "on disk"
			}
			return paper.Grouped(int(max(0, r.memory)))
		}))
	return t
}

//go:embed page.md
var page string

func write(dir string, results []result, o options) error {
	made, err := template.New("page").Parse(page)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	err = made.Execute(&b, map[string]any{
		"Machine": paper.Machine("github.com/nats-io/nats-server/v2"),
		"River":   slices.ContainsFunc(results, func(r result) bool { return r.onDisk }),
		"Table":   table(results).Markdown(), "Jobs": paper.Grouped(o.jobs),
		"Killed": paper.Grouped(o.jobs / 2), "Many": paper.Grouped(o.many), "Limit": limit,
		"Crew": crew, "Slots": slots, "Takes": takes, "Doomed": doomed, "ComeBack": comeBack,
	})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "compare.md"), b.Bytes(), 0o644)
	}
	if err == nil {
		err = drawAll(filepath.Join(dir, "compare.svg"), results)
	}
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
