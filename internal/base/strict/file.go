// Package strict reads documents in YAML and JSON, and reports all their problems at once, each
// with its place, such as policies[2].outflow, and for files its line.
package strict

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/internal/base/decode"
	"github.com/penstock-mq/penstock/internal/base/nearest"
)

const MaxBytes = 16 << 20

type Problem struct {
	decode.Problem
	position // zero: unknown
}

// File is a document and the problems found in it.
type File struct {
	name      string
	fields    map[string]any
	root      *yaml.Node
	positions map[string]position // by place; nil: no problem has needed them
	sources   map[string]string   // of values from outside the file, by place
	unread    map[string]bool     // unreadable places; false: places around them
	problems  []Problem
}

// JSON decodes a request. Its problems are in the order of the text.
func JSON(data []byte, into any) *File {
	f, _ := Read(nil)
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		f.Add("", "is not JSON: %v", err)
	} else if f.parse(data) == nil && f.fields == nil {
		f.Add("", "want fields, not null")
	} else {
		f.found(decode.Into(into, f.fields, "", decode.JSON))
	}
	f.unread[""] = f.fields == nil
	return f
}

// Read parses one document; nil is an empty one. Messages contain the reader's Name, if it has one.
func Read(file io.Reader) (*File, error) {
	f := &File{root: new(yaml.Node), unread: map[string]bool{}}
	if file == nil {
		return f, nil
	}
	if named, ok := file.(interface{ Name() string }); ok {
		f.name = named.Name()
	}
	text, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read YAML: %w", err)
	}
	if len(text) > MaxBytes {
		return nil, f.broken(1, "is larger than %d MiB", MaxBytes>>20)
	}
	return f, f.parse(text)
}

func (f *File) parse(text []byte) error {
	document, line, err := decode.Parse(text)
	if err != nil {
		return f.broken(line, "is not YAML: %v", err)
	}
	for _, f.root = range document.Content {
		f.index(f.root, "", position{}, 0)
	}
	root, err := document.Value()
	if err != nil { // endless aliases, merges of texts
		return f.broken(0, "is not YAML: %v", err)
	}
	fields, ok := root.(map[string]any)
	if !ok && root != nil {
		return f.broken(1, "want fields, not %s", decode.Kind(root))
	}
	f.fields = fields
	if document.More {
		f.Add("", "contains more than one document")
	}
	return nil
}

type position struct{ line, column int }

// index reports and removes repeated fields, and makes names texts. It runs again, and notes the
// positions, when a problem first needs them. The bounds are far above what documents need; yaml
// compares all pairs of keys.
func (f *File) index(n *yaml.Node, at string, here position, depth int) {
	const mostFields, mostDepth = 10_000, 100
	if f.positions != nil {
		f.positions[at] = here
	}
	if len(n.Content) > 0 && depth >= mostDepth ||
		len(n.Content) > 2*mostFields && n.Kind == yaml.MappingNode {
		f.report(at, "has too many fields, or too many levels", position{n.Line, n.Column})
		n.Content = nil
	}
	if n.Kind != yaml.MappingNode {
		for i, item := range n.Content {
			f.index(item, at+"["+strconv.Itoa(i)+"]", position{item.Line, item.Column}, depth+1)
		}
		return
	}
	kept, first := n.Content[:0], map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := decode.Key(n.Content[i]), n.Content[i+1]
		place, here := strings.TrimPrefix(at+"."+key.Value, "."), position{key.Line, key.Column}
		switch line, twice := first[key.Value]; {
		case twice:
			f.report(place, fmt.Sprintf("is given twice, first in line %d", line), here)
		case key.Kind != yaml.ScalarNode:
			f.report(at, "want text as a field's name", here)
		default:
			first[key.Value] = key.Line
			kept = append(kept, key, value)
			f.index(value, place, here, depth+1)
		}
	}
	n.Content = kept
}

