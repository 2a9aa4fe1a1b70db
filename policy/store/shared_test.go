package store

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/natstest"
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
	file := File{Policies: []policy.Policy{sharing("import", 5), sharing("mail", 5)}}
	if _, err := s.PutFile(ctx, file); err != nil {
		t.Fatal(err)
	}
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
	_, err = s.PutFile(ctx, File{Set: "others", Policies: []policy.Policy{sharing("other", 6)}})
	refused("another file", err)
	if _, err := s.Put(ctx, sharing("new", 5)); err != nil {
		t.Errorf("the same limit over the API: %v", err)
	}
	_, err = s.PutFile(ctx, File{Policies: []policy.Policy{sharing("import", 7),
		sharing("mail", 8), sharing("new", 7)}})
	refused("a file that says two things", err)
	file.Policies = []policy.Policy{sharing("import", 7), sharing("mail", 7), sharing("new", 7)}
	if _, err := s.PutFile(ctx, file); err != nil {
		t.Fatalf("the file changes it for all: %v", err)
	}
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
	s, ctx := newStore(t), natstest.Context(t)
	put := func(set, name string, most int64) FileResult {
		t.Helper()
		file := File{Set: set, Policies: []policy.Policy{sharing(name, most)}}
		result, err := s.PutFile(ctx, file)
		if err != nil {
			t.Fatalf("%s says %d: %v", set, most, err)
		}
		return result
	}
	put("one", "import", 5)
	put("two", "mail", 5)
	differs := func(result FileResult, want ...string) {
		t.Helper()
		if len(result.Differing) != 1 || len(result.Written) != 1 {
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
	if result := put("two", "mail", 7); len(result.Differing) > 0 || len(result.Written) != 1 {
		t.Errorf("both say the same: %+v", result)
	}
}
