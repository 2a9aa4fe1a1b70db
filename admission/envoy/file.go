package envoy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/internal/nearest"
	"github.com/penstock-mq/penstock/internal/yamlfile"
)

// mostBytes is how long a file may be.
const mostBytes = 16 << 20

// Load reads files, and of directories those that end with .yaml or .yml: each has a domain, and
// those of the same domain add up. The error has all that is wrong, each with its file and line.
func Load(names []string) (*Config, error) {
	files, err := expand(names)
	if err != nil {
		return nil, err
	}
	p := parser{config: &Config{domains: map[string]*node{}}, paths: map[string]bool{}}
	var problems []error
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		problems = append(problems, p.file(name, text))
	}
	return p.config, errors.Join(problems...)
}

// expand puts their files in the place of directories. A name that begins with a dot is not read:
// so Kubernetes keeps former versions.
func expand(names []string) (files []string, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, name)
			continue
		}
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, err
		}
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
			end := filepath.Ext(e.Name())
			return e.Name()[0] == '.' || end != ".yaml" && end != ".yml"
		})
		if len(entries) == 0 {
			return nil, fmt.Errorf("%s: has no file that ends with .yaml or .yml", name)
		}
		for _, e := range entries {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	return files, nil
}

// parser reads files one after the other, and notes what is wrong with each.
type parser struct {
	config   *Config
	paths    map[string]bool // of limits
	problems []yamlfile.Problem
	broken   map[*yaml.Node]bool // of another kind than wanted: no more is said of these
}

func (p *parser) bad(at *yaml.Node, format string, args ...any) {
	if p.broken[at] {
		return
	}
	p.problems = append(p.problems,
		yamlfile.Problem{Reason: fmt.Sprintf(format, args...), Line: max(at.Line, 1)})
}

// file reads a file as it is written: yamlfile makes numbers of values, and 007 is not 7.
func (p *parser) file(name string, text []byte) error {
	if len(text) > mostBytes {
		return fmt.Errorf("%s: is larger than %d MiB", name, mostBytes>>20)
	}
	p.problems, p.broken = nil, map[*yaml.Node]bool{}
	var root yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(text))
	err := in.Decode(&root)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:1: domain: is missing", name)
	}
	if err == nil {
		err = root.Decode(new(any)) // keys are given once, and no alias is within itself
	}
	if err != nil {
		return fmt.Errorf("%s: is not YAML: %w", name, err)
	}
	p.domain(root.Content[0])
	if !errors.Is(in.Decode(new(yaml.Node)), io.EOF) {
		p.bad(&root, "a second document follows: want one only")
	}
	return yamlfile.Join(name, p.problems)
}

func (p *parser) domain(at *yaml.Node) {
	fields := p.fields(at, "domain", "descriptors")
	name := p.text(fields["domain"])
	if name == "" {
		p.bad(at, "domain: is missing")
		return
	}
	if p.config.domains[name] == nil {
		p.config.domains[name] = &node{children: map[string]*node{}}
	}
	p.descriptors(p.config.domains[name], name, fields["descriptors"])
}

func (p *parser) descriptors(into *node, path string, at *yaml.Node) {
	for _, item := range p.list(at) {
		p.descriptor(into, path, item)
	}
}

func (p *parser) descriptor(into *node, path string, at *yaml.Node) {
	fields := p.fields(at, "key", "value", "descriptors", "rate_limit", "shadow_mode",
		"quota_mode", "share_threshold", "detailed_metric", "value_to_metric")
	name, value := p.text(fields["key"]), p.text(fields["value"])
	if name == "" {
		p.bad(at, "key: is missing")
		return
	}
	if value != "" {
		name += "_" + value
	}
	path += "." + name
	if into.children[name] != nil {
		p.bad(at, "%s is there already", path)
		return
	}
	n := &node{children: map[string]*node{}}
	into.children[name] = n
	if strings.HasSuffix(name, "*") {
		into.wild = append(into.wild, name)
	}
	if p.flag(fields["share_threshold"]) {
		if n.pattern = name; !strings.HasSuffix(name, "*") {
			p.bad(fields["share_threshold"], "share_threshold: is for values that end with *")
		}
	}
	shadow, quota := p.flag(fields["shadow_mode"]), p.flag(fields["quota_mode"])
	p.flag(fields["detailed_metric"])
	p.flag(fields["value_to_metric"])
	if limit := fields["rate_limit"]; limit != nil && limit.Tag != "!!null" {
		n.limit = p.limit(limit, path)
		n.limit.Shadow = shadow || quota
	}
	p.descriptors(n, path, fields["descriptors"])
}

