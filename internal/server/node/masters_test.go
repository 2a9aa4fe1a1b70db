package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func TestAllProcessesFollowAPolicyThatOneChanges(t *testing.T) {
	first := open(t, penstock.Options{Policies: []policy.Policy{door("signup")},
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}})
	run(t, first)
	changed := door("signup")
	changed.Limit = 7
	second := open(t, penstock.Options{Policies: []policy.Policy{changed, door("rewards")},
		URL: first.NATSURL()})
	eventually(t, "the first has not heard of the change", func() bool {
		set := first.Policies()
		return set["signup"].Policy.Limit == 7 && set["rewards"].Policy.Limit == 2
	})
	checked, err := first.Check(t.Context(), penstock.Request{Policy: "signup"})
	if err != nil || checked.Limit != 7 {
		t.Errorf("%+v, %v", checked, err)
	}

	changed.Limit = 9
	if err := second.Reload(t.Context(),
		penstock.Options{Policies: []policy.Policy{changed}}); err != nil {
		t.Fatal(err)
	}
	third := open(t, penstock.Options{Policies: []policy.Policy{changed}, URL: first.NATSURL()})
	if got := third.Policies()["signup"].Policy.Limit; got != 9 {
		t.Errorf("limit %d", got)
	}
}

func TestPoliciesOfAnotherSetAreRefused(t *testing.T) {
	first := open(t, penstock.Options{Policies: []policy.Policy{door("signup")},
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}})
	_, err := penstock.Open(t.Context(), penstock.Options{Policies: []policy.Policy{door("signup")},
		Set: "other",
		URL: first.NATSURL()})
	if err == nil || !strings.Contains(err.Error(), "set: default") {
		t.Errorf("got %v", err)
	}
	follower := open(t, penstock.Options{URL: first.NATSURL()})
	if checked, err := follower.Check(t.Context(),
		penstock.Request{Policy: "signup"}); err != nil || !checked.Allowed {
		t.Errorf("%+v, %v", checked, err)
	}
}

func TestAReloadOfBadPoliciesChangesNothing(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{door("signup")}})
	bad := door("signup")
	bad.Limit = -1
	if err := p.Reload(t.Context(), penstock.Options{Policies: []policy.Policy{door("new"),
		bad}}); err == nil {
		t.Error("taken")
	}
	if set := p.Policies(); len(set) != 1 || set["signup"].Policy.Limit != 2 {
		t.Errorf("policies %v", set)
	}
}

func TestAReloadEndsMissingPolicies(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{door("signup"), door("rewards")}})
	run(t, p)
	next := penstock.Options{Policies: []policy.Policy{door("signup")}, Prune: true}
	if err := p.Reload(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not gone", func() bool { return p.Policies()["rewards"] == nil })
	if p.Policies()["signup"].Draining {
		t.Error("the other one is draining")
	}
	next.Policies = []policy.Policy{}
	if err := p.Reload(t.Context(), next); err == nil ||
		!strings.Contains(err.Error(), "allow_shrink") {
		t.Errorf("an empty set: %v", err)
	}
}

func TestNoPolicyIsFoundByAnImpossibleName(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{door("signup")}})
	for _, name := range []string{"", "*", "%00", "signup.key", "Signup"} {
		for _, method := range []string{"GET", "PATCH", "DELETE"} {
			body := map[string]string{"PATCH": `{"limit":3}`}[method]
			status, answer := ask(t, p, method, "/v1/policies/"+name, body)
			if status != 404 {
				t.Errorf("%s of %q: %d %s", method, name, status, answer)
			}
		}
	}
}

// In an incident nobody is sent to the file for a slip of the finger.
func TestAMisspeltOverrideOfAFilesPolicyIsABadRequest(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{{Name: "mail", Rule: policy.Rule{
		Algorithm: policy.LeakingBucket, Outflow: penstock.MustRate("2/s"), Capacity: 10}}}})
	run(t, p)
	for patch, want := range map[string]struct {
		status int
		field  string
	}{
		`{"outflow":"NaN/s"}`:               {400, "outflow"},
		`{"outflow":"1/s","capacity":"20"}`: {400, "capacity"},
		`{"outflo":"1/s"}`:                  {400, "outflo"},
		`[]`:                                {400, ""},
		`{"outflow":"1/s","duplicate_window":"1s"}`: {409, ""},
	} {
		status, answer := ask(t, p, "PATCH", "/v1/policies/mail", patch)
		if status != want.status || !strings.Contains(answer, `"field":"`+want.field) &&
			want.field != "" {
			t.Errorf("%s: %d %s", patch, status, answer)
		}
	}
}

func TestPoliciesAreFollowedAfterAReload(t *testing.T) {
	slow := queue.SinkFunc(func(e queue.Event) {
		if e.Type == jet.EventFollowed {
			time.Sleep(50 * time.Millisecond)
		}
	})
	p := open(t, penstock.Options{Sink: slow})
	run(t, p)
	if err := p.Reload(t.Context(),
		penstock.Options{Policies: []policy.Policy{door("signup")}}); err != nil {
		t.Fatal(err)
	}
	if p.Policies()["signup"] == nil {
		t.Error("this process does not know the policy that it wrote")
	}
}

func TestReloadsBeforeRunDoNotWaitForIt(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1000, 10),
		paced("text", 1000, 10)}})
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for i := range 300 {
			err := p.Reload(ctx, penstock.Options{DrainPolicies: []string{
				[]string{"mail", "text"}[i%2]}})
			if err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	if err := waittest.Receive(t, ended); err != nil {
		t.Fatal(err)
	}
	started := make(chan string, 2)
	for _, name := range []string{"mail", "text"} {
		p.Handle(name, func(context.Context, workers.Job) error { started <- name; return nil })
		if _, err := p.Submit(t.Context(), penstock.Job{Policy: name}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, p)
	if name := waittest.Receive(t, started); name != "text" {
		t.Errorf("a job of %s started", name)
	}
}
