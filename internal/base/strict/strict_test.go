package strict_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/base/strict"
)

type document struct {
	Text   string            `json:"text"`
	Number int64             `json:"number"`
	Needed int64             `json:"needed" zero:"never"`
	Small  uint32            `json:"small" zero:"meant"`
	Flag   *bool             `json:"flag"`
	Texts  []string          `json:"texts,omitempty"`
	Map    map[string]string `json:"map,omitempty"`
	Wait   time.Duration     `json:"wait"`
	Secret string            `json:"secret" secret:"true"`
	Strict []string          `json:"strict" null:"refused"`
	Any    any               `json:"any"`
	inner
	Group struct {
		inner
		List []inner `json:"list"`
	} `json:"group"`
	Hidden string `json:"-"`
}

type inner struct {
	Of string `json:"of"`
}

func TestAllMistakesAreReportedTogether(t *testing.T) {
	for text, want := range map[string][]string{
		`{"text":"","number":7,"flag":null,"any":[{"x":1}],"of":"a","map":{}}`: nil,

		`{"Text":"a"}`:            {"Text: unknown field; did you mean text?"},
		`{"Hidden":"a","-":1}`:    {"Hidden: unknown field", "-: unknown field"},
		`{"a, b;c":1,"\"; ":2}`:   {"a, b;c: unknown field", "\"; : unknown field"},
		`{"text":5,"number":"7"}`: {"text: 5: want text", `number: "7": want a whole number`},
		`{"number":7.0,"small":-1}`: {"number: 7.0: want a whole number",
			"small: -1: want a whole number from 0 to 4294967295"},
		`{"number":9223372036854775808}`: {"number: 9223372036854775808: is too large"},
		`{"number":0,"small":0}`:         {"number: must not be 0: omit it to get the default"},
		`{"needed":0}`:                   {"needed: must be positive"},
		`{"flag":"yes","wait":5}`:        {`flag: "yes": want true or false`, "wait: 5: want a duration"},
		`{"texts":["a",1,{}]}`:           {"texts[1]: 1: want text", "texts[2]: want text, not fields"},
		`{"map":{"a":"b","c":true}}`:     {"map.c: true: want text"},
		`{"secret":12345,"strict":null}`: {"secret: want text, not a number", "strict: null: want a list"},
		`{"group":{"of":[],"list":[{"of":"a"},{"fo":"a"},null]}}`: {"group.of: want text, not a list",
			"group.list[1].fo: unknown field", "group.list[2]: want fields, not null"},
		`{"of":"a","of":"b","any":{"a":1,"a":2}}`: {"of: is given twice", "any.a: is given twice"},
		`[]`:                           {"want fields, not a list"},
		`{"text":"a"`:                  {"is not JSON"},
		`{text: a}`:                    {"is not JSON"},
		strings.Repeat("[", 1_000_000): {"is not JSON"},
	} {
		var d document
		problems := strict.JSON([]byte(text), &d).Problems()
		if len(problems) != len(want) {
			t.Errorf("%.80s: got %v, want %q", text, problems, want)
			continue
		}
		for i, p := range problems {
			if !strings.HasPrefix(p.Error(), want[i]) {
				t.Errorf("%.80s: got %v, want %s", text, p, want[i])
			}
		}
		if d.Map != nil && len(d.Map) == 0 {
			t.Errorf("%s: an empty map is given", text)
		}
	}
}

// The YAML parser would reject this JSON.
func TestJSONIsReadAsJSON(t *testing.T) {
	var d document
	text := "{\n\t\"text\": \"\\ud83d\\ude00\\/\",\n\t\"of\":\"<<\"}"
	problems := strict.JSON([]byte(text), &d).Problems()
	if len(problems) > 0 || d.Text != "😀/" || d.Of != "<<" {
		t.Errorf("%+v, %v", d, problems)
	}
}

func TestAFileIsReadWithAliasesAndMerges(t *testing.T) {
	f, err := strict.Read(strings.NewReader(`
base: &base {of: a}
text: 2030-01-31
number: 0x10
small: 1_000
flag: yes
map: {200: ok}
group:
  <<: *base
  list: [*base, {<<: [{of: b}, *base]}, {<<: *base, of: c}]
`))
	if err != nil {
		t.Fatal(err)
	}
	var d document
	f.Decode(&d)
	if err := f.Err(); err == nil || err.Error() != "line 2: base: unknown field" {
		t.Error(err)
	}
	list := []inner{{"a"}, {"b"}, {"c"}}
	if d.Text != "2030-01-31" || d.Number != 16 || d.Small != 1000 || !*d.Flag ||
		d.Map["200"] != "ok" || d.Group.Of != "a" || !reflect.DeepEqual(d.Group.List, list) {
		t.Errorf("%+v", d)
	}
}

