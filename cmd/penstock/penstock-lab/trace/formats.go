package trace

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/algorithms"
)

// columns have a meaning; a first line of CSV may name them in another order.
var columns = []string{"time", "key", "cost", "policy", "ip", "deadline", "priority", "duration"}

// times are the names of the column of the time.
func (o Options) times() []string {
	if o.Time != "" {
		return []string{o.Time}
	}
	return []string{"time", "at", "timestamp"}
}

// read reads a line by the names of its columns.
func (o Options) read(names iter.Seq[string], find lookup) (l line, err error) {
	times := o.times()
	at, is := "", false
	for i := 0; i < len(times) && !is; i++ {
		at, is = find(times[i])
	}
	if !is {
		return l, fmt.Errorf("no %s", times[0])
	}
	if l.at, err = instant(at); err != nil {
		return l, err
	}
	l.Cost = 1
	for _, column := range columns[1:] {
		name := column
		if column == "key" {
			name = cmp.Or(o.Key, "key")
		}
		if text, _ := find(name); text != "" {
			if err := l.set(column, text); err != nil {
				return l, err
			}
		}
	}
	l.others = func() (others []string) {
		known := slices.Concat(columns, times, []string{o.Key})
		for name := range names {
			like := func(known string) bool { return strings.EqualFold(known, name) }
			if !slices.ContainsFunc(known, like) {
				others = append(others, name)
			}
		}
		return others
	}
	return l, nil
}

type csvReader struct {
	Options
	names []string
}

func (c *csvReader) line(text []byte, number int) (l line, err error) {
	fields := strings.Split(string(text), ",")
	if bytes.IndexByte(text, '"') >= 0 {
		if fields, err = csv.NewReader(bytes.NewReader(text)).Read(); err != nil {
			if p, ok := errors.AsType[*csv.ParseError](err); ok {
				err = p.Err
			}
			return l, err
		}
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	if number == 1 {
		c.names = fields
		_, err := instant(fields[0])
		named := func(time string) bool { return c.at(time) >= 0 }
		if err != nil && slices.ContainsFunc(c.times(), named) {
			return line{aside: true}, nil
		}
		c.names = columns
		for _, column := range []string{c.Key, c.Time} {
			if column != "" && column != "key" && column != "time" {
				return l, fmt.Errorf("no line names a column %s", column)
			}
		}
	}
	if len(fields) > len(c.names) {
		return l, fmt.Errorf("%d columns: want at most %d", len(fields), len(c.names))
	}
	return c.read(slices.Values(c.names), func(name string) (string, bool) {
		i := c.at(name)
		if i < 0 || i >= len(fields) {
			return "", false
		}
		return fields[i], true
	})
}

// at returns the place of a column, or -1.
func (c *csvReader) at(name string) int {
	return slices.IndexFunc(c.names, func(n string) bool { return strings.EqualFold(n, name) })
}

func (l *line) set(column, text string) (err error) {
	switch column {
	case "key":
		l.key, l.keyed = text, true
	case "cost":
		if l.Cost, err = strconv.ParseInt(text, 10, 64); err != nil {
			err = fmt.Errorf("cost %q: want a whole number", text)
		}
	case "policy":
		l.Policy = text
	case "ip":
		l.IP = text
	case "deadline":
		if l.Deadline, err = algorithms.ParseDuration(text); err != nil {
			err = fmt.Errorf("deadline %q: want a duration such as 30s", text)
		}
	case "duration":
		if l.Duration, err = algorithms.ParseDuration(text); err != nil {
			err = fmt.Errorf("duration %q: want one such as 110ms", text)
		}
	case "priority":
		if l.Priority, err = strconv.Atoi(text); err != nil {
			err = fmt.Errorf("priority %q: want a whole number", text)
		}
	}
	return err
}

// json reads an object, such as one of Penstock's events.
func (o Options) json(text []byte, _ int) (l line, err error) {
	var of object
	if err := json.Unmarshal(text, &of); err != nil {
		return l, errors.New("is no object of JSON")
	}
	if kind, is := of["type"]; is && of["job"] != nil && string(kind) != `"accepted"` {
		return line{aside: true}, nil
	}
	return o.read(maps.Keys(of), func(name string) (string, bool) {
		return of.first([]string{name})
	})
}

func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}
