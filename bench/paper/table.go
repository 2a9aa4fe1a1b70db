// Package paper is what the programs that measure have in common: tables on pages and terminals,
// plots, and the little statistics that both show.
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

// Table is lines of cells; the first line is the heading.
type Table [][]string

// Add appends a line.
func (t *Table) Add(cells ...string) { *t = append(*t, cells) }

// Markdown returns the table for a page, without a line break at the end.
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

// Print writes the table for a terminal.
func (t Table) Print(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range t {
		fmt.Fprintln(tab, strings.Join(line, "\t"))
	}
	return tab.Flush()
}

// WriteCSV writes the table to a file of a directory, which it makes, for programs.
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
