package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/internal/base/strict"
	"github.com/penstock-mq/penstock/policy"
)

// sample returns the n-th of several values that a setting may have, as text and as a file has it.
func sample(s setting, n int) (value any, text, inFile string) {
	quoted := func(v any, text string) (any, string, string) {
		return v, text, fmt.Sprintf("%q", text)
	}
	switch s.value.Interface().(type) {
	case bool:
		return n%2 == 1, fmt.Sprint(n%2 == 1), fmt.Sprint(n%2 == 1)
	case int:
		return n + 1, fmt.Sprint(n + 1), fmt.Sprint(n + 1)
	case time.Duration:
		return quoted(time.Duration(n+1)*time.Millisecond, fmt.Sprintf("%dms", n+1))
	case Sync:
		return quoted(Sync{Every: time.Duration(n+1) * time.Millisecond}, fmt.Sprintf("%dms", n+1))
	case policy.Size:
		return quoted(policy.Size(n+1)*policy.MiB, fmt.Sprintf("%dMiB", n+1))
	case []string:
		list := []string{fmt.Sprintf("A%d", n), fmt.Sprintf("b:c=%d d", n)}
		document, _ := json.Marshal(list)
		return list, strings.Join(list, ", "), string(document)
	case Networks:
		text = fmt.Sprintf("10.%d.0.0/16", n)
		return Networks{netip.MustParsePrefix(text)}, text, "[" + text + "]"
	}
	text = fmt.Sprintf("A=%d:b c", n)
	return quoted(text, text)
}

func TestEachSettingComesFromFlagVariableFileOrDefault(t *testing.T) {
	initial := defaults()
	for _, s := range settings(&initial) {
		t.Run(s.key, func(t *testing.T) {
			set := pflag.NewFlagSet("test", pflag.ContinueOnError)
			Flags(set)
			expect := func(from, document string, want any) {
				t.Helper()
				f, err := strict.Read(strings.NewReader(document))
				if err != nil {
					t.Fatal(err)
				}
				c := resolve(f, set)
				if err := f.Err(); err != nil {
					t.Errorf("%s: %v", from, err)
				}
				for _, got := range settings(&c) {
					if got.key == s.key && !reflect.DeepEqual(got.value.Interface(), want) {
						t.Errorf("%s: got %v, want %v", from, got.value, want)
					}
				}
			}
			fromFile, _, text := sample(s, 0)
			groups := strings.Split(s.key, ".")
			begin, end := strings.Join(groups, ": {")+": ", strings.Repeat("}", len(groups)-1)
			document := begin + text + end
			expect("default", begin+end, s.value.Interface())
			expect("file", document, fromFile)
			value, text, _ := sample(s, 1)
			t.Setenv(env(s.key), text)
			expect("variable", document, value)
			expect("variable over a broken group", groups[0]+": 5", value)
			if f := flagOf(set, s.key); f != nil {
				value, text, _ := sample(s, 2)
				if err := set.Set(f.Name, text); err != nil {
					t.Fatal(err)
				}
				expect("flag", document, value)
			}
		})
	}
}

func TestAVariableThatIsSetButEmpty(t *testing.T) {
	file := "http: {listen: '127.0.0.1:1', hosts: [a]}"
	t.Setenv("PENSTOCK_HTTP_LISTEN", "")
	t.Setenv("PENSTOCK_HTTP_HOSTS", "")
	c, err := Load(strings.NewReader(file), nil)
	if err != nil || c.HTTP.Listen != "" || len(c.HTTP.Hosts) > 0 {
		t.Errorf("got %+v, %v", c.HTTP, err)
	}
	t.Setenv("PENSTOCK_GRACE", "")
	t.Setenv("PENSTOCK_PRUNE", "")
	t.Setenv("PENSTOCK_NATS_REPLICAS", "")
	const want = `nats.replicas (PENSTOCK_NATS_REPLICAS): "": want a whole number
grace (PENSTOCK_GRACE): "": want a duration with a unit, such as 250ms, 30s, 5m, 1d or 1w
prune (PENSTOCK_PRUNE): "": want true or false`
	if _, err := Load(strings.NewReader(file), nil); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	t.Setenv("PENSTOCK_CONFIG", "")
	const empty = "PENSTOCK_CONFIG: is empty"
	if _, err := LoadFile(pflag.NewFlagSet("", 0)); err == nil || err.Error() != empty {
		t.Errorf("got %v, want %s", err, empty)
	}
}

