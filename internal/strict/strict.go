// Package strict reads YAML and JSON into structs, and reports all problems at once: syntax errors,
// unknown and repeated fields, wrong types, and zeros that would mean the default. A problem has a
// place, such as policies[2].outflow, and for files a line.
package strict

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/nearest"
)

type Problem struct {
	Place, Reason string
	Line          int // 0: no line
}

func (p Problem) Error() string {
	if p.Place == "" {
		return p.Reason
	}
	return p.Place + ": " + p.Reason
}

func JSON(data []byte, into any) []Problem {
	root, err := parseJSON(data)
	if err != nil {
		return []Problem{{Reason: "is not JSON: " + err.Error()}}
	}
	d := decoder{problems: unique(root, "")}
	d.decode("", root, reflect.ValueOf(into).Elem(), "")
	return d.problems
}

// The YAML parser itself rejects some JSON, such as surrogate pairs, and accepts much that is not
// JSON.
func parseJSON(data []byte) (*yaml.Node, error) {
	var document json.RawMessage
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	return readValue(in)
}

func readValue(in *json.Decoder) (*yaml.Node, error) {
	token, err := in.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle}
	switch v := token.(type) {
	case json.Delim:
		n = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if v == '[' {
			n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for in.More() && err == nil {
			var child *yaml.Node
			child, err = readValue(in)
			n.Content = append(n.Content, child)
		}
		if err == nil {
			_, err = in.Token()
		}
	case string:
		n.Value = v
	case json.Number:
		n.Value, n.Tag, n.Style = v.String(), "!!int", 0
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Value, n.Tag, n.Style = strconv.FormatBool(v), "!!bool", 0
	default:
		n.Value, n.Tag, n.Style = "null", "!!null", 0
	}
	return n, err
}

type Leaf struct{ Place, Text string }

func Leaves(data []byte) (leaves []Leaf, err error) {
	root, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	var walk func(at string, n *yaml.Node)
	walk = func(at string, n *yaml.Node) {
		for i, child := range n.Content {
			switch {
			case n.Kind == yaml.SequenceNode:
				walk(item(at, i), child)
			case i%2 == 1:
				walk(member(at, n.Content[i-1]), child)
			}
		}
		if n.Kind == yaml.ScalarNode {
			leaves = append(leaves, Leaf{at, n.Value})
		}
	}
	walk("", root)
	return leaves, nil
}

func item(at string, i int) string { return fmt.Sprintf("%s[%d]", at, i) }

func member(at string, key *yaml.Node) string {
	return strings.TrimPrefix(at+"."+key.Value, ".")
}

// unique reports repeated fields and removes all but the first.
func unique(n *yaml.Node, at string) (problems []Problem) {
	if n.Kind != yaml.MappingNode {
		for i, child := range n.Content {
			if n.Kind == yaml.DocumentNode {
				problems = append(problems, unique(child, at)...)
			} else {
				problems = append(problems, unique(child, item(at, i))...)
			}
		}
		return problems
	}
	lines := map[string]int{}
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if first, twice := lines[key.Value]; twice && key.Kind == yaml.ScalarNode {
			reason := "is given twice"
			if first > 0 {
				reason += fmt.Sprintf(", first in line %d", first)
			}
			problems = append(problems, Problem{member(at, key), reason, key.Line})
			continue
		}
		lines[key.Value] = key.Line
		kept = append(kept, key, value)
		problems = append(problems, unique(value, member(at, key))...)
	}
	n.Content = kept
	return problems
}

func aliased(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

type pair struct{ key, value *yaml.Node }

func members(n *yaml.Node) (all []pair) {
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := aliased(n.Content[i]), aliased(n.Content[i+1])
		switch {
		case key.Tag != "!!merge":
			all = append(all, pair{key, value})
		case value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	}
	for _, m := range merged {
		for _, inner := range members(aliased(m)) {
			if find(all, inner.key.Value) == nil {
				all = append(all, inner)
			}
		}
	}
	return all
}

func find(all []pair, name string) *yaml.Node {
	for _, m := range all {
		if m.key.Value == name {
			return m.value
		}
	}
	return nil
}

type decoder struct{ problems []Problem }

func (d *decoder) bad(at string, n *yaml.Node, format string, args ...any) {
	d.problems = append(d.problems, Problem{at, fmt.Sprintf(format, args...), n.Line})
}

// Struct fields are named by json tags. null, and with omitempty an empty list or object, counts as
// missing. zero:"meant" allows an explicit zero, zero:"never" marks a number without a default,
// null:"refused" forbids null, secret:"true" keeps a value out of messages. any accepts everything.
func (d *decoder) decode(at string, n *yaml.Node, into reflect.Value, tag reflect.StructTag) {
	n = aliased(n)
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	before := len(d.problems)
	if !d.unmarshal(at, n, into, tag) {
		d.byKind(at, n, into, tag)
	}
	switch into.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint32:
		zero := tag.Get("zero")
		switch {
		case !into.IsZero() || zero == "meant" || len(d.problems) > before:
		case zero == "never":
			d.bad(at, n, "must be positive")
		default:
			d.bad(at, n, "must not be %s: omit it to get the default", shown(n))
		}
	case reflect.Slice, reflect.Map:
		if into.Len() == 0 && strings.HasSuffix(tag.Get("json"), ",omitempty") {
			into.SetZero()
		}
	}
}