func (p *parser) limit(at *yaml.Node, path string) *Limit {
	fields := p.fields(at, "unit", "requests_per_unit", "unlimited", "name", "replaces",
		"unit_multiplier")
	if n := fields["unit_multiplier"]; n != nil {
		p.bad(n, "unit_multiplier: files have none, as in envoyproxy/ratelimit")
	}
	l := &Limit{Path: path, Unlimited: p.flag(fields["unlimited"])}
	l.Name = p.text(fields["name"])
	known := false
	name := p.text(fields["unit"])
	l.Unit, known = unitOf(name)
	switch {
	case l.Unlimited && name != "":
		p.bad(fields["unit"], "unit: stands beside unlimited")
	case !l.Unlimited && !known:
		p.bad(at, "unit: %q: want second, minute, hour, day, week, month or year%s", name,
			nearest.Hint(name, []string{"second", "minute", "hour", "month"}))
	}
	if n := fields["requests_per_unit"]; n != nil && n.Decode(&l.Requests) != nil {
		p.bad(n, "requests_per_unit: want a whole number from 0 to 4294967295")
	}
	for _, item := range p.list(fields["replaces"]) {
		replaced := p.text(p.fields(item, "name")["name"])
		switch replaced {
		case "":
			p.bad(item, "replaces: name: is missing")
		case l.Name:
			p.bad(item, "replaces: %s is the name of this limit itself", replaced)
		}
		l.Replaces = append(l.Replaces, replaced)
	}
	if p.paths[path] {
		p.bad(at, "another limit is called %s in metrics", path)
	}
	p.paths[path] = true
	p.config.limits = append(p.config.limits, l)
	return l
}

// aliased is what stands at a place, or what an alias there stands for.
func aliased(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// fields are those of a mapping, with what it merges. Unknown ones are noted.
func (p *parser) fields(at *yaml.Node, want ...string) map[string]*yaml.Node {
	if at.Kind != yaml.MappingNode {
		p.bad(at, "want fields: %s", strings.Join(want, ", "))
		p.broken[at] = true
		return nil
	}
	fields := map[string]*yaml.Node{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(at.Content); i += 2 {
		key, value := at.Content[i], aliased(at.Content[i+1])
		switch {
		case key.Tag == "!!merge" && value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case !slices.Contains(want, key.Value):
			p.bad(key, "%s: unknown key%s", key.Value, nearest.Hint(key.Value, want))
		default:
			fields[key.Value] = value
		}
	}
	for _, m := range merged {
		for name, value := range p.fields(aliased(m), want...) {
			if fields[name] == nil {
				fields[name] = value
			}
		}
	}
	return fields
}

func (p *parser) list(at *yaml.Node) []*yaml.Node {
	if at == nil || at.Tag == "!!null" {
		return nil
	}
	if at.Kind != yaml.SequenceNode {
		p.bad(at, "want a list")
		return nil
	}
	items := slices.Clone(at.Content)
	for i := range items {
		items[i] = aliased(items[i])
	}
	return items
}

// text is a scalar as it is written; empty for what is not there.
func (p *parser) text(at *yaml.Node) string {
	if at == nil || at.Tag == "!!null" {
		return ""
	}
	if at.Kind != yaml.ScalarNode {
		p.bad(at, "want text")
	}
	return at.Value
}

func (p *parser) flag(at *yaml.Node) (on bool) {
	if at != nil && at.Tag != "!!null" && at.Decode(&on) != nil {
		p.bad(at, "want true or false")
	}
	return on
}
