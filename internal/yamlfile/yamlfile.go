// Package yamlfile reads YAML for people: strictly, with every mistake at once, and each with its
// line.
package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/policy"
)

// File is what a file says.
type File struct {
	// Tree is its content, in the types of encoding/json but for numbers.
	Tree map[string]any
	// Problems are what could be read around, such as keys that are given twice.
	Problems []Problem

	lines map[string]int // place to line
}

// Read reads one YAML document, empty for a nil reader. It does not leave the reading to viper,
// which takes the case off keys, splits them at dots and reads no further than the first document.
// The error is a [Problem] for a file that is no YAML at all.
func Read(file io.Reader) (File, error) {
	d := File{Tree: map[string]any{}, lines: map[string]int{}}
	if file == nil {
		return d, nil
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return d, fmt.Errorf("read YAML: %w", err)
	}
	unread := bytes.NewReader(text)
	in := yaml.NewDecoder(unread)
	var root yaml.Node
	if err := in.Decode(&root); errors.Is(err, io.EOF) {
		return d, nil // empty, or nothing but comments
	} else if err != nil {
		return d, notYAML(err, brokenLine(text, len(text)-unread.Len()))
	}
	d.Problems = repeatedKeys(&root, "")
	var read any
	if err := root.Decode(&read); err != nil {
		return d, notYAML(err, 0)
	}
	numberLines(&root, "", d.lines)
	switch read := forJSON(read).(type) {
	case nil:
	case map[string]any:
		d.Tree = read
	default:
		return d, Problem{Reason: Unfit(read, "fields such as nats and policies").Error(), Line: 1}
	}
	if err := in.Decode(new(any)); !errors.Is(err, io.EOF) {
		d.Problems = append(d.Problems, Problem{Reason: "a second document follows: want one only"})
	}
	return d, nil
}

// yamlLine is where yaml believes an error to be: at the line before, or where the outermost list
// or mapping begins.
var yamlLine = regexp.MustCompile(`^yaml: (line \d+: )?`)

func notYAML(err error, line int) error {
	text := err.Error()
	if line > 0 {
		text = yamlLine.ReplaceAllString(text, "")
	}
	return Problem{Reason: "is not YAML: " + text, Line: line}
}

// brokenLine is the line that makes a text no YAML, the first after the longest beginning that is.
// It looks for it backwards from where the decoder gave up, and no further than a file for people
// needs.
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

// numberLines notes the line of every place. What an alias stands for is in its own line.
func numberLines(n *yaml.Node, at string, lines map[string]int) {
	switch n.Kind {
	case yaml.DocumentNode:
		for _, child := range n.Content {
			numberLines(child, at, lines)
		}
	case yaml.SequenceNode:
		for i, child := range n.Content {
			place := fmt.Sprintf("%s[%d]", at, i)
			lines[place] = child.Line
			numberLines(child, place, lines)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			place := strings.TrimPrefix(at+"."+n.Content[i].Value, ".")
			lines[place] = n.Content[i].Line
			numberLines(n.Content[i+1], place, lines)
		}
	}
}

// Line is that of a place, or of the nearest one around it that is in the file; 0 for one that is
// not in it at all.
func (d File) Line(place string) int {
	for place != "" {
		if line, ok := d.lines[place]; ok {
			return line
		}
		place = place[:max(0, strings.LastIndexAny(place, ".["))]
	}
	return 0
}

