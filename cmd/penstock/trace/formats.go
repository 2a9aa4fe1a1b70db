package trace

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// A first line may name the columns.
type csvReader struct {
	key   string
	names []string
}

var columns = []string{"time", "key", "cost", "policy", "ip", "deadline", "priority"}

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
		if c.key != "" && c.key != "key" {
			return l, fmt.Errorf("no line names a column %s", c.key)
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
	return l, nil
}

func (c *csvReader) head(fields []string) bool {
	var names []string
	for _, field := range fields {
		name := strings.ToLower(field)
		switch {
		case c.key != "" && strings.EqualFold(field, c.key):
			name = "key"
		case c.key != "" && name == "key":
			name = ""
		case name == "at" || name == "timestamp":
			name = "time"
		}
		names = append(names, name)
	}
	if !slices.Contains(names, "time") {
		return false
	}
	c.names = names
	return true
}

// Unknown columns are ignored.
func (l *line) set(column, text string) (err error) {
	switch column {
	case "time":
		l.at, err = instant(text)
	case "key":
		l.key = text
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
	case "priority":
		if l.Priority, err = strconv.Atoi(text); err != nil {
			err = fmt.Errorf("priority %q: want a whole number", text)
		}
	}
	return err
}

// readJSON reads an object, such as one of Penstock's events.
func readJSON(text []byte, keyName string) (l line, err error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(text, &o); err != nil {
		return l, errors.New("is no object of JSON")
	}
	l.Cost = 1
	if kind, is := o["type"]; is && o["job"] != nil {
		if string(kind) != `"accepted"` {
			return line{aside: true}, nil
		}
	}
	at, key := first(o, "time", "at", "timestamp"), cmp.Or(keyName, "key")
	if at == nil {
		return l, errors.New("no time")
	}
	if err := l.set("time", plain(at)); err != nil {
		return l, err
	}
	for _, column := range columns[1:] {
		name := column
		if column == "key" {
			name = key
		}
		if value := o[name]; value != nil && string(value) != "null" {
			if err := l.set(column, plain(value)); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

func first(o map[string]json.RawMessage, names ...string) json.RawMessage {
	for _, name := range names {
		if value, there := o[name]; there {
			return value
		}
	}
	return nil
}

func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}

// host, ident, user, time, request
var logLine = regexp.MustCompile(
	`^(\S+) \S+ (.+?) \[(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "((?:[^"\\]|\\.)*)"`)

// readLog reads the common log format and its extensions.
func readLog(text []byte, key string) (l line, err error) {
	match := logLine.FindSubmatch(text)
	if match == nil {
		return l, errors.New("is no line of an access log")
	}
	if l.at, err = time.Parse("02/Jan/2006:15:04:05 -0700", string(match[3])); err != nil {
		return l, fmt.Errorf("time %q is none", match[3])
	}
	l.IP, l.Cost = string(match[1]), 1
	switch key {
	case "", "key", "ip":
		l.key = l.IP
	case "user":
		l.key = string(match[2])
	case "path":
		words := strings.Fields(string(match[4]))
		if len(words) < 2 {
			return l, fmt.Errorf("request %q has no path", match[4])
		}
		l.key, _, _ = strings.Cut(words[1], "?")
	default:
		return l, fmt.Errorf("a log has no %s: want ip, path or user", key)
	}
	return l, nil
}
