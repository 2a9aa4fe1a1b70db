package penstock_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-mq/penstock"
)

func TestPoliciesOfAFile(t *testing.T) {
	policies, err := penstock.LoadPolicies("deploy/quickstart.yaml")
	if err != nil || len(policies) != 6 || policies[0].Name != "demo" {
		t.Fatalf("%v, %v", policies, err)
	}
	p := open(t, penstock.Options{Policies: policies})
	if checked, err := p.Check(t.Context(), penstock.Request{Policy: "signup",
		Key: "203.0.113.7"}); err != nil || !checked.Allowed {
		t.Errorf("%+v, %v", checked, err)
	}
}

func TestAllMistakesOfAPoliciesFileAreReportedWithTheirLines(t *testing.T) {
	name := filepath.Join(t.TempDir(), "penstock.yaml")
	for text, want := range map[string]string{
		"http: {listen: anything}\npolicies:\n  - {name: A, algorithm: abacus}\n" +
			"  - {name: b, algorithm: leaking_bucket, outflow: 10/x, capacity: 1}\n": "" +
			name + ":3: policies[0].name: \"A\": want 1 to 32 characters of a-z, 0-9 and -\n" +
			name + ":3: policies[0].algorithm: \"abacus\": want token_bucket, leaking_bucket, " +
			"fixed_window, sliding_log or sliding_counter\n" +
			name + ":4: policies[1].outflow: \"10/x\": want a rate per s, m, h, d, w or " +
			"a duration such as 10s",
		"polices: []\n":   name + ":1: polices: unknown field; did you mean policies?",
		"policies: [\n":   name + ":1: is not YAML: did not find expected node content",
		"nats: {}\n":      name + ": policies: is missing",
		"policies: all\n": name + ":1: policies: \"all\": want a list",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := penstock.LoadPolicies(name); err == nil || err.Error() != want {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
	}
	if _, err := penstock.LoadPolicies(name + ".json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