func (f *File) report(place, reason string, at position) {
	f.problems = append(f.problems, Problem{decode.Problem{Place: place, Reason: reason}, at})
}

func (f *File) broken(line int, format string, args ...any) error {
	f.problems = nil
	f.report("", fmt.Sprintf(format, args...), position{line: line})
	return f.Err()
}

// Decode decodes the whole document.
func (f *File) Decode(into any) { f.found(decode.Into(into, f.fields, "", decode.File)) }

// Field decodes one of the document's fields, if it is there.
func (f *File) Field(name string, into any) {
	f.found(decode.Into(into, f.fields[name], "."+name, decode.File))
}

func (f *File) Has(name string) bool { _, has := f.fields[name]; return has }

// Value returns the value at a place, as it was read; nil: there is none. The place "" is the
// document.
func (f *File) Value(place string) (value any) {
	if value = f.fields; place == "" {
		return value
	}
	for name := range strings.SplitSeq(place, ".") {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}

// Require reports a missing field, with the nearest misspelt one.
func (f *File) Require(name string) {
	if misspelt := nearest.To(name, slices.Sorted(maps.Keys(f.fields))); misspelt == "" {
		f.Add(name, "is missing")
	} else if misspelt != name {
		f.Add(misspelt, "unknown field; did you mean %s?", name)
	}
}

// Outside adds the problems of decoding settings. sources names the variables and flags that values
// come from, by place.
func (f *File) Outside(err error, sources map[string]string) {
	f.sources = sources
	f.found(err)
}

func (f *File) found(err error) {
	before := len(f.problems)
	for _, e := range decode.Problems(err) {
		f.report(e.Place, e.Reason, f.position(e.Place))
		f.unread[e.Place] = true
		for at := around(e.Place); at != ""; at = around(at) {
			if !f.unread[at] {
				f.unread[at] = false
			}
		}
	}
	slices.SortStableFunc(f.problems[before:], func(a, b Problem) int {
		return cmp.Or(a.line-b.line, a.column-b.column)
	})
}

// position is that of the innermost value that the document has at a place.
func (f *File) position(place string) position {
	if enclosing(f.sources, place) != "" {
		return position{}
	}
	if f.positions == nil {
		f.positions = map[string]position{}
		f.index(f.root, "", position{}, 0)
	}
	return enclosing(f.positions, place)
}

func around(place string) string { return place[:max(0, strings.LastIndexAny(place, ".["))] }

// enclosing returns what is noted at a place, or else at the nearest one around it.
func enclosing[T comparable](noted map[string]T, place string) (nearest T) {
	for none := nearest; ; place = around(place) {
		if nearest = noted[place]; nearest != none || place == "" {
			return nearest
		}
	}
}

// Sound reports whether the value at a place was read completely.
func (f *File) Sound(place string) bool {
	_, holdsUnread := f.unread[place]
	return !holdsUnread && !enclosing(f.unread, place)
}

// Add reports a problem, unless its place was unreadable.
func (f *File) Add(place, format string, args ...any) {
	if !enclosing(f.unread, place) {
		f.report(place, fmt.Sprintf(format, args...), f.position(place))
	}
}

// Problems returns what was found so far.
func (f *File) Problems() []Problem { return f.problems }

// Err joins the problems in the order of the file, those outside first.
func (f *File) Err() error {
	slices.SortStableFunc(f.problems, func(a, b Problem) int { return a.line - b.line })
	errs := make([]error, len(f.problems))
	for i, p := range f.problems {
		where, source := f.name, enclosing(f.sources, p.Place)
		switch {
		case p.line > 0 && where == "":
			where = fmt.Sprintf("line %d", p.line)
		case p.line > 0:
			where = fmt.Sprintf("%s:%d", where, p.line)
		case source != "":
			where, p.Place = "", p.Place+" ("+source+")"
		}
		if errs[i] = p; where != "" {
			errs[i] = fmt.Errorf("%s: %w", where, p)
		}
	}
	return errors.Join(errs...)
}
