package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// What people read. Keys, errors of targets and bodies come from strangers, and what a terminal
// would obey is shown and not sent to it.

// plain returns a text as a terminal may have it: as it is, or quoted when it holds what does not
// print. Line breaks stay.
func plain(text string) string {
	strange := func(r rune) bool {
		return r == utf8.RuneError || r != '\n' && !unicode.IsPrint(r)
	}
	if strings.ContainsFunc(text, strange) {
		return strconv.Quote(text)
	}
	return text
}

// line is plain for what must stay on a line, cut off where it is too long for one.
func line(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	if strings.Contains(text, "\n") {
		return strconv.Quote(text)
	}
	return plain(text)
}

// keyName is a key as a table shows it.
func keyName(key string) string {
	if key == "" {
		return `""`
	}
	return line(key, 60)
}

// word quotes an argument for a shell, if it needs that.
func word(text string) string {
	simple := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:/@%+=,", r)
	}
	if text != "" && strings.TrimFunc(text, simple) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(plain(text), "'", `'\''`) + "'"
}

// table prints rows in columns, the first of them with the columns' names.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t "))
	}
	return t.Flush()
}

// clock is an instant as people say it: the time alone when it is today's.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// short is a duration with as much of it as matters.
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

// count is a number of things, with the word for one or for many.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
