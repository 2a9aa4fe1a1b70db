package strict

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/internal/nearest"
)

const MaxBytes = 16 << 20

type File struct {
	name     string
	root     *yaml.Node
	sources  map[string]string // of values from outside the file, by place
	unread   map[string]bool   // unreadable places; false: places around them
	problems []Problem
}

// Read parses one YAML document; nil is an empty one. Messages contain the reader's Name, if it has
// one.
func Read(file io.Reader) (*File, error) {
	f := &File{root: &yaml.Node{Kind: yaml.MappingNode}, sources: map[string]string{},
		unread: map[string]bool{}}
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
	unread := bytes.NewReader(text)
	in := yaml.NewDecoder(unread)
	var document yaml.Node
	if err := in.Decode(&document); errors.Is(err, io.EOF) {
		return f, nil // empty, or only comments
	} else if err != nil {
		return nil, f.broken(brokenLine(text, len(text)-unread.Len()), "is not YAML: %s",
			yamlLine.ReplaceAllString(err.Error(), ""))
	}
	f.problems = unique(&document, "")
	if err := document.Decode(new(any)); err != nil { // endless aliases, merges of texts
		return nil, f.broken(0, "is not YAML: %v", err)
	}
	if root := aliased(document.Content[0]); root.ShortTag() != "!!null" {
		f.root = root
	}
	if f.root.Kind != yaml.MappingNode {
		return nil, f.broken(1, "want fields, not %s", kind(f.root))
	}
	if err := in.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		f.problems = append(f.problems,
			Problem{Reason: "contains more than one document"})
	}
	return f, nil
}

func (f *File) broken(line int, format string, args ...any) error {
	f.problems = []Problem{{Reason: fmt.Sprintf(format, args...), Line: line}}
	return f.Err()
}

// yaml's lines are imprecise: the line before, or the start of the outermost list or mapping.
var yamlLine = regexp.MustCompile(`^yaml: (line \d+: )?`)

// brokenLine returns the first line after the longest valid beginning, within a limit sufficient
// for files written by hand.
func brokenLine(text []byte, gaveUp int) int {
	const mostSteps = 500
	lines := bytes.SplitAfter(text[:gaveUp], []byte("\n"))
	for end, steps := gaveUp, 0; len(lines) > 0 && steps < mostSteps; steps++ {
		end -= len(lines[len(lines)-1])
		err := yaml.NewDecoder(bytes.NewReader(text[:end])).Decode(new(yaml.Node))
		if err == nil || errors.Is(err, io.EOF) {
			break
		}
		lines = lines[:len(lines)-1]
	}
	return max(1, len(lines))
}

// Set replaces the value at a place, such as nats.tls.ca, by the text of a flag or variable, also a
// number, a boolean or a list separated by commas.
func (f *File) Set(place, text, source string) {
	f.root = set(f.root, strings.Split(place, "."), text)
	f.sources[place] = source
}

func set(n *yaml.Node, path []string, text string) *yaml.Node {
	if len(path) == 0 {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: fromText, Value: text}
	}
	if n.ShortTag() == "!!null" {
		n = &yaml.Node{Kind: yaml.MappingNode}
	}
	if n.Kind != yaml.MappingNode {
		return n // reported later
	}
	changed := *n // a copy, as aliases may share it
	changed.Content = nil
	all := members(n)
	if find(all, path[0]) == nil {
		key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: path[0]}
		all = append(all, pair{key, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}})
	}
	for _, m := range all {
		if m.key.Value == path[0] {
			m.value = set(m.value, path[1:], text)
		}
		changed.Content = append(changed.Content, m.key, m.value)
	}
	return &changed
}

func (f *File) Decode(into any) { f.decode("", f.root, into) }

func (f *File) Field(name string, into any) {
	if n := find(members(f.root), name); n != nil && n.ShortTag() != "!!null" {
		f.decode(name, n, into)
	}
}

func (f *File) Has(name string) bool { return find(members(f.root), name) != nil }

// Require reports a missing field, with the nearest misspelt one.
func (f *File) Require(name string) {
	if f.Has(name) {
		return
	}
	for _, m := range members(f.root) {
		if hint := nearest.Hint(m.key.Value, []string{name}); hint != "" {
			f.Add(m.key.Value, "unknown field%s", hint)
			return
		}
	}
	f.Add(name, "is missing")
}

func (f *File) decode(at string, n *yaml.Node, into any) {
	d := decoder{}
	d.decode(at, n, reflect.ValueOf(into).Elem(), "")
	f.problems = append(f.problems, d.problems...)
	for _, p := range d.problems {
		f.unread[p.Place] = true
		for at := around(p.Place); at != ""; at = around(at) {
			if !f.unread[at] {
				f.unread[at] = false
			}
		}
	}
}

func around(place string) string { return place[:max(0, strings.LastIndexAny(place, ".["))] }

func (f *File) isUnread(place string) bool {
	for place != "" && !f.unread[place] {
		place = around(place)
	}
	return place != ""
}

// Sound reports whether the value at a place was read completely.
func (f *File) Sound(place string) bool {
	_, holdsUnread := f.unread[place]
	return !holdsUnread && !f.isUnread(place)
}

// Add reports a problem, unless its place was unreadable.
func (f *File) Add(place, format string, args ...any) {
	if f.isUnread(place) {
		return
	}
	line := 0
	if f.sources[place] == "" {
		line = lineOf(f.root, place)
	}
	f.problems = append(f.problems, Problem{place, fmt.Sprintf(format, args...), line})
}

// lineOf returns the nearest enclosing line, or 0.
func lineOf(n *yaml.Node, place string) int {
	if n = aliased(n); n.Kind == yaml.SequenceNode {
		index, rest, _ := strings.Cut(strings.TrimPrefix(place, "["), "]")
		if i, err := strconv.Atoi(index); err == nil && i < len(n.Content) {
			return cmp.Or(lineOf(n.Content[i], strings.TrimPrefix(rest, ".")), n.Content[i].Line)
		}
		return 0
	}
	for _, m := range members(n) {
		if name := m.key.Value; name != "" && Within(place, name) {
			rest := strings.TrimPrefix(place[len(name):], ".")
			return cmp.Or(lineOf(m.value, rest), m.key.Line)
		}
	}
	return 0
}

// Err joins the problems in the order of the file, those outside first.
func (f *File) Err() error {
	slices.SortStableFunc(f.problems, func(a, b Problem) int { return a.Line - b.Line })
	var errs []error
	for _, p := range f.problems {
		source := f.sources[p.Place]
		switch {
		case p.Line == 0 && source != "":
			p.Place += " (" + source + ")"
			fallthrough
		case p.Line == 0 && f.name == "":
			errs = append(errs, p)
		case p.Line == 0:
			errs = append(errs, fmt.Errorf("%s: %w", f.name, p))
		case f.name == "":
			errs = append(errs, fmt.Errorf("line %d: %w", p.Line, p))
		default:
			errs = append(errs, fmt.Errorf("%s:%d: %w", f.name, p.Line, p))
		}
	}
	return errors.Join(errs...)
}
