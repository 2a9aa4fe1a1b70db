package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// Keys, bodies and errors are untrusted: control characters are quoted.

// plain quotes text with unprintable characters other than line breaks.
func plain(text string) string {
	strange := func(r rune) bool {
		return r == utf8.RuneError || r != '\n' && !unicode.IsPrint(r)
	}
	if strings.ContainsFunc(text, strange) {
		return strconv.Quote(text)
	}
	return text
}

func line(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	if strings.Contains(text, "\n") {
		return strconv.Quote(text)
	}
	return plain(text)
}

func keyName(key string) string {
	if key == "" {
		return `""`
	}
	return line(key, 60)
}

// word quotes an argument for a shell.
func word(text string) string {
	simple := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:/@%+=,", r)
	}
	if text != "" && strings.TrimFunc(text, simple) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(plain(text), "'", `'\''`) + "'"
}

// recorder keeps the error of a write, which cobra's help ignores.
type recorder struct {
	io.Writer
	err error
}

func (r *recorder) Write(text []byte) (n int, err error) {
	if n, err = r.Writer.Write(text); err != nil {
		r.err = err
	}
	return n, err
}

func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return err
}

// open opens a file, or standard input for "-".
func (a *app) open(ctx context.Context, name string) (io.ReadCloser, error) {
	if name == "-" {
		return until(ctx, a.in), nil
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

type row []any

func (r row) text() (cells []string) {
	for _, v := range r {
		text := ""
		switch v := v.(type) {
		case *int:
			if v != nil {
				text = strconv.Itoa(*v)
			}
		case *time.Time:
			if v != nil {
				text = clock(*v, time.Now())
			}
		case time.Time:
			text = clock(v, time.Now())
		case time.Duration:
			text = short(v)
		default:
			text = fmt.Sprint(v)
		}
		cells = append(cells, text)
	}
	return cells
}

// Empty values are left out.
func fields(pairs ...any) (rows []row) {
	for pair := range slices.Chunk(pairs, 2) {
		if r := row(pair); r.text()[1] != "" {
			rows = append(rows, r)
		}
	}
	return rows
}

// Bars separate columns; "" omits that row.
func cells(columns string, rows []row) (all [][]string) {
	if columns != "" {
		all = append(all, strings.Split(columns, "|"))
	}
	for _, r := range rows {
		all = append(all, r.text())
	}
	return all
}

func table(w io.Writer, columns string, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range cells(columns, rows) {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(r, "\t"), "\t "))
	}
	return t.Flush()
}

func list[T any](a *app, columns string, all []T, of func(T) row) error {
	var rows []row
	for _, one := range all {
		rows = append(rows, of(one))
	}
	return table(a.out, columns, rows)
}

// clock omits today's date.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// short formats a duration with its significant parts.
func short(d time.Duration) string {
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

func milliseconds(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}

// value is 0 for nil.
func value[N int | int64](n *N) N {
	if n == nil {
		return 0
	}
	return *n
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
