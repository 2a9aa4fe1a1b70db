// Package decode configures mapstructure to read documents and settings into structs whose fields
// have json tags, with texts, durations, sizes and rates as people write them.
package decode

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-viper/mapstructure/v2"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/base/nearest"
)

// Root is the document in the names of mapstructure's errors.
const Root = "$"

// Number is a number as a document spells it.
type Number string

// MarshalJSON keeps the spelling; a number that JSON does not spell so is a text.
func (n Number) MarshalJSON() ([]byte, error) {
	if json.Valid([]byte(n)) {
		return []byte(n), nil
	}
	return json.Marshal(string(n))
}

// form is how texts are read.
type form int

const (
	exact  form = iota // as texts
	quoted             // also as numbers and booleans
	listed             // also as lists separated by commas
)

// JSON is the option of a decoder of requests. It refuses unknown fields and values of other types.
//
// null, and with omitempty an empty list or object, counts as missing. zero:"meant" allows an
// explicit zero, zero:"never" marks a number without a default, null:"refused" forbids null, and
// secret:"true" keeps a value out of messages.
func JSON(c *mapstructure.DecoderConfig) { tagged{texts: exact}.configure(c) }

// File is the option of a decoder of files, in which numbers and booleans may be in quotes.
func File(c *mapstructure.DecoderConfig) { tagged{texts: quoted}.configure(c) }

// Settings is the option of a resolver, whose texts come from variables and flags, and which may
// have keys of its own.
func Settings(c *mapstructure.DecoderConfig) { tagged{texts: listed}.configure(c) }

// Into decodes a value; at is its place, such as .policies[2]. See [Problems].
func Into(into, from any, at string, option func(*mapstructure.DecoderConfig)) error {
	c := &mapstructure.DecoderConfig{Result: into}
	option(c)
	c.RootName += at
	d, err := mapstructure.NewDecoder(c)
	if err != nil {
		return err
	}
	return d.Decode(from)
}

// Problems lists the errors that decoding joined. An unknown field has one at its own place.
func Problems(err error) []Problem { return problems(err, "") }

func problems(err error, at string) (all []Problem) {
	switch e := err.(type) {
	case nil:
	case *mapstructure.DecodeError:
		name := inMap.ReplaceAllString(strings.TrimPrefix(e.Name(), Root), ".$1")
		at = strings.TrimPrefix(at+name, ".")
		if _, inside := errors.AsType[*mapstructure.DecodeError](e.Unwrap()); inside {
			return problems(e.Unwrap(), at)
		}
		reason := e.Unwrap().Error()
		names, unknown := strings.CutPrefix(reason, "has invalid keys: ")
		if !unknown {
			return []Problem{{at, reason}}
		}
		for names != "" {
			quoted, _ := strconv.QuotedPrefix(names)
			name, _ := strconv.Unquote(quoted)
			hint, rest, _ := strings.Cut(names[len(quoted):], ", ")
			place := strings.TrimPrefix(at+"."+name, ".")
			all = append(all, Problem{place, "unknown field" + hint})
			names = rest
		}
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			all = append(all, problems(err, at)...)
		}
	default:
		if several := errors.Unwrap(err); several != nil { // under a heading of mapstructure's
			return problems(several, at)
		}
		return []Problem{{at, err.Error()}}
	}
	return all
}

// Problem is a mistake at a place, such as policies[2].outflow.
type Problem struct{ Place, Reason string }

func (p Problem) Error() string {
	if p.Place == "" {
		return p.Reason
	}
	return p.Place + ": " + p.Reason
}

// inMap matches the name of a map's member, which mapstructure has in brackets like an index.
var inMap = regexp.MustCompile(`\[([^\[\]]*[^\[\]0-9][^\[\]]*)\]`)

// tagged is the value of a field; members of lists and maps have the tag of the whole.
type tagged struct {
	value any
	tag   reflect.StructTag
	texts form
}

func (v tagged) configure(c *mapstructure.DecoderConfig) {
	c.RootName, c.TagName, c.Squash, c.IgnoreUntaggedFields = Root, "json", true, true
	c.ErrorUnused, c.WeaklyTypedInput = v.texts != listed, false
	c.MatchName = func(key, field string) bool { return key == field }
	c.DecodeHook = mapstructure.DecodeHookFuncValue(func(from, to reflect.Value) (any, error) {
		value := from.Interface()
		if err, ok := value.(error); ok { // of [tagged.fields]
			return nil, err
		}
		return tagged{value, v.tag, v.texts}.as(to)
	})
}

