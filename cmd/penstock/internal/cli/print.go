package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Keys, bodies and errors are untrusted: control characters are quoted.

// Plain quotes text with unprintable characters other than line breaks.
func Plain(text string) string {
	strange := func(r rune) bool {
		return r == utf8.RuneError || r != '\n' && !unicode.IsPrint(r)
	}
	if strings.ContainsFunc(text, strange) {
		return strconv.Quote(text)
	}
	return text
}

// Line is text in one line, cut after most characters.
func Line(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	if strings.Contains(text, "\n") {
		return strconv.Quote(text)
	}
	return Plain(text)
}

// Printf prints to the output.
func (t *Terminal) Printf(format string, args ...any) error {
	_, err := fmt.Fprintf(t.Out, format, args...)
	return err
}

// Document prints a document with --json, and otherwise text.
func (t *Terminal) Document(document any, format string, args ...any) error {
	if t.JSON {
		return json.NewEncoder(t.Out).Encode(document)
	}
	return t.Printf(format, args...)
}

// Open opens a file, or the input for "-".
func (t *Terminal) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if name == "-" {
		return until(ctx, t.In), nil
	}
	return os.Open(name)
}

// until ends reads with ctx; nothing interrupts a read of a terminal or a pipe itself.
func until(ctx context.Context, in io.Reader) io.ReadCloser {
	out, to := io.Pipe()
	context.AfterFunc(ctx, func() { _ = to.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(to, in)
		_ = to.CloseWithError(err)
	}()
	return out
}

// TooLong is the limit that a line exceeds, in bytes.
type TooLong int

func (most TooLong) Error() string { return fmt.Sprintf("is longer than %d bytes", int(most)) }

// ReadLine reads a line of at most so many bytes; of one that is [TooLong] it returns a part.
func ReadLine(in *bufio.Reader, most int) (text []byte, err error) {
	for more := true; more; {
		var piece []byte
		if piece, more, err = in.ReadLine(); err != nil {
			return nil, err
		}
		if len(text) <= most {
			text = append(text, piece...)
		}
	}
	if len(text) > most {
		err = TooLong(most)
	}
	return text, err
}

// Row is the cells of a table's row.
type Row []any

// Rows are the rows of a list.
func Rows[T any](all []T, of func(T) Row) (rows []Row) {
	for _, one := range all {
		rows = append(rows, of(one))
	}
	return rows
}

func (r Row) text() (cells []string) {
	for _, v := range r {
		text := ""
		switch v := v.(type) {
		case *int:
			if v != nil {
				text = strconv.Itoa(*v)
			}
		case *time.Time:
			if v != nil {
				text = Clock(*v)
			}
		case time.Time:
			text = Clock(v)
		case time.Duration:
			text = Short(v)
		default:
			text = fmt.Sprint(v)
		}
		cells = append(cells, text)
	}
	return cells
}

// Cells are the texts of a table; bars separate columns, "" omits their row.
func Cells(columns string, rows []Row) (all [][]string) {
	if columns != "" {
		all = append(all, strings.Split(columns, "|"))
	}
	for _, r := range rows {
		all = append(all, r.text())
	}
	return all
}

// Table writes rows in aligned columns.
func Table(w io.Writer, columns string, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range Cells(columns, rows) {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(r, "\t"), "\t "))
	}
	return t.Flush()
}

// Clock is a local time, which omits today's date, or a dash for none.
func Clock(t time.Time) string {
	now := time.Now()
	switch t = t.Local(); {
	case t.IsZero():
		return "-"
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// Short formats a duration with its significant parts.
func Short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < day:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// Count is a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// YAML is a JSON document as YAML, with the order of its fields.
func YAML(document []byte) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(document, &node); err != nil {
		return nil, err
	}
	unstyle(&node)
	return yaml.Marshal(&node)
}

func unstyle(n *yaml.Node) {
	n.Style = 0
	for _, inner := range n.Content {
		unstyle(inner)
	}
}
