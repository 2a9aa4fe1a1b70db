package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is a document of YAML. Without content it is empty.
type Document struct {
	yaml.Node
	More bool // another document follows
}

// Parse parses YAML or JSON. An error has the line.
func Parse(text []byte) (d Document, line int, err error) {
	if json.Valid(text) {
		text = escapes.ReplaceAllFunc(text, unescape)
	}
	unread := bytes.NewReader(text)
	in := yaml.NewDecoder(unread)
	err = in.Decode(&d.Node)
	if err != nil && !errors.Is(err, io.EOF) {
		line = brokenLine(text, len(text)-unread.Len())
		return d, line, errors.New(yamlLine.ReplaceAllString(err.Error(), ""))
	}
	d.More = !errors.Is(in.Decode(new(yaml.Node)), io.EOF)
	return d, 0, nil
}

// Value returns the document's value: maps, lists, texts, booleans, nil and [Number].
func (d Document) Value() (any, error) {
	var root node
	err := d.Node.Decode(&root)
	return root.value, err
}

// Key returns a mapping's key, also that of an alias, as a text, except for the key of a merge.
func Key(n *yaml.Node) *yaml.Node {
	if n.Tag == "!!str" {
		return n
	}
	key := *n // an alias of n keeps its tag
	if n.Kind == yaml.AliasNode {
		key.Kind, key.Tag, key.Value = n.Alias.Kind, n.Alias.Tag, n.Alias.Value
	}
	if key.ShortTag() != "!!merge" {
		key.Tag = "!!str"
	}
	return &key
}

// escapes matches an escaped backslash, or what YAML does not escape as JSON does.
var escapes = regexp.MustCompile(`\\[\\/]|\\u[dD][89abAB]..\\u[dD][c-fC-F]..`)

func unescape(escape []byte) []byte {
	var text string
	if escape[1] == '\\' || json.Unmarshal([]byte(`"`+string(escape)+`"`), &text) != nil {
		return escape
	}
	return []byte(text)
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

// node is filled by yaml's decoder, which expands aliases, and refuses a document with too many.
type node struct{ value any }

// UnmarshalYAML has the older of yaml's two signatures: with the newer one, yaml would count the
// aliases of each node apart.
func (n *node) UnmarshalYAML(unmarshal func(any) error) (err error) {
	var raw raw
	_ = unmarshal(&raw) // it only copies
	switch tag := raw.ShortTag(); {
	case raw.Kind == yaml.MappingNode:
		var members map[string]node
		err = unmarshal(&members)
		fields := make(map[string]any, len(members))
		for name, member := range members {
			fields[name] = member.value
		}
		n.value = fields
	case raw.Kind == yaml.SequenceNode:
		var members []*node // nil: null
		err = unmarshal(&members)
		items := make([]any, len(members))
		for i, member := range members {
			if member != nil {
				items[i] = member.value
			}
		}
		n.value = items
	case tag == "!!bool":
		n.value = strings.EqualFold(raw.Value, "true")
	case tag == "!!int" || tag == "!!float":
		n.value = Number(raw.Value)
	default:
		n.value = raw.Value
	}
	return err
}

type raw struct{ *yaml.Node }

func (r *raw) UnmarshalYAML(n *yaml.Node) error {
	r.Node = n
	return nil
}
