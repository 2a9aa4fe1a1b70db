package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/internal/nearest"
	"github.com/penstock-mq/penstock/internal/yamlfile"
)

// lists are what a file has beside settings.
var lists = []string{yamlfile.PoliciesKey, yamlfile.SharedKey, "schedules"}

// unknownKeys reports keys that are neither a setting nor lead to one, and removes them along with
// groups that are not groups.
func unknownKeys(tree map[string]any, at string) []yamlfile.Problem {
	var problems []yamlfile.Problem
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		place := at + key
		if slices.Contains(lists, place) {
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
			problems = append(problems,
				yamlfile.Problem{Place: place, Reason: "unknown key" + hint})
			delete(tree, key)
			continue
		}
		switch value := tree[key].(type) {
		case nil:
			delete(tree, key)
		case map[string]any:
			problems = append(problems, unknownKeys(value, place+".")...)
		default:
			problems = append(problems,
				yamlfile.Problem{Place: place, Reason: yamlfile.Unfit(value, "fields").Error()})
			delete(tree, key)
		}
	}
	return problems
}

// siblings are the keys that may stand beside each other inside a group, at its name with a dot or
// "" for the outermost.
func siblings(at string) []string {
	names := []string{}
	if at == "" {
		names = append(names, lists...)
	}
	for _, s := range settings {
		if rest, inside := strings.CutPrefix(s.key, at); inside {
			name, _, _ := strings.Cut(rest, ".")
			names = append(names, name)
		}
	}
	return names
}