func TestFilesInEveryForm(t *testing.T) {
	dir := t.TempDir()
	load := func(content string) (Config, error) {
		name := filepath.Join(dir, "penstock.yaml")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return loadNamed(t, name)
	}
	for name, content := range map[string]string{
		"CRLF": "nats:\r\n  replicas: 3\r\n  url: a\r\npolicies:\r\n" +
			"  - {name: a, algorithm: token_bucket, capacity: 2, refill: 1/s}\r\n",
		"a byte-order mark": "\ufeffnats: {replicas: 3, url: a}\npolicies:\n" +
			"- {name: a, algorithm: token_bucket, capacity: 2, refill: 1/s}\n",
		"quoted numbers": "nats: {replicas: \"3\", url: a}\npolicies:\n" +
			"- {name: a, algorithm: token_bucket, capacity: '2', refill: 1/s}\n",
		"anchors": "nats: {replicas: 3, url: a}\nshared_limits: []\npolicies:\n" +
			"- &p {name: a, algorithm: token_bucket, capacity: 2, refill: 1/s}\n",
		"JSON": "{\n\t\"nats\": {\"replicas\": 3, \"url\": \"\\u0061\"},\n\t\"policies\": [" +
			"{\"name\": \"a\", \"algorithm\": \"token_bucket\", \"capacity\": 2, " +
			"\"refill\": \"1\\/s\"}]}",
	} {
		c, err := load(content)
		if err != nil || c.NATS.Replicas != 3 || c.NATS.URL != "a" || len(c.Policies) != 1 ||
			c.Policies[0].Capacity != 2 || c.Policies[0].Refill.String() != "1/s" {
			t.Errorf("%s: got %+v, %v", name, c, err)
		}
	}
	var manyKeys strings.Builder
	for i := 0; manyKeys.Len() < 10<<20; i++ {
		fmt.Fprintf(&manyKeys, "a%d: 1\n", i)
	}
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		nine := strings.Repeat(fmt.Sprintf("*a%d, ", i), 9)
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, nine, i)
	}
	for content, problem := range map[string]string{
		laughs:                       "excessive aliasing",
		"grace: 10s\n---\ngrace: 5s": "contains more than one document",
		"nats:\n\tprefix: a":         "penstock.yaml:2: is not YAML: ",
		"grace: 1s\n# " + strings.Repeat("x", strict.MaxBytes):      "is larger than 16 MiB",
		"x: " + strings.Repeat("[", 300) + strings.Repeat("]", 300): "x[0][0][0]",
		manyKeys.String():                        "penstock.yaml:1: has too many fields",
		"? [a]\n: b":                             "want text as a field's name",
		"{\"grace\": \"1s\", \"grace\": \"2s\"}": "grace: is given twice",
	} {
		if _, err := load(content); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%.40q: got %v, want %s", content, err, problem)
		}
	}
	for _, content := range []string{"", "# " + strings.Repeat("x", 10<<20)} {
		if c, err := load(content); err != nil || c.NATS.Replicas != 1 {
			t.Errorf("%.10q: got %+v, %v", content, c, err)
		}
	}
	for _, name := range []string{dir, os.DevNull} {
		if _, err := loadNamed(t, name); err == nil ||
			err.Error() != "open configuration: "+name+" is not a regular file" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func loadNamed(t *testing.T, name string) (Config, error) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Flags(set)
	if err := set.Parse([]string{"--config", name}); err != nil {
		t.Fatal(err)
	}
	return LoadFile(set)
}