// fromText tags a text that may also be a number, a boolean or a list separated by commas.
const fromText = "!text"

func (d *decoder) unmarshal(at string, n *yaml.Node, into reflect.Value,
	tag reflect.StructTag) (done bool) {

	text, err := n.Value, error(nil)
	switch v := into.Addr().Interface().(type) {
	case interface{ UnmarshalTexts([]string) error }:
		var texts []string
		before := len(d.problems)
		d.decode(at, n, reflect.ValueOf(&texts).Elem(), tag)
		if len(d.problems) == before {
			err = v.UnmarshalTexts(texts)
		}
		if err != nil {
			d.bad(at, n, "%v", err)
		}
		return true
	case json.Unmarshaler:
		if n.Kind != yaml.ScalarNode && into.Kind() == reflect.Struct {
			return false
		}
		document := []byte(text)
		if isText(n) {
			document, _ = json.Marshal(text)
		}
		err = v.UnmarshalJSON(document)
	case encoding.TextUnmarshaler:
		err = v.UnmarshalText([]byte(text))
	case *time.Duration:
		*v, err = algorithms.ParseDuration(text)
	default:
		return false
	}
	switch {
	case err != nil:
		d.bad(at, n, "%s", reason(err, n))
	case n.Kind != yaml.ScalarNode:
		d.bad(at, n, "want text, not %s", kind(n))
	}
	return true
}

// The value is quoted as the file spells it.
func reason(err error, n *yaml.Node) string {
	rest, quotes := strings.CutPrefix(err.Error(), strconv.Quote(n.Value)+": ")
	switch {
	case quotes && n.Kind != yaml.ScalarNode:
		return rest + ", not " + kind(n)
	case quotes && !isText(n):
		return n.Value + ": " + rest
	}
	return err.Error()
}

func (d *decoder) byKind(at string, n *yaml.Node, into reflect.Value, tag reflect.StructTag) {
	text := n.Kind == yaml.ScalarNode && isText(n)
	want := func(what string) {
		switch {
		case n.Kind == yaml.ScalarNode && tag.Get("secret") == "":
			d.bad(at, n, "%s: want %s", shown(n), what)
		default:
			d.bad(at, n, "want %s, not %s", what, kind(n))
		}
	}
	switch into.Kind() {
	case reflect.Interface:
	case reflect.String:
		if !text {
			want("text")
			return
		}
		into.SetString(n.Value)
	case reflect.Bool:
		if n.Tag == fromText {
			b, err := strconv.ParseBool(n.Value)
			if into.SetBool(b); err != nil {
				want("true or false")
			}
		} else if n.Style != 0 || n.Decode(into.Addr().Interface()) != nil {
			want("true or false")
		}
	case reflect.Int, reflect.Int64, reflect.Uint32:
		d.number(at, n, into, want)
	case reflect.Slice:
		d.list(at, n, into, tag, want)
	case reflect.Map:
		if n.Kind != yaml.MappingNode {
			d.bad(at, n, "want fields, not %s", kind(n))
			return
		}
		into.Set(reflect.MakeMap(into.Type()))
		for _, m := range members(n) {
			value := reflect.New(into.Type().Elem()).Elem()
			d.decode(member(at, m.key), m.value, value, tag)
			into.SetMapIndex(reflect.ValueOf(m.key.Value), value)
		}
	case reflect.Struct:
		d.fields(at, n, into)
	default:
		panic("no document has a " + into.Type().String())
	}
}

