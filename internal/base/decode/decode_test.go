package decode_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-viper/mapstructure/v2"

	"github.com/penstock-mq/penstock/internal/base/decode"
)

type settings struct {
	Count    int            `json:"count"`
	Zero     int            `json:"zero" zero:"meant"`
	On       bool           `json:"on"`
	Wait     time.Duration  `json:"wait" zero:"meant"`
	Names    []string       `json:"names,omitempty"`
	Networks []netip.Prefix `json:"networks"`
	Text     string         `json:"text"`
	Hidden   string         `json:"-"`
	Untagged string
}

func read(t *testing.T, from map[string]any, option func(*mapstructure.DecoderConfig)) (
	s settings, problems string) {

	t.Helper()
	for _, e := range decode.Problems(decode.Into(&s, from, "", option)) {
		problems += e.Error() + "\n"
	}
	return s, problems
}

// Texts of variables and flags may be of any type; a file's may be numbers and booleans, which
// templates quote; a request's are texts.
func TestTextsAreReadInThreeForms(t *testing.T) {
	forms := []func(*mapstructure.DecoderConfig){decode.JSON, decode.File, decode.Settings}
	for _, c := range []struct {
		key, text string
		want      any
		from      int // the first of the forms that accepts it
	}{
		{"text", "a=b:c d", "a=b:c d", 0}, {"text", "", "", 0}, {"text", "5", "5", 0},
		{"wait", "1d", 24 * time.Hour, 0}, {"wait", "0s", time.Duration(0), 0},
		{"count", "77", 77, 1}, {"count", "-1", -1, 1}, {"count", "010", 10, 1},
		{"zero", "0", 0, 1}, {"on", "true", true, 1}, {"on", "YES", true, 1},
		{"on", "off", false, 1},
		{"names", "a, b,,c ", []string{"a", "b", "c"}, 2}, {"names", "a", []string{"a"}, 2},
		{"names", "", []string(nil), 2}, {"networks", "", []netip.Prefix{}, 2},
		{"networks", "10.0.0.1,::ffff:10.1.0.0/112", []netip.Prefix{
			netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.1.0.0/16")}, 2},
		{"count", "", nil, 3}, {"count", "0", nil, 3}, {"count", "0x10", nil, 3},
		{"count", "1_0", nil, 3}, {"count", "1.0", nil, 3}, {"count", " 1", nil, 3},
		{"count", "99999999999999999999", nil, 3}, {"on", "", nil, 3}, {"on", "maybe", nil, 3},
		{"wait", "5", nil, 3}, {"wait", "", nil, 3}, {"networks", "x", nil, 3},
	} {
		for i, form := range forms {
			s, problems := read(t, map[string]any{c.key: c.text}, form)
			field := strings.ToUpper(c.key[:1]) + c.key[1:]
			got := reflect.ValueOf(s).FieldByName(field).Interface()
			if accepted := problems == ""; accepted != (i >= c.from) ||
				accepted && !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s %q in form %d: got %v, %s", c.key, c.text, i, got, problems)
			}
		}
	}
}

func TestOnlyFieldsWithATagAreKnown(t *testing.T) {
	_, problems := read(t, map[string]any{"Hidden": "a", "-": "b", "Untagged": "c", "texd": nil},
		decode.JSON)
	want := "-: unknown field\nHidden: unknown field\nUntagged: unknown field\n" +
		"texd: unknown field; did you mean text?\n"
	if problems != want {
		t.Errorf("got\n%s\nwant\n%s", problems, want)
	}
}

func TestAnUnreadableMemberLeavesTheOthers(t *testing.T) {
	var document struct {
		Group *struct {
			Names []string         `json:"names"`
			Of    map[string]int64 `json:"of"`
		} `json:"group"`
	}
	err := decode.Into(&document, map[string]any{"group": map[string]any{
		"names": []any{"a", nil}, "x": 1,
		"of": map[string]any{"b": decode.Number("7"), "c": "x"}}}, "", decode.JSON)
	const want = "[group.names[1]: null: want text group.of.c: \"x\": want a whole number " +
		"group.x: unknown field]"
	if got := fmt.Sprint(decode.Problems(err)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if g := document.Group; g == nil || g.Names[0] != "a" || g.Of["b"] != 7 {
		t.Errorf("got %+v", g)
	}
}