// null is a null that does not count as missing.
type null struct{}

// as returns a value of the type, or in the form that mapstructure decodes into it; nil: there is
// nothing left to decode.
func (v tagged) as(to reflect.Value) (any, error) {
	switch {
	case to.Kind() == reflect.Interface || reflect.TypeOf(v.value) == to.Type():
		return v.value, nil
	case to.Kind() == reflect.Pointer:
		if to.IsNil() { // otherwise it stays nil when there is a mistake inside
			to.Set(reflect.New(to.Type().Elem()))
		}
		return v.value, nil
	}
	into, err := to.Addr(), error(nil)
	switch u := into.Interface().(type) {
	case json.Unmarshaler:
		switch v.kind() {
		case "fields":
			return v.byKind(to)
		case "a list":
			return nil, cmp.Or(u.UnmarshalJSON([]byte("[]")), v.want("text"))
		}
		document := []byte(v.text())
		if v.kind() == "text" {
			document, _ = json.Marshal(v.text())
		}
		err = u.UnmarshalJSON(document)
	case *netip.Prefix:
		*u, err = network(v.text())
	case encoding.TextUnmarshaler:
		err = u.UnmarshalText([]byte(v.text()))
	case *time.Duration:
		*u, err = algorithms.ParseDuration(v.text())
	default:
		return v.byKind(to)
	}
	if !v.scalar() {
		return nil, v.want("text")
	} else if err != nil { // numbers are not quoted
		return nil, errors.New(strings.Replace(err.Error(), strconv.Quote(v.text()), v.shown(), 1))
	}
	return v.notZero(into.Elem())
}

func (v tagged) byKind(to reflect.Value) (any, error) {
	switch to.Kind() {
	case reflect.String:
		if v.kind() != "text" {
			return nil, v.want("text")
		}
		return v.text(), nil
	case reflect.Bool:
		truth, ok := booleans[strings.ToLower(v.text())]
		if !ok || v.kind() != "text" || v.texts == exact {
			return nil, v.want("true or false")
		}
		return truth, nil
	case reflect.Slice:
		return v.items()
	case reflect.Map, reflect.Struct:
		if v.kind() != "fields" {
			return nil, fmt.Errorf("want fields, not %s", v.kind())
		}
		given := v.value.(map[string]any)
		switch {
		case v.omitted() && len(given) == 0:
			return nil, nil
		case to.Kind() == reflect.Map:
			return members(given), nil
		}
		return v.fields(given, to)
	}
	return v.number(to)
}

// network reads 10.0.0.0/8 or 10.0.0.1. IPv4 in the form of IPv6 becomes IPv4, in whose form
// addresses are compared.
func network(text string) (netip.Prefix, error) {
	n, err := netip.ParsePrefix(text)
	if address, single := netip.ParseAddr(text); single == nil && address.Zone() == "" {
		n, err = address.Prefix(address.BitLen())
	}
	if address := n.Addr(); address.Is4In6() {
		n = netip.PrefixFrom(address.Unmap(), n.Bits()-96)
	}
	if err != nil || !n.IsValid() {
		return n, fmt.Errorf("%q: want a network such as 10.0.0.0/8, or an address", text)
	}
	return n.Masked(), nil
}

// booleans are also the words of YAML 1.1.
var booleans = map[string]bool{"true": true, "yes": true, "on": true, "1": true,
	"false": false, "no": false, "off": false, "0": false}

// zeroFirst matches what is octal in YAML 1.1 and decimal in YAML 1.2.
var zeroFirst = regexp.MustCompile(`^[+-]?0[0-9]`)

func (v tagged) number(to reflect.Value) (any, error) {
	digits, base := v.text(), 10
	if _, ok := v.value.(Number); ok {
		digits, base = strings.ReplaceAll(digits, "_", ""), 0 // 0x10 as in YAML
	}
	n, err := strconv.ParseInt(digits, base, 64)
	into := reflect.New(to.Type()).Elem()
	switch {
	case v.kind() == "text" && v.texts == exact:
		return nil, v.want("a whole number")
	case base == 0 && zeroFirst.MatchString(digits):
		return nil, v.want("a whole number that does not begin with 0")
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return nil, v.want("a whole number")
	case to.CanUint() && (err != nil || n < 0 || to.OverflowUint(uint64(n))):
		return nil, v.want(fmt.Sprintf("a whole number from 0 to %d",
			uint64(math.MaxUint64)>>(64-to.Type().Bits())))
	case err != nil || to.CanInt() && to.OverflowInt(n):
		return nil, fmt.Errorf("%s: is too large", v.shown())
	case to.CanUint():
		into.SetUint(uint64(n))
	default:
		into.SetInt(n)
	}
	return v.notZero(into)
}