// repeatedKeys reports keys that stand twice in a mapping, and removes all but the first. yaml
// would leave out the whole mapping, and the policies after it would be counted wrong.
func repeatedKeys(n *yaml.Node, at string) []Problem {
	var problems []Problem
	switch n.Kind {
	case yaml.DocumentNode:
		for _, child := range n.Content {
			problems = append(problems, repeatedKeys(child, at)...)
		}
	case yaml.SequenceNode:
		for i, child := range n.Content {
			problems = append(problems, repeatedKeys(child, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case yaml.MappingNode:
		lines := map[string]int{}
		var kept []*yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			place := strings.TrimPrefix(at+"."+key.Value, ".")
			if line, ok := lines[key.Value]; ok && key.Kind == yaml.ScalarNode {
				reason := fmt.Sprintf("is given twice, first in line %d", line)
				problems = append(problems, Problem{Place: place, Reason: reason, Line: key.Line})
				continue
			}
			lines[key.Value] = key.Line
			kept = append(kept, key, value)
			problems = append(problems, repeatedKeys(value, place)...)
		}
		n.Content = kept
	}
	return problems
}

// Policies reads a list of policies, each as it is written: a default is not what the file says,
// and may be another in the next version, which must not take the file for changed. check says what
// is wrong with one, its defaults filled in, beyond what [policy.Read] finds.
func Policies(value any, check func(policy.Policy) []policy.Problem) ([]policy.Policy, []Problem) {
	if value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		return nil, []Problem{{Place: "policies", Reason: Unfit(value, "a list").Error()}}
	}
	var problems []Problem
	var policies []policy.Policy
	first := map[string]int{}
	for i, item := range list {
		place := fmt.Sprintf("policies[%d]", i)
		p, err := readPolicy(item)
		if err == nil {
			err = policy.Invalid(check(p.WithDefaults()))
		}
		if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
			for _, found := range invalid.Problems {
				field := strings.TrimSuffix(place+"."+found.Field, ".")
				problems = append(problems, Problem{Place: field, Reason: found.Reason})
			}
		} else if err != nil {
			problems = append(problems, Problem{Place: place, Reason: err.Error()})
		}
		if fields, ok := item.(map[string]any); ok {
			p.Name, _ = fields["name"].(string)
		}
		if before, ok := first[p.Name]; ok && p.Name != "" {
			reason := fmt.Sprintf("%q is the name of policies[%d] already", p.Name, before)
			problems = append(problems, Problem{Place: place + ".name", Reason: reason})
		} else {
			first[p.Name] = i
		}
		policies = append(policies, p)
	}
	return policies, problems
}

// readPolicy reads one policy by way of JSON, so that one decoder decides what a policy is.
func readPolicy(item any) (policy.Policy, error) {
	text, err := json.Marshal(item)
	if err != nil {
		return policy.Policy{}, err
	}
	if _, err := policy.Read(text); err != nil {
		return policy.Policy{}, err
	}
	return policy.Parse(text)
}

// forJSON turns what YAML can say and JSON cannot, such as keys that are numbers and .nan, into
// text, which is then refused at its place.
func forJSON(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[key] = forJSON(item)
		}
		return out
	case map[any]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[fmt.Sprint(key)] = forJSON(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = forJSON(item)
		}
		return out
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
	}
	return value
}

// Problem is one thing that is wrong, its place in the file, and its line there; 0 when it is not
// in the file.
type Problem struct {
	Place, Reason string
	Line          int
}

// Error is "place: reason".
func (p Problem) Error() string {
	if p.Place == "" {
		return p.Reason
	}
	return p.Place + ": " + p.Reason
}

// Join makes one error of the problems, in the order of the file with that name; those outside of
// it come first.
func Join(name string, problems []Problem) error {
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	var errs []error
	for _, p := range problems {
		switch {
		case p.Line == 0:
			errs = append(errs, p)
		case name == "":
			errs = append(errs, fmt.Errorf("line %d: %w", p.Line, p))
		default:
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, p.Line, p))
		}
	}
	return errors.Join(errs...)
}

// Unfit says of a value that something else is wanted.
func Unfit(value any, wanted string) error {
	switch v := value.(type) {
	case map[string]any:
		return fmt.Errorf("want %s, not fields", wanted)
	case []any:
		return fmt.Errorf("want %s, not a list", wanted)
	case string:
		return fmt.Errorf("%q: want %s", v, wanted)
	default:
		return fmt.Errorf("%v: want %s", v, wanted)
	}
}
