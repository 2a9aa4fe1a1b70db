package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/policy"
)

// readTree reads one YAML document and reports unknown and repeated keys. It does not leave the reading to viper, which
// takes the case off keys, splits them at dots and reads no further than the first document. The error is for a file
// that is no YAML at all.
func readTree(file io.Reader) (tree map[string]any, problems []problem, err error) {
	tree = map[string]any{}
	if file == nil {
		return tree, nil, nil
	}
	in := yaml.NewDecoder(file)
	var document yaml.Node
	if err := in.Decode(&document); errors.Is(err, io.EOF) {
		return tree, nil, nil // empty, or nothing but comments
	} else if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	problems = repeatedKeys(&document, "")
	var read any
	if err := document.Decode(&read); err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	switch read := forJSON(read).(type) {
	case nil:
	case map[string]any:
		tree = read
	default:
		return nil, nil, problem{"", unfit(read, "fields such as nats and policies").Error()}
	}
	if err := in.Decode(new(any)); !errors.Is(err, io.EOF) {
		problems = append(problems, problem{"", "a second document follows: want one only"})
	}
	return tree, append(problems, unknownKeys(tree, "")...), nil
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
				reason := fmt.Sprintf("is given twice, in lines %d and %d", line, key.Line)
				problems = append(problems, problem{place, reason})
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

// unknownKeys reports keys that are neither a setting nor lead to one, and removes them along with groups that are not
// groups.
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
			problems = append(problems, problem{place, "unknown key"})
			delete(tree, key)
			continue
		}
		switch value := tree[key].(type) {
		case nil:
			delete(tree, key)
		case map[string]any:
			problems = append(problems, unknownKeys(value, place+".")...)
		default:
			problems = append(problems, problem{place, unfit(value, "fields").Error()})
			delete(tree, key)
		}
	}
	return problems
}

// readPolicies reads the list of policies.
func readPolicies(value any, onCluster bool) ([]policy.Policy, []problem) {
	if value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		return nil, []problem{{"policies", unfit(value, "a list").Error()}}
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
				problems = append(problems, problem{strings.TrimSuffix(place+"."+found.Field, "."), found.Reason})
			}
		} else if err != nil {
			problems = append(problems, problem{place, err.Error()})
		}
		if fields, ok := item.(map[string]any); ok {
			p.Name, _ = fields["name"].(string)
		}
		if before, ok := first[p.Name]; ok && p.Name != "" {
			reason := fmt.Sprintf("%q is the name of policies[%d] already", p.Name, before)
			problems = append(problems, problem{place + ".name", reason})
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
