// Package yamlfile reads YAML for people: strictly, with every mistake at once, and each with its
// line.
package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/internal/nearest"
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

// The keys of a file that [Policies] reads: the list of policies, and what some of them share.
const (
	PoliciesKey = "policies"
	SharedKey   = "shared_limits"
)

// Policies reads the policies of a file, each as it is written: a default is not what the file
// says, and may be another in the next version, which must not take the file for changed. What they
// share is put in where they name it. check says what is wrong with one, its defaults filled in,
// beyond what [policy.Read] finds.
func Policies(tree map[string]any,
	check func(policy.Policy) []policy.Problem) ([]policy.Policy, []Problem) {

	shared, problems := sharedLimits(tree[SharedKey])
	list, err := listOf(tree[PoliciesKey])
	if err != nil {
		return nil, append(problems, Problem{Place: PoliciesKey, Reason: err.Error()})
	}
	var policies []policy.Policy
	first := map[string]int{}
	for i, item := range list {
		place := fmt.Sprintf("policies[%d]", i)
		item, unknown := withShared(item, shared)
		p, err := readPolicy(item)
		if err == nil {
			err = policy.Invalid(check(p.WithDefaults()))
		}
		if len(unknown) > 0 {
			err = policy.Invalid(unknown)
		}
		problems = append(problems, problemsOf(place, err)...)
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

// listOf is a list that may be left out.
func listOf(value any) (list []any, err error) {
	list, ok := value.([]any)
	if !ok && value != nil {
		return nil, Unfit(value, "a list")
	}
	return list, nil
}

// problemsOf are those of an error at a place.
func problemsOf(place string, err error) (problems []Problem) {
	invalid, ok := errors.AsType[*policy.InvalidError](err)
	if !ok && err != nil {
		return []Problem{{Place: place, Reason: err.Error()}}
	}
	for ok && len(invalid.Problems) > len(problems) {
		found := invalid.Problems[len(problems)]
		problems = append(problems, Problem{Reason: found.Reason,
			Place: strings.TrimSuffix(place+"."+found.Field, ".")})
	}
	return problems
}

// sharedLimits reads the limits that policies share, by name, as a policy has them. Those that are
// not good are among them, so that each is reported once.
func sharedLimits(value any) (limits map[string]map[string]any, problems []Problem) {
	list, err := listOf(value)
	if err != nil {
		return nil, []Problem{{Place: SharedKey, Reason: err.Error()}}
	}
	limits = map[string]map[string]any{}
	for i, item := range list {
		place := fmt.Sprintf("%s[%d]", SharedKey, i)
		text, err := json.Marshal(item)
		var l policy.Limit
		if err == nil {
			l, err = policy.ReadShared(text)
		}
		problems = append(problems, problemsOf(place, err)...)
		if limits[l.Name] != nil && l.Name != "" {
			problems = append(problems, Problem{Place: place + ".name",
				Reason: fmt.Sprintf("%q is the name of another one already", l.Name)})
		}
		fields, _ := item.(map[string]any)
		if err != nil { // in its place one that nobody complains of once more
			fields = map[string]any{"algorithm": policy.SlidingLog, "limit": 1, "window": "1m"}
		}
		limits[l.Name] = maps.Clone(fields)
		delete(limits[l.Name], "name")
		limits[l.Name]["shared"] = l.Name
	}
	return limits, problems
}

// PutShared puts the limits that the policies of a file share where they name them.
func PutShared(tree map[string]any) (policies []any, problems []Problem) {
	shared, problems := sharedLimits(tree[SharedKey])
	list, _ := tree[PoliciesKey].([]any)
	for i, item := range list {
		item, unknown := withShared(item, shared)
		policies = append(policies, item)
		problems = append(problems, problemsOf(fmt.Sprintf("policies[%d]", i),
			policy.Invalid(unknown))...)
	}
	return policies, problems
}

// withShared puts the limits that a policy shares where it names them, and reports those that are
// nowhere.
func withShared(item any,
	shared map[string]map[string]any) (with any, problems []policy.Problem) {

	fields, _ := item.(map[string]any)
	list, _ := fields["limits"].([]any)
	limits := slices.Clone(list)
	for i, limit := range limits {
		named, _ := limit.(map[string]any)
		name, ok := named["shared"].(string)
		if !ok {
			continue
		}
		field := fmt.Sprintf("limits[%d]", i)
		switch said, known := shared[name]; {
		case !known:
			problems = append(problems, policy.Problem{Field: field + ".shared",
				Reason: fmt.Sprintf("%q is not among the %s of this file%s", name, SharedKey,
					nearest.Hint(name, slices.Sorted(maps.Keys(shared))))})
		case len(named) > 1:
			problems = append(problems, policy.Problem{Field: field, Reason: "stands alone: what " +
				"the limit is, its entry under " + SharedKey + " says"})
		default:
			limits[i] = said
		}
	}
	if len(list) == 0 {
		return item, problems
	}
	fields = maps.Clone(fields)
	fields["limits"] = limits
	return fields, problems
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
