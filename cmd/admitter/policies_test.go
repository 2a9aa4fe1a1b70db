package main

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// rewrite replaces the policies and the following settings in a file of configure.
func rewrite(t *testing.T, file, more string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfterN(text, []byte("\n"), 3)
	if err := os.WriteFile(
		file, append(append(lines[0], lines[1]...), more...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A truncated file changes nothing. What left a file on purpose is the API's, or with prune closes,
// drains and goes.
func TestAPolicyThatLeavesItsFileStaysUntilPruned(t *testing.T) {
	t.Parallel()
	file := configure(t, policies)
	p := launch(t, "--config", file).ready()
	p.posts("/v1/jobs/stripe/acme", "pay", 202)
	p.stop()

	const rest = "policies: [{name: polite, algorithm: leaking_bucket, outflow: 5/s, capacity: " +
		"20, queue: false}]\n"
	rewrite(t, file, "prune: true\n"+rest)
	p = launch(t, "--config", file)
	if status := p.end(); status != 2 || !strings.Contains(p.Log.String(), "allow_shrink: true") {
		t.Errorf("a truncated file: ended with status %d:\n%s", status, p.Log)
	}
	rewrite(t, file, "allow_shrink: true\n"+rest)
	p = launch(t, "--config", file).ready()
	for _, path := range []string{"/v1/check/door/acme", "/v1/check/signup/acme"} {
		p.posts(path, "", 200)
	}
	if r := p.ask(http.MethodGet, "/v1/policies/door", ""); !strings.Contains(r.body,
		`"source":"api","set":"default"`) {
		t.Errorf("what left is %s", r.body)
	}
	if status := p.terminate(); status != 0 ||
		strings.Count(p.Log.String(), "policy left the file, and belongs to the API") != 5 {
		t.Errorf("ended with status %d and says nothing of some of the five policies:\n%s", status,
			p.Log)
	}

	rewrite(t, file, strings.TrimPrefix(policies, "\n"))
	launch(t, "--config", file).ready().stop()
	rewrite(t, file, "prune: true\nallow_shrink: true\n"+rest)
	p = launch(t, "--config", file).ready()
	p.says(`penstock_policies{state="draining"} 1`) // stripe, which holds a job
	p.says(`penstock_policies{state="ok"} 1`)
	p.posts("/v1/check/door/acme", "", 404)
	p.posts("/v1/jobs/stripe/acme", "pay", 404)
	nc, err := nats.Connect(p.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Request("$JS.API.STREAM.PURGE.PENSTOCK_stripe", nil,
		waittest.Patience()); err != nil {
		t.Fatal(err)
	}
	p.says(`penstock_policies{state="draining"} 0`)
	p.stop()
	for _, want := range []string{"level=WARN", "policy left the file, and is draining",
		"policy=stripe", "policy drained and gone"} {
		if !strings.Contains(p.Log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

// One such admitter retired 10 of 11 policies of the first within 3 s, and an unreadable record
// kept it from starting.
func TestAnAdmitterWithAnotherFileEndsNothing(t *testing.T) {
	t.Parallel()
	first := launch(t, "--config", configure(t, policies)).ready()
	nc, err := nats.Connect(first.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for name, record := range map[string]string{"nonsense": "{", "newer": `{"v":2,"policy":{}}`} {
		if _, err := nc.Request(
			"$KV.PENSTOCK_POLICIES."+name, []byte(record), waittest.Patience()); err != nil {
			t.Fatal(err)
		}
	}
	const other = "policies: [{name: mail, algorithm: leaking_bucket, outflow: 5/s, " +
		"capacity: 20}]\n"
	for head, want := range map[string]string{"": "allow_shrink: true",
		"set: mail\n": "remove it from one of them"} {
		text := head + other
		if head != "" {
			text = head + policies
		}
		second := launch(t, "--config", configure(t, text), "--nats-url", first.nats)
		if status := second.end(); status != 2 || !strings.Contains(second.Log.String(), want) {
			t.Errorf("%q ended with status %d:\n%s", head, status, second.Log)
		}
	}
	const mail = "set: mail\nprune: true\n" + other
	second := launch(t, "--config", configure(t, mail), "--nats-url", first.nats).ready()
	second.says(`penstock_policies{state="ok"} 7`)
	second.says(`penstock_policies{state="unreadable"} 2`)
	for _, path := range []string{"/v1/check/door/acme", "/v1/check/signup/acme"} {
		second.posts(path, "", 200)
	}
	if status := second.terminate(); status != 0 ||
		strings.Count(second.Log.String(), "unreadable record") != 2 {
		t.Errorf("ended with status %d:\n%s", status, second.Log)
	}
	// A lost record leaves an orphaned stream, until the policy is written again.
	if _, err := nc.Request("$JS.API.STREAM.PURGE.KV_PENSTOCK_POLICIES",
		[]byte(`{"filter":"$KV.PENSTOCK_POLICIES.stripe"}`),
		waittest.Patience()); err != nil {
		t.Fatal(err)
	}
	third := launch(t, "--config", configure(t, mail), "--nats-url", first.nats).ready()
	third.says(`penstock_policies{state="orphaned"} 1`)
	const again = `{"algorithm":"leaking_bucket","outflow":"1/m","capacity":3}`
	if r := third.ask(http.MethodPut, "/v1/policies/stripe", again); r.status != 201 {
		t.Errorf("written again: %+v", r)
	}
	third.says(`penstock_policies{state="orphaned"} 0`)
	if status := third.terminate(); status != 0 ||
		!strings.Contains(third.Log.String(), "stream=PENSTOCK_stripe") ||
		!strings.Contains(third.Log.String(), "readable again") {
		t.Errorf("ended with status %d:\n%s", status, third.Log)
	}
	if status := first.terminate(); status != 0 ||
		!strings.Contains(first.Log.String(), "level=ERROR") {
		t.Errorf("ended with status %d:\n%s", status, first.Log)
	}
}
