package trace

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/algorithms"
)

// A first line may name the columns.
type csvReader struct {
	Options
	names, others []string
}

var columns = []string{"time", "key", "cost", "policy", "ip", "deadline", "priority", "duration"}

func (c *csvReader) read(text []byte, number int) (l line, err error) {
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
		if _, err := instant(fields[0]); err != nil && c.head(fields) {
			return line{aside: true}, nil
		}
		c.names = slices.Clone(columns)
		for _, column := range []string{c.Key, c.Time} {
			if column != "" && column != "key" && column != "time" {
				return l, fmt.Errorf("no line names a column %s", column)
			}
		}
	}
	if len(fields) > len(c.names) {
		return l, fmt.Errorf("%d columns: want at most %d", len(fields), len(c.names))
	}
	l.Cost = 1
	timed := false
	for i, field := range fields {
		if c.names[i] == "time" {
			timed = true
		} else if field == "" {
			continue
		}
		if err := l.set(c.names[i], field); err != nil {
			return l, err
		}
	}
	if !timed {
		return l, errors.New("no time")
	}
	l.others = func() []string { return c.others }
	return l, nil
}

func (c *csvReader) head(fields []string) bool {
	var names, others []string
	for _, field := range fields {
		name := strings.ToLower(field)
		timely := name == "time" || name == "at" || name == "timestamp"
		switch {
		case c.Key != "" && strings.EqualFold(field, c.Key):
			name = "key"
		case c.Time != "" && strings.EqualFold(field, c.Time):
			name = "time"
		case c.Key != "" && name == "key", c.Time != "" && timely:
			name = ""
		case timely:
			name = "time"
		case !slices.Contains(columns, name):
			others = append(others, field)
		}
		names = append(names, name)
	}
	if !slices.Contains(names, "time") {
		return false
	}
	c.names, c.others = names, others
	return true
}

// Unknown columns are ignored.
func (l *line) set(column, text string) (err error) {
	switch column {
	case "time":
		l.at, err = instant(text)
	case "key":
		l.key, l.keyed = text, text != ""
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

// readJSON reads an object, such as one of Penstock's events.
func readJSON(text []byte, options Options) (l line, err error) {
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return l, errors.New("is no object of JSON")
	}
	l.Cost = 1
	if kind, is := o["type"]; is && o["job"] != nil {
		if string(kind) != `"accepted"` {
			return line{aside: true}, nil
		}
	}
	names := []string{"time", "at", "timestamp"}
	if options.Time != "" {
		names = []string{options.Time}
	}
	at, is := o.first(names)
	if !is {
		return l, fmt.Errorf("no %s", names[0])
	}
	if err := l.set("time", at); err != nil {
		return l, err
	}
	for _, column := range columns[1:] {
		name := column
		if column == "key" {
			name = cmp.Or(options.Key, "key")
		}
		if value, is := o.first([]string{name}); is {
			if err := l.set(column, value); err != nil {
				return l, err
			}
		}
	}
	l.others = func() (others []string) {
		for name := range o {
			if !slices.Contains(columns, name) && !slices.Contains(names, name) {
				others = append(others, name)
			}
		}
		return others
	}
	return l, nil
}

func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}
