package strict_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/strict"
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
		`{"text":5,"number":"7"}`: {"text: 5: want text", `number: "7": want a whole number`},
		`{"number":7.0,"small":-1}`: {"number: 7.0: want a whole number",
			"small: -1: want a whole number from 0 to 4294967295"},
		`{"number":9223372036854775808}`: {"number: 9223372036854775808: is too large"},
		`{"number":0,"small":0}`:         {"number: must not be 0: omit it to get the default"},
		`{"needed":0}`:                   {"needed: must be positive"},
		`{"flag":"yes","wait":5}`:        {`flag: "yes": want true or false`, "wait: 5: want a duration"},
		`{"texts":["a",1,{}]}`:           {"texts: 1: want text", "texts: want text, not fields"},
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
		problems := strict.JSON([]byte(text), &d)
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
	problems := strict.JSON([]byte(text), &d)
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

// Values from other sources replace the file's, whose other places may be aliases.
func TestTextsGoOverAFile(t *testing.T) {
	f, err := strict.Read(strings.NewReader("any: &g {of: a}\ngroup: *g\nnumber: x\ntexts: [a]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for place, text := range map[string]string{"group.of": "5", "number": "010", "texts": "b, ,c",
		"flag": "1", "wait": "soon"} {
		f.Set(place, text, "--"+place)
	}
	var d document
	f.Decode(&d)
	var aliased inner
	f.Field("any", &aliased)
	f.Add("number", "is odd")
	f.Add("wait", "is not added, because it could not be read")
	const want = "wait (--wait): \"soon\": want a duration with a unit, such as 250ms, 30s, 5m, " +
		"1d or 1w\nnumber (--number): is odd"
	if err := f.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if d.Group.Of != "5" || aliased.Of != "a" || d.Number != 10 || !*d.Flag ||
		!reflect.DeepEqual(d.Texts, []string{"b", "c"}) {
		t.Errorf("%+v, %+v", d, aliased)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"text":"a","group":{"list":[{"of":"\u0000"}]},"number":1e3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d document
		if len(strict.JSON(data, &d)) > 0 {
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
		file.Set("group.of", "a", "--of")
		file.Decode(new(document))
		file.Add("group.list[0].of", "is odd")
		if err := file.Err(); err == nil || err.Error() == "" {
			t.Errorf("%q: %v", text, err)
		}
	})
}