// zeroFirst matches what is octal in YAML 1.1 and decimal in YAML 1.2.
var zeroFirst = regexp.MustCompile(`^[+-]?0[0-9]`)

func (d *decoder) number(at string, n *yaml.Node, into reflect.Value, want func(string)) {
	digits := strings.ReplaceAll(n.Value, "_", "")
	whole := n.ShortTag() == "!!int" || n.Tag == fromText ||
		n.ShortTag() == "!!float" && strings.Trim(digits, "+-0123456789") == ""
	base := 0 // 0x10 as in YAML
	if n.Tag == fromText {
		base = 10
	}
	i, err := strconv.ParseInt(digits, base, 64)
	switch {
	case whole && base == 0 && zeroFirst.MatchString(digits):
		want("a whole number that does not begin with 0")
	case !whole || err != nil && !errors.Is(err, strconv.ErrRange):
		want("a whole number")
	case into.CanUint() && (err != nil || i < 0 || into.OverflowUint(uint64(i))):
		want(fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<into.Type().Bits()-1))
	case into.CanUint():
		into.SetUint(uint64(i))
	case err != nil || into.OverflowInt(i):
		d.bad(at, n, "%s: is too large", shown(n))
	default:
		into.SetInt(i)
	}
}

func (d *decoder) list(at string, n *yaml.Node, into reflect.Value, tag reflect.StructTag,
	want func(string)) {

	if n.Tag == fromText {
		var texts []string
		for text := range strings.SplitSeq(n.Value, ",") {
			if text = strings.TrimSpace(text); text != "" {
				texts = append(texts, text)
			}
		}
		into.Set(reflect.ValueOf(texts))
		return
	}
	if n.Kind != yaml.SequenceNode {
		want("a list")
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	for i, one := range n.Content {
		place := at
		if into.Index(i).Kind() != reflect.String {
			place = item(at, i)
		}
		d.decode(place, one, into.Index(i), tag)
	}
}

func (d *decoder) fields(at string, n *yaml.Node, into reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.bad(at, n, "want fields, not %s", kind(n))
		return
	}
	known := fieldsOf(into.Type())
	for _, m := range members(n) {
		place := member(at, m.key)
		i := slices.IndexFunc(known, func(f field) bool { return f.name == m.key.Value })
		if i < 0 {
			var names []string
			for _, f := range known {
				names = append(names, f.name)
			}
			d.bad(place, m.key, "unknown field%s", nearest.Hint(m.key.Value, names))
		} else if f := known[i]; m.value.ShortTag() != "!!null" || f.tag.Get("null") == "refused" {
			d.decode(place, m.value, into.FieldByIndex(f.index), f.tag)
		}
	}
}

type field struct {
	name  string
	index []int
	tag   reflect.StructTag
}

// types caches fields by type: reflection makes new ones each time.
var types sync.Map

func fieldsOf(document reflect.Type) (fields []field) {
	if known, ok := types.Load(document); ok {
		return known.([]field)
	}
	for _, f := range reflect.VisibleFields(document) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "-" && (name != "" || !f.Anonymous) {
			fields = append(fields, field{name, f.Index, f.Tag})
		}
	}
	types.Store(document, fields)
	return fields
}

type Value struct {
	Place string
	Into  any
}

func Fields(document any) (values []Value) {
	of := reflect.ValueOf(document).Elem()
	for _, f := range fieldsOf(of.Type()) {
		value := of.FieldByIndex(f.index)
		into := value.Addr().Interface()
		_, text := into.(encoding.TextUnmarshaler)
		if value.Kind() != reflect.Struct || text {
			values = append(values, Value{f.name, into})
			continue
		}
		for _, inner := range Fields(into) {
			values = append(values, Value{f.name + "." + inner.Place, inner.Into})
		}
	}
	return values
}

func isText(n *yaml.Node) bool {
	switch n.ShortTag() {
	case "!!int", "!!float", "!!bool", "!!null":
		return false
	}
	return true
}

func shown(n *yaml.Node) string {
	if isText(n) {
		return Quote(n.Value)
	}
	return cmp.Or(shorten(n.Value), "null")
}

func Quote(text string) string { return strconv.Quote(shorten(text)) }

func shorten(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isText(n):
		return "text"
	case n.ShortTag() == "!!bool":
		return "true or false"
	case n.ShortTag() == "!!null":
		return "null"
	}
	return "a number"
}

// Within reports whether a place is, or is inside, outer.
func Within(place, outer string) bool {
	rest, ok := strings.CutPrefix(place, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}
