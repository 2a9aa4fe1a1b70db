package store

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/policy"
)

// sharing is a policy that shares a limit of so many starts a second.
func sharing(name string, most int64) policy.Policy {
	p := paced(name, 10, 1)
	p.Limits = policy.Limits{{Shared: "account", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: most, Window: policy.Duration(time.Second)}}}
	return p
}

// A policy that names a shared limit has the one that the others have, whoever writes it. A file
// changes it for all that are in the file.
func TestASharedLimitIsOne(t *testing.T) {
	s, ctx := newStore(t), natstest.Context(t)
	file := File{Policies: []policy.Policy{sharing("import", 5), sharing("mail", 5)}}
	if _, err := s.PutFile(ctx, file); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "the shared limit account is another one "+
			"in policy import") {
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
