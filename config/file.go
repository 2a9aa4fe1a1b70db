package config

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

// document is what a file says.
type document struct {
	tree     map[string]any
	lines    map[string]int // place to line
	problems []problem
}

// readDocument reads one YAML document and reports unknown and repeated keys. It does not leave the reading to viper,
// which takes the case off keys, splits them at dots and reads no further than the first document. The error is for a
// file that is no YAML at all.
func readDocument(file io.Reader) (document, error) {
	d := document{tree: map[string]any{}, lines: map[string]int{}}
	if file == nil {
		return d, nil
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return d, fmt.Errorf("read configuration: %w", err)
	}
	unread := bytes.NewReader(text)
	in := yaml.NewDecoder(unread)
	var root yaml.Node
	if err := in.Decode(&root); errors.Is(err, io.EOF) {
		return d, nil // empty, or nothing but comments
	} else if err != nil {
		return d, notYAML(err, brokenLine(text, len(text)-unread.Len()))
	}
	d.problems = repeatedKeys(&root, "")
	var read any
	if err := root.Decode(&read); err != nil {
		return d, notYAML(err, 0)
	}
	numberLines(&root, "", d.lines)
	switch read := forJSON(read).(type) {
	case nil:
	case map[string]any:
		d.tree = read
	default:
		return d, problem{reason: unfit(read, "fields such as nats and policies").Error(), line: 1}
	}
	if err := in.Decode(new(any)); !errors.Is(err, io.EOF) {
		d.problems = append(d.problems, problem{reason: "a second document follows: want one only"})
	}
	d.problems = append(d.problems, unknownKeys(d.tree, "")...)
	return d, nil
}

// yamlLine is where yaml believes an error to be: at the line before, or where the outermost list or mapping begins.
var yamlLine = regexp.MustCompile(`^yaml: (line \d+: )?`)

func notYAML(err error, line int) error {
	text := err.Error()
	if line > 0 {
		text = yamlLine.ReplaceAllString(text, "")
	}
	return problem{reason: "is not YAML: " + text, line: line}
}

// brokenLine is the line that makes a text no YAML, the first after the longest beginning that is. It looks for it
// backwards from where the decoder gave up, and no further than a file for people needs.
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

// line is that of a place, or of the nearest one around it that is in the file; 0 for one that is not in it at all.
func (d document) line(place string) int {
	for place != "" {
		if line, ok := d.lines[place]; ok {
			return line
		}
		place = place[:max(0, strings.LastIndexAny(place, ".["))]
	}
	return 0
}

// repeatedKeys reports keys that stand twice in a mapping, and removes all but the first. yaml would leave out the
// whole mapping, and the policies after it would be counted wrong.
func repeatedKeys(n *yaml.Node, at string) []problem {
	var problems []problem
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
				problems = append(problems, problem{place: place, reason: reason, line: key.Line})
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

// unknownKeys reports keys that are neither a setting nor lead to one, and removes them along with groups that are
// not groups.
func unknownKeys(tree map[string]any, at string) []problem {
	var problems []problem
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		place := at + key
		if place == "policies" {
			continue
		}
		itself := func(s setting) bool { return s.key == place }
		inside := func(s setting) bool { return strings.HasPrefix(s.key, place+".") }
		dotted := strings.Contains(key, ".") // "nats.url" in one is not what is meant by a place
		if !dotted && slices.ContainsFunc(settings, itself) {
			continue
		}
		if dotted || !slices.ContainsFunc(settings, inside) {
			hint := nearest.Hint(key, siblings(at))
			problems = append(problems, problem{place: place, reason: "unknown key" + hint})
			delete(tree, key)
			continue
		}
		switch value := tree[key].(type) {
		case nil:
			delete(tree, key)
		case map[string]any:
			problems = append(problems, unknownKeys(value, place+".")...)
		default:
			problems = append(problems, problem{place: place, reason: unfit(value, "fields").Error()})
			delete(tree, key)
		}
	}
	return problems
}

// siblings are the keys that may stand beside each other inside a group, at its name with a dot or "" for the
// outermost.
func siblings(at string) []string {
	names := []string{}
	if at == "" {
		names = append(names, "policies")
	}
	for _, s := range settings {
		if rest, inside := strings.CutPrefix(s.key, at); inside {
			name, _, _ := strings.Cut(rest, ".")
			names = append(names, name)
		}
	}
	return names
}

// readPolicies reads the list of policies.
func readPolicies(value any, onCluster bool) ([]policy.Policy, []problem) {
	if value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		return nil, []problem{{place: "policies", reason: unfit(value, "a list").Error()}}
	}
	var problems []problem
	var policies []policy.Policy
	first := map[string]int{}
	for i, item := range list {
		place := fmt.Sprintf("policies[%d]", i)
		p, err := readPolicy(item)
		if err == nil && onCluster {
			err = policy.Invalid(p.OnCluster())
		}
		if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
			for _, found := range invalid.Problems {
				field := strings.TrimSuffix(place+"."+found.Field, ".")
				problems = append(problems, problem{place: field, reason: found.Reason})
			}
		} else if err != nil {
			problems = append(problems, problem{place: place, reason: err.Error()})
		}
		if fields, ok := item.(map[string]any); ok {
			p.Name, _ = fields["name"].(string)
		}
		if before, ok := first[p.Name]; ok && p.Name != "" {
			reason := fmt.Sprintf("%q is the name of policies[%d] already", p.Name, before)
			problems = append(problems, problem{place: place + ".name", reason: reason})
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
	return policy.Read(text)
}

// forJSON turns what YAML can say and JSON cannot, such as keys that are numbers and .nan, into text, which is then
// refused at its place.
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
