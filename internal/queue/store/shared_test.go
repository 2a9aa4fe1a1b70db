package store

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/policy"
)

func sharing(name string, most int64) policy.Policy {
	p := paced(name, 10, 1)
	p.Limits = policy.Limits{{Shared: "account", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: most, Window: policy.Duration(time.Second)}}}
	return p
}

// A policy must name a shared limit with the same rule as the others. A file changes it for all of
// its policies.
func TestASharedLimitIsOne(t *testing.T) {
	s, ctx := newStore(t), natstest.Context(t)
	if _, err := s.Put(ctx, sharing("mail", 5)); err != nil {
		t.Fatal(err)
	}
	load(t, s, "", sharing("import", 5))
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "the shared limit account of policy "+
			"import "+
			"is") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Put(ctx, sharing("mail", 6))
	refused("another limit over the API", err)
	_, err = s.Put(ctx, sharing("new", 6))
	refused("a new policy over the API", err)
	_, err = s.Replace(ctx, Set{Name: "others", Policies: []policy.Policy{sharing("other", 6)}})
	refused("another file", err)
	if _, err := s.Put(ctx, sharing("new", 5)); err != nil {
		t.Errorf("the same limit over the API: %v", err)
	}
	_, err = s.Replace(ctx, Set{Policies: []policy.Policy{sharing("import", 7),
		sharing("text", 8)}})
	refused("a file that says two things", err)
	for _, name := range []string{"mail", "new"} {
		end(t, s, name)
	}
	load(t, s, "", sharing("import", 7), sharing("mail", 7), sharing("new", 7))
	set, err := s.Policies(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, entry := range set {
		if got := entry.Policy.Limits[0]; got.Limit != 7 || got.Shared != "account" {
			t.Errorf("%s has %+v", name, got)
		}
	}
}

// Two files change a shared limit one after the other. No change waits, and while they differ each
// load reports both versions.
func TestTwoFilesChangeALimitThatTheyShare(t *testing.T) {
	s := newStore(t)
	put := func(set, name string, most int64) Replaced {
		t.Helper()
		return load(t, s, set, sharing(name, most))
	}
	put("one", "import", 5)
	put("two", "mail", 5)
	differs := func(result Replaced, want ...string) {
		t.Helper()
		if len(result.Differing) != 1 || len(result.Changes) != 1 {
			t.Fatalf("%+v", result)
		}
		for _, part := range want {
			if text := result.Differing[0].Error(); !strings.Contains(text, part) {
				t.Errorf("%q does not say %q", text, part)
			}
		}
	}
	differs(put("one", "import", 7), "policy import", `policy mail is {"algorithm":"sliding_log",`+
		`"limit":5,"window":"1s"}, and here it is {"algorithm":"sliding_log","limit":7,"window":"1s"}`,
		`policy mail is of the set "two"`)
	differs(put("two", "mail", 9), "policy mail")
	if result := put("two", "mail", 7); len(result.Differing) > 0 || len(result.Changes) != 1 {
		t.Errorf("both say the same: %+v", result)
	}
}
