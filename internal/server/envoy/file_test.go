package envoy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/server/envoy"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestMistakesAreReportedWithTheirLines(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                    {": domain: is missing"},
		"# nothing":                           {": domain: is missing"},
		"descriptors: []":                     {": domain: is missing"},
		"domain:\n":                           {":1: domain: is missing"},
		"[domain]":                            {":1: want fields, not a list"},
		"domain: a\n---\ndomain: b":           {": contains more than one document"},
		"domain: a\ndomain: b":                {":2: domain: is given twice, first in line 1"},
		"domain: [a":                          {":1: is not YAML"},
		"domain: a\ndescriptors: &l [*l]":     {": is not YAML", "contains itself"},
		"domain: a\ndescriptors: {key: b}":    {":2: descriptors: want a list"},
		"domain: a\ndescriptors:\n- b":        {":3: descriptors[0]: want fields, not text"},
		"domain: a\ndescriptors:\n- value: b": {":3: descriptors[0].key: is missing"},
		"domain: a\ndescriptors:\n- key: [b]": {":3: descriptors[0].key: want text"},
		"domain: a\ndescriptor:\n- key: b": {
			":2: descriptor: unknown field; did you mean descriptors?"},
		"domain: a\ndescriptors:\n- keys: b": {
			":3: descriptors[0].keys: unknown field; did you mean key?",
			":3: descriptors[0].key: is missing"},
		"domain: a\ndescriptors:\n- {<<: 5}\n": {": is not YAML", "map merge"},
		"domain: a\ndescriptors:\n- {key: b, value: c}\n- {key: b_c}": {
			":4: descriptors[1].key: a.b_c is defined twice"},
		"domain: a\ndescriptors:\n- {key: b, share_threshold: true}": {
			":3: descriptors[0].share_threshold: applies only to values with *"},
		"domain: a\ndescriptors:\n- {key: b, shadow_mode: perhaps}": {
			`:3: descriptors[0].shadow_mode: "perhaps": want true or false`},
		"domain: a\ndescriptors:\n- key: b\n  rate_limit: 5": {
			":4: descriptors[0].rate_limit: want fields, not a number"},
		"domain: a\ndescriptors:\n- key: b\n" +
			"  rate_limit: {unit: fortnight, requests_per_unit: -1}": {
			`:4: descriptors[0].rate_limit.unit: "fortnight": want second, minute`,
			":4: descriptors[0].rate_limit.requests_per_unit: -1: want a whole number from 0 to " +
				"4294967295"},
		"domain: a\ndescriptors:\n- key: b\n  rate_limit: {unit: second, unit_multiplier: 30}": {
			":4: descriptors[0].rate_limit.unit_multiplier: is not allowed in files"},
		"domain: a\ndescriptors:\n- key: b\n  rate_limit: {unlimited: true, unit: day}": {
			":4: descriptors[0].rate_limit.unit: cannot be combined with unlimited"},
		"domain: a\ndescriptors:\n- key: b\n  rate_limit:\n    name: n\n    unit: day\n" +
			"    replaces:\n    - name: n\n    - {}\n    - n": {
			":8: descriptors[0].rate_limit.replaces[0].name: n is the name of the limit itself",
			":9: descriptors[0].rate_limit.replaces[1].name: is missing",
			":10: descriptors[0].rate_limit.replaces[2]: want fields"},
		"domain: a.b\ndescriptors:\n- {key: c, rate_limit: {unit: day}}\n- key: d": {
			":3: descriptors[0].rate_limit: another limit has the name a.b.c in metrics"},
	} {
		dir := t.TempDir()
		first := write(t, dir, "first.yaml", "domain: a\ndescriptors:\n- key: b.c\n"+
			"  rate_limit: {unit: day, requests_per_unit: 1}\n")
		name := write(t, dir, "second.yaml", text)
		_, err := envoy.Load([]string{first, name})
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		for _, part := range want {
			if part[0] == ':' {
				part = name + part
			}
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v; want %s", text, err, part)
			}
		}
		if lines := strings.Count(err.Error(), "\n") + 1; !strings.Contains(want[0], "YAML") &&
			lines != len(want) {
			t.Errorf("%q: %v; want %d lines", text, err, len(want))
		}
	}
}

func TestMissingFilesAreReported(t *testing.T) {
	empty := t.TempDir()
	if _, err := envoy.Load([]string{empty}); err == nil ||
		!strings.Contains(err.Error(), "has no file that ends with .yaml or .yml") {
		t.Error(err)
	}
	if _, err := envoy.Load([]string{filepath.Join(empty, "none.yaml")}); err == nil {
		t.Error("it is accepted")
	}
	large := write(t, empty, "large.yaml", "domain: a #"+strings.Repeat(".", 16<<20))
	if _, err := envoy.Load([]string{large}); err == nil ||
		!strings.Contains(err.Error(), "is larger than 16 MiB") {
		t.Error(err)
	}
}

// A directory means its files, numbers are read as texts, and merged files count as one.
func TestADirectoryIsRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one.yaml", `
domain: edge
descriptors:
- &base {key: agent, value: 007, shadow_mode: yes, rate_limit: {unit: Day, requests_per_unit: 1_0}}
- {<<: *base, value: 1.50}
- {<<: [{value: true}, *base]}
`)
	write(t, dir, "two.yml", "domain: edge\ndescriptors:\n- key: agent\n")
	write(t, dir, "notes.txt", "no YAML: [")
	write(t, dir, ".former.yaml", "domain: [")
	c, err := envoy.Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"007", "1.50", "true"} {
		l, counted, _ := c.Find("edge", []*envoy.Entry{{Key: "agent", Value: value}})
		if l == nil || l.Rate.RequestsPerUnit != 10 || l.Rate.Unit.String() != "DAY" || !l.Shadow ||
			l.Path != "edge.agent_"+value || counted != "day:agent="+value {
			t.Errorf("%s: %+v, %q", value, l, counted)
		}
	}
	if l, _, _ := c.Find("edge", []*envoy.Entry{{Key: "agent", Value: "7"}}); l != nil {
		t.Errorf("7 is taken for %+v", l)
	}
	if len(c.Limits()) != 3 {
		t.Errorf("there are %d limits", len(c.Limits()))
	}
}

func TestCountersAreOneToOne(t *testing.T) {
	c, err := envoy.Load([]string{write(t, t.TempDir(), "f.yaml", `
domain: d
descriptors:
- key: a
  rate_limit: {unit: hour, requests_per_unit: 1}
  descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1000)
	seen := map[string]string{}
	for _, value := range []string{"", "x", "x&a=y", "x%26a%3Dy", "%", "=", ":", "é", "\xff",
		"\x00", long, long + "x"} {
		for _, entries := range [][]*envoy.Entry{{{Key: "a", Value: value}},
			{{Key: "a", Value: value}, {Key: "a", Value: "y"}},
			{{Key: "a", Value: "y"}, {Key: "a", Value: value}}} {
			l, counted, _ := c.Find("d", entries)
			if l == nil || counted == "" || len(counted) > 256 {
				t.Errorf("%q: %+v, %q", entries, l, counted)
			}
			if before, known := seen[counted]; known {
				t.Errorf("%q is counted with %s", entries, before)
			}
			seen[counted] = value
		}
	}
}