func (v tagged) notZero(n reflect.Value) (any, error) {
	switch zero := v.tag.Get("zero"); {
	case !n.CanInt() && !n.CanUint() || !n.IsZero() || zero == "meant":
		return n.Interface(), nil
	case zero == "never":
		return nil, errors.New("must be positive")
	}
	return nil, fmt.Errorf("must not be %s: omit it to get the default", v.shown())
}

func (v tagged) items() (any, error) {
	items := []any{}
	given, ok := v.value.([]any)
	for _, item := range given {
		items = append(items, member(item))
	}
	if !ok && v.texts == listed && v.kind() == "text" {
		for text := range strings.SplitSeq(v.text(), ",") {
			if text = strings.TrimSpace(text); text != "" {
				items = append(items, text)
			}
		}
	} else if !ok {
		return nil, v.want("a list")
	}
	if len(items) == 0 && v.omitted() {
		return nil, nil
	}
	return items, nil
}

// omitted reports whether the value counts as missing when it is empty.
func (v tagged) omitted() bool { return strings.HasSuffix(v.tag.Get("json"), ",omitempty") }

func member(value any) any {
	if value == nil {
		return null{}
	}
	return value
}

func members(given map[string]any) map[string]any {
	members := make(map[string]any, len(given))
	for name, value := range given {
		members[name] = member(value)
	}
	return members
}

// fields decodes the given fields of a struct one by one: mapstructure would look for each possible
// one, and a policy has 50. Left for it are mistakes, to name their places: the errors of fields,
// and unknown fields, which are quoted, with a hint.
func (v tagged) fields(given map[string]any, to reflect.Value) (any, error) {
	left, known := map[string]any{}, Fields(to.Type())
	for name, value := range given {
		i := slices.IndexFunc(known, func(f *Field) bool { return f.Name == name })
		if i < 0 {
			var names []string
			for _, f := range known {
				names = append(names, f.Name)
			}
			left[strconv.Quote(name)+nearest.Hint(name, names)] = nil
			continue
		}
		f := known[i]
		if value == nil && f.Tag.Get("null") == "refused" {
			value = null{}
		}
		into, field := to.FieldByIndex(f.Index).Addr(), tagged{tag: f.Tag, texts: v.texts}
		if err := Into(into.Interface(), value, "", field.configure); err != nil {
			left[name] = err
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	return left, nil
}

// Field is a field of a struct, or of one that is embedded in it.
type Field struct {
	Name string // in documents
	reflect.StructField
}

// types caches fields by type: reflection makes new ones each time.
var types sync.Map

// Fields lists the fields of a struct that documents can have.
func Fields(of reflect.Type) (fields []*Field) {
	if known, ok := types.Load(of); ok {
		return known.([]*Field)
	}
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "-" && name != "" {
			fields = append(fields, &Field{name, f})
		}
	}
	types.Store(of, fields)
	return fields
}

// want quotes the value, unless it is a secret.
func (v tagged) want(what string) error {
	if v.scalar() && v.tag.Get("secret") == "" {
		return fmt.Errorf("%s: want %s", v.shown(), what)
	}
	return fmt.Errorf("want %s, not %s", what, v.kind())
}

func (v tagged) scalar() bool { k := v.kind(); return k != "fields" && k != "a list" }

func (v tagged) kind() string { return Kind(v.value) }

// Kind names the kind of a value of a document.
func Kind(value any) string {
	switch value.(type) {
	case map[string]any:
		return "fields"
	case []any:
		return "a list"
	case string:
		return "text"
	case bool:
		return "true or false"
	case nil, null:
		return "null"
	}
	return "a number"
}

// text returns "" for fields and a list.
func (v tagged) text() string {
	switch v.kind() {
	case "fields", "a list":
		return ""
	case "null":
		return "null"
	}
	return fmt.Sprint(v.value)
}

func (v tagged) shown() string {
	if v.kind() == "text" {
		return Quote(v.text())
	}
	return v.text()
}

// Quote quotes a text, shortened if it is long.
func Quote(text string) string {
	const most = 60
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strconv.Quote(text)
}
