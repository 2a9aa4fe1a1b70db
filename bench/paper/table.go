// Package paper has tables, plots and statistics for the benchmarks.
package paper

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// Table has the heading in its first line.
type Table [][]string

func (t *Table) Add(cells ...string) { *t = append(*t, cells) }

// Markdown returns the table without a final line break.
func (t Table) Markdown() string {
	var b strings.Builder
	for i, line := range t {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "%s|\n", strings.Repeat("|---", len(line)))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Print writes the table to a terminal.
func (t Table) Print(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range t {
		fmt.Fprintln(tab, strings.Join(line, "\t"))
	}
	return tab.Flush()
}

func (t Table) WriteCSV(dir, name string) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.WriteAll(t); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the numbers: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644)
}