// 010 is 8 to some readers of YAML, and 10 to others.
func TestANumberThatBeginsWithZeroIsRefused(t *testing.T) {
	for _, text := range []string{"010", "08", "-017", "0_10"} {
		f, err := strict.Read(strings.NewReader("number: " + text))
		if err != nil {
			t.Fatal(err)
		}
		var d document
		f.Decode(&d)
		if err := f.Err(); err == nil || !strings.HasSuffix(err.Error(), "does not begin with 0") {
			t.Errorf("%s is read as %d, %v", text, d.Number, err)
		}
	}
}

// The newer of yaml's interfaces counts aliases at each node afresh, and would take minutes.
func TestADocumentOfTooManyAliasesIsRefused(t *testing.T) {
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		nine := strings.Repeat(fmt.Sprintf("*a%d, ", i), 9)
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, nine, i)
	}
	for text, want := range map[string]string{laughs: "excessive aliasing",
		"a: &a [*a]": "contains itself", "a: {<<: text}": "map merge requires map",
		"? [a]\n: 1": "want text as a field's name"} {
		f, err := strict.Read(strings.NewReader(text))
		if err == nil {
			err = f.Err()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v, want %s", text, err, want)
		}
	}
}

// Keys are texts, also those that YAML reads as numbers or null.
func TestKeysAreTexts(t *testing.T) {
	for text, want := range map[string]string{
		"map: {1: a, ~: b, true: c, 2030-01-31: d}":       "map[1:a 2030-01-31:d true:c ~:b]",
		"base: &b {1: a, 2: b}\nmap: {<<: *b, 1: c}":      "map[1:c 2:b]",
		`{"map": {"<<": "a", "\ud83d\ude00": "\\ud83d"}}`: `map[<<:a 😀:\ud83d]`,
	} {
		f, err := strict.Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var d document
		f.Field("map", &d.Map)
		if got := fmt.Sprint(d.Map); f.Err() != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", text, got, f.Err(), want)
		}
	}
}

// A problem inside an alias has the line where the alias is used.
func TestProblemsHaveLinesInEachForm(t *testing.T) {
	const want = "line 4: group.list[0].off: unknown field; did you mean of?\n" +
		"line 5: map.k: 7: want text"
	for _, text := range []string{
		"# a comment\ngroup:\n  of: a\n  list: [{off: a}]\nmap: {k: 7}\n",
		"\ufeffgroup:\r\n  of: a\r\n  list:\r\n  - {off: a}\r\nmap: {k: 7}\r\n",
		"{\n\t\"group\": {\n\t\"list\": [\n{\"off\": \"a\"}]},\n\"map\": {\"k\": 7}}",
		"any: &x\n  off: a\ngroup:\n  list: [*x]\nmap: {k: 7}\n",
	} {
		f, err := strict.Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		f.Decode(new(document))
		if err := f.Err(); err == nil || err.Error() != want {
			t.Errorf("%s\ngot\n%v\nwant\n%s", text, err, want)
		}
	}
}

// Positions are looked up after repeated fields and deep values have been removed.
func TestEachProblemIsReportedOnce(t *testing.T) {
	deep := strings.Repeat("[", 101) + "x" + strings.Repeat("]", 101)
	f, err := strict.Read(strings.NewReader("text: a\ntext: {}\nany: " + deep + "\nnumber: x"))
	if err != nil {
		t.Fatal(err)
	}
	f.Decode(new(document))
	want := "line 2: text: is given twice, first in line 1\nline 3: any" +
		strings.Repeat("[0]", 99) + ": has too many fields, or too many levels\n" +
		"line 4: number: \"x\": want a whole number"
	if err := f.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"text":"a","group":{"list":[{"of":"\u0000"}]},"number":1e3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d document
		if len(strict.JSON(data, &d).Problems()) > 0 {
			return
		}
		// Accepted documents are as encoding/json reads them, except for forms that it does not
		// support.
		d.Wait, d.Any = 0, nil
		var plain document
		if err := json.Unmarshal(data, &plain); err == nil {
			if plain.Wait, plain.Any = 0, nil; d.Text != plain.Text || d.Number != plain.Number ||
				d.Group.Of != plain.Group.Of {
				t.Errorf("%s: read %+v, encoding/json reads %+v", data, d, plain)
			}
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add("a: &a [*a]\n")
	f.Add("group: {<<: {of: a}, <<: [*x]}\n")
	f.Add("group: &g {of: a, list: [{<<: *g}]}\n? [text]\n: 1\n")
	f.Add("text: !!binary aGk=\nnumber: !!int '5'\nflag: !x yes\nmap: {? {a: b} : c, *x : d}\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := strict.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		file.Decode(new(document))
		file.Add("group.list[0].of", "is odd")
		if err := file.Err(); err == nil || err.Error() == "" {
			t.Errorf("%q: %v", text, err)
		}
	})
}
