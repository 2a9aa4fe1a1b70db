package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/workers"
)

func TestAJobIsSubmittedExplainedAndSteered(t *testing.T) {
	i := install(t, `
  - {name: slow, algorithm: leaking_bucket, outflow: 1/h, capacity: 5, target: {http: {url: `+
		newTarget(t, 200).URL+`}}}
  - {name: other, algorithm: leaking_bucket, outflow: 1/h, capacity: 5}
`, "--drain")
	i.Until("slow", "drainers")
	i.Until("allowed slow:1", "submit", "slow", `{"to":"ann"}`, "--key", "a b", "--id", "first")
	i.Says(0, words("submit slow {} --key=big --wait=1m"),
		"slow:2 is done, its target answered 200")
	i.Until("a b of slow holds no jobs; a job accepted now would start in", "why", "slow",
		"--key", "a b")
	i.Says(0, words("submit slow second --key big"), "queued slow:3, starts in ")
	i.Says(0, words("submit slow again --id=x --key=big"), "queued slow:4")
	i.Says(0, words("submit slow again --id=x --key=big"), "slow:4: a repeat")
	i.Says(2, words("submit slow other --id=x --key=big"), "different body")

	var j map[string]any
	i.Document(0, &j, "job", "slow:4")
	if j["job"] != "slow:4" || j["key"] != "big" || j["state"] != "waiting" ||
		j["position"] != 1.0 {
		t.Errorf("the job is %v", j)
	}
	i.Says(0, words("job slow:4"), "before it", "blocked by", "5 bytes")
	i.Says(0, words("why slow:4"),
		"slow:4 of big waits for its turn: 1 ahead of it at 1/h, starts in")
	i.Says(0, words("buckets slow"), "KEY", "big", "rate until")
	i.Says(0, words("buckets"), "POLICY", "slow    big")
	i.Document(0, &j, "buckets", "slow", "--limit", "1")
	if j["total"] != 1.0 {
		t.Errorf("the buckets are %v", j)
	}

	i.Says(0, words("rate slow 5/h --key big"), "big of slow changed: outflow the policy's → 5/h")
	i.Until("1 ahead of it at 5/h", "why", "slow:4")
	i.Says(0, words("rate slow default --key big"), "outflow 5/h → the policy's")
	i.Says(0, words("rate other 2/h --dry-run"), "other would be changed: outflow 1/h → 2/h")
	i.Says(0, words("rate other 2/h --peak 3/h"), "other changed: outflow 1/h → 2/h, peak")
	i.Says(0, words("submit other x"), "other:1")
	i.Until("other is overridden: file: 1/h, peak none, now 2/h, peak 3/h by 127.0.0.1", "why",
		"other:1")
	i.Until("\nother is overridden", "why", "other")
	i.Run(0, "rate", "other", "2/h", "--for", "1h", "--because", "their incident")
	i.Says(0, words("policies ls"), "now 2/h by 127.0.0.1, 1h left: their incident")
	i.Says(0, words("policies show other"), "outflow: 1/h", "# overridden: file: 1/h, now 2/h")
	i.Says(0, words("policies override other concurrency=2"), "concurrency none → 2")
	i.Says(2, words("policies override other concurrency"), "want FIELD=VALUE")
	i.Says(0, words("policies restore other"), "other restored: outflow 2/h → 1/h")
	i.Says(6, words("policies take other"), "comes from the file of set default")
	i.Says(0, words("policies release other"), "other belongs to the API")
	i.Says(0, words("policies take other"), "other can be taken by the file")
	i.Says(0, words("policies ls"), "api, not in file default")
	i.Says(2, words("rate other 2/h --key a --for 1h"), "none of the others can be")
	i.Says(2, words("rate slow fast"), "want a rate such as")
	i.Says(0, words("submit other y --key c --tag nightly"), "other:2")
	i.Says(0, words("cancel other --tag nightly --key a"), "0 jobs with the tag nightly cancelled")
	i.Says(0, words("cancel other --tag nightly"),
		"other: 1 job with the tag nightly cancelled, 0 left running")

	i.Says(0, words("pause slow --key big"), "big of slow is paused")
	i.Until("an operator paused the bucket; 1 ahead of it; "+
		"penstock resume slow --key big ends that", "why",
		"slow:4")
	i.Says(0, words("resume slow --key big"), "big of slow is resumed")
	i.Says(0, words("pause slow"), "slow is paused")
	i.Until("an operator paused the policy; penstock resume slow ends that", "why", "slow")
	i.Says(0, words("policies ls"), "paused  file default")
	i.Says(0, words("resume slow"), "slow is resumed")

	i.Says(0, words("submit slow x --key big --wait 20ms"), "queued slow:5, starts in",
		"; it has not ended within 20ms: penstock why slow:5")
	i.Says(0, words("submit slow x --key big"), "queued slow:6")
	i.Says(0, words("submit slow x --key big"), "queued slow:7")
	i.Says(3, words("submit slow x --key big"), "refused, retry in")
	i.Says(3, words("submit slow x --key big --wait 1ms"), "refused, retry in")
	i.Until("big of slow holds 5 of 5 jobs and is full, so new ones are refused", "why", "slow",
		"-k", "big")
	i.Document(3, &j, "submit", "slow", "x", "--key", "big")
	if j["status"] != 429.0 || j["verdict"] != "rejected" {
		t.Errorf("the refusal is %v", j)
	}

	i.Says(0, words("cancel slow:4"), "cancelled slow:4 of big")
	i.Says(0, words("why slow:4"), "slow:4 is cancelled")
	i.Says(4, words("cancel slow:999"), "has finished or never existed")
	i.Says(4, words("why slow:2"), "slow:2 has finished or never existed; ended jobs are kept "+
		"for the policy's result_retention")
	i.Says(2, words("purge slow"), "want --key")
	i.Says(0, words("purge slow --key big"), "big of slow: 4 jobs dropped")
	i.Until("big of slow holds no jobs", "why", "slow", "--key", "big")
	i.Says(0, words("why slow"), "slow holds no jobs and no calls; --key KEY says when")
}

func TestProgressAndResultsOfAWorkerAreShown(t *testing.T) {
	i := install(t, "  - {name: mail, algorithm: leaking_bucket, outflow: 100/s, capacity: 99, "+
		"result_retention: 1h}\n", "--drain")
	nc, err := nats.Connect(i.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	d, err := workers.New(nc, workers.Options{WorkerOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	d.Handle("mail", func(ctx context.Context, j workers.Job) error {
		j.Progress("40 %")
		select {
		case <-release:
		case <-ctx.Done():
		}
		j.Reply(0, nil, append([]byte("sent to "), j.Body...))
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	i.Says(0, words("submit mail ann"), " mail:1")
	i.Until("mail:1 runs now: 40 %", "why", "mail:1")
	i.Says(0, words("job mail:1"), "progress", "40 %")
	i.Until(", running: 40 %; it has not ended within 300ms: penstock why mail:",
		words("submit mail bob --wait 300ms")...)
	close(release)
	i.Says(0, words("submit mail eve --wait 1m"), " is done\nsent to eve")
	i.Until("sent to ann", "job", "mail:1")
	i.Says(0, words("history mail"), "sent to ann", "sent to eve")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAPauseIsExplainedInAnEmptyBucket(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Remaining", "0")
		w.Header().Set("RateLimit-Reset", "600")
	}))
	defer target.Close()
	i := install(t, "  - {name: api, algorithm: leaking_bucket, outflow: 9/s, capacity: 5, "+
		"target: {http: {url: "+target.URL+"}}}\n", "--drain")
	i.Says(0, words("submit api x --key a --wait 1m"), "is done")
	i.Until("a of api holds no jobs: the target asked for a pause, which ends in", "why", "api",
		"--key", "a")
}

// One call has started, and two wait until it ends.
func TestCallsAreExplainedBesideJobs(t *testing.T) {
	i := install(t, "  - {name: api, algorithm: leaking_bucket, outflow: 1/s, capacity: 5, "+
		"concurrency: 1}\n", "--drain")
	i.Until("api", "drainers")
	for range 3 {
		go func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				i.server+"/v1/permits/api/a?wait=5m", nil)
			if err != nil {
				return
			}
			if a, err := http.DefaultClient.Do(r); err == nil {
				a.Body.Close()
			}
		}()
	}
	const all = "the bucket a of api holds no jobs and 3 calls (2 waiting, 1 running)"
	i.Until(all, "why", "api", "--key", "a")
	i.Says(0, words("why api"), all+": its bucket runs its maximum number of jobs (1)")
	i.Says(0, words("submit api x --key a"), "api:1")
	i.Until("api:1 of a waits: its bucket runs its maximum number of jobs (1); it is next, "+
		"along with 2 calls", "why", "api:1")
	i.Says(0, words("job api:1"), "calls in its bucket")
	var page struct {
		Buckets []struct{ Calls, Depth, Running int }
	}
	i.Document(0, &page, "buckets", "api")
	if len(page.Buckets) != 1 || page.Buckets[0].Calls != 2 || page.Buckets[0].Depth != 1 {
		t.Errorf("the buckets are %v", page)
	}
}

func TestTheExitStatusOfCheck(t *testing.T) {
	i := install(t, "  - {name: signup, algorithm: fixed_window, limit: 2, window: 1d}\n"+
		"  - {name: mail, algorithm: leaking_bucket, outflow: 1/s, capacity: 1}\n")
	i.Says(0, words("check signup --key ann"), "allowed, 1 of 2 remain")
	i.Says(0, words("check signup --key ann --peek"), "allowed, 1 of 2 remain")
	i.Says(3, words("check signup --key ann --cost 2"), "refused, retry in")
	i.Run(0, words("check signup --key ann --refund")...)
	i.Says(0, words("check signup --key ann --cost 2"), "allowed, 0 of 2 remain")
	i.Says(2, words("check signup --cost 3"), "[400]")
	i.Says(2, words("check signup --peek --refund"), "none of the others can be")
	i.Says(6, words("check mail"), "[409]")
	var c map[string]any
	i.Document(3, &c, "check", "signup", "--key", "ann")
	if c["allowed"] != false || c["limit"] != 2.0 {
		t.Errorf("the answer is %v", c)
	}
}

func TestWhyExplainsAJob(t *testing.T) {
	bad, down := newTarget(t, 422), newTarget(t, 500)
	i := install(t, `
  - {name: alone, algorithm: leaking_bucket, outflow: 100/s, capacity: 100}
  - {name: bad, algorithm: leaking_bucket, outflow: 100/s, capacity: 100, target: {http: {url: `+
		bad.URL+`}}}
  - {name: down, algorithm: leaking_bucket, outflow: 100/s, capacity: 100,
     retry: {backoff: 1h, max_backoff: 1h}, target: {http: {url: `+down.URL+`}}}
`, "--drain")
	i.Run(0, words("submit alone x")...)
	i.Until("policy alone has neither a target nor a running worker", "why", "alone:1")
	i.Run(0, words("submit down x --not-before 1h")...)
	i.Until("is not due yet: it starts in", "why", "down:1")
	i.Run(0, words("submit down x --key first")...)
	i.Until("has failed 1 time and is retried in", "why", "down:2")
	for range 4 {
		i.Run(0, words("submit down x --key first")...)
	}
	waittest.Until(t, "the target is found down", func() bool { return len(down.got()) == 5 })
	i.Run(0, words("submit down x --key first")...)
	i.Until("the target is down; one job at a time probes it, without counting attempts, the "+
		"next in", "why", "down",
		"--key", "first")
	i.Run(0, words("resume down --key first")...)
	waittest.Until(t, "resume probes the target", func() bool { return len(down.got()) == 6 })
	i.Run(0, words("submit bad x --key ann")...)
	i.Until("bad:1 of ann is dead: its target or handler rejected it permanently, after "+
		"1 attempt: target answered 422: so it is; penstock dead replay bad 1 retries it",
		"why", "bad:1")
	i.Says(4, words("why bad:77"), "has finished or never existed")
	i.Says(4, words("why bed"), "unknown policy: \"bed\" [404]; did you mean bad?")
	i.Says(2, words("why bad:1 --key x"), "--key requires a POLICY")
	var r map[string]any
	i.Document(0, &r, "why", "bad:1")
	if r["job"] != "bad:1" || r["policy"] != "bad" || r["state"] != "dead" || r["why"] == nil {
		t.Errorf("why --json is %v", r)
	}
	i.Says(0, words("drainers"), "alive", "0 of 64", "remote workers", "partition 0")
}

func TestWhyReportsAMissingDrainer(t *testing.T) {
	i := install(t, "  - {name: mail, algorithm: leaking_bucket, outflow: 1/s, capacity: 9}\n")
	i.Says(0, words("submit mail x --key ann"), "queued mail:1")
	i.Says(0, words("why mail:1"), "is stored and waits: no drainer answers for its partition; "+
		"start drainer, or admitter --drain")
	i.Says(0, words("why mail"), "no drainer answers for partition 0 of mail; its jobs start "+
		"when one runs: drainer, or admitter --drain")
	i.Says(0, words("why mail --key ann"), "holds 1 of 9 jobs: no drainer answers")
	i.Says(0, words("drainers"), "no drainer holds a lease")
	i.Says(0, words("buckets mail"), "no drainer answered for partition 0")
	i.Says(0, words("buckets"), "no drainer answered for partition 0 of mail")
	i.Says(2, words("buckets --key x"), "require a POLICY")
	i.Says(2, words("buckets mail --by age"), "no POLICY")
	i.Says(2, words("buckets --by agee"), "did you mean age?")
	i.Says(0, []string{"__complete", "buckets", "--by", ""}, "refused")

	i.Says(0, words("buckets --by refused"), "counted for")
	for i.Feed("", "submit", "mail", "x", "--key", "full").Status == 0 {
	}
	i.Says(0, words("buckets --by refused"), "REFUSED", "full", "no_drainer")
}

func TestDeadLettersAreReadReplayedAndDropped(t *testing.T) {
	i := install(t, `
  - {name: bad, algorithm: leaking_bucket, outflow: 100/s, capacity: 100, target: {http: {url: `+
		newTarget(t, 422).URL+`}}}
`, "--drain")
	for range 3 {
		i.Run(0, "submit", "bad", "a \x1b[31mred\x1b[0m word", "--key", "ann\x07")
	}
	i.Until("\n3  ", "dead", "ls", "bad")
	i.Says(0, words("dead ls"), "POLICY", "bad     3  ")
	i.Says(2, words("dead ls bad --after 1 more"), "2 arguments")
	i.Says(0, words("dead ls bad"), "permanent", "target answered 422", `"ann\a"`)
	i.Says(0, words("dead ls bad --limit 2"), "more with --after 2")
	i.Says(0, words("dead show bad 1"), "reason", `"a \x1b[31mred\x1b[0m word"`)
	if out := i.Run(0, words("dead show bad 1")...); strings.ContainsAny(out, "\x1b\x07") {
		t.Errorf("a terminal would obey %q", out)
	}
	var l map[string]any
	i.Document(0, &l, "dead", "show", "bad", "1")
	if l["reason"] != "permanent" || l["body"] != "a \x1b[31mred\x1b[0m word" {
		t.Errorf("the letter is %v", l)
	}
	i.Says(0, words("dead replay bad 1"), "dead letter 1 is bad:4 again")
	i.Until("\n4  ", "dead", "ls", "bad")
	i.Says(0, words("dead drop bad 4"), "1 dead letter dropped")
	i.Says(4, words("dead show bad 4"), "no dead letter 4")
	i.Says(0, words("dead drop bad --through 2"), "1 dead letter dropped")
	i.Says(0, words("dead replay bad --all"), "1 replayed")
	i.Until("\n5  ", "dead", "ls", "bad")
	i.Says(0, words("dead drop bad --all"), "1 dead letter dropped")
	i.Says(2, words("dead drop bad"), "penstock: want the id of a dead letter, or --all")
	i.Says(2, words("dead drop bad 1 --all"), "want either")
	i.Says(2, words("dead show bad one"), "want the number")
	i.Says(2, words("dead lss bad"), "did you mean ls?")
	i.Says(4, words("dead ls bed"), "did you mean bad?")
}

func TestPoliciesAreListedShownAndApplied(t *testing.T) {
	i := install(t, `
  - {name: mail, algorithm: leaking_bucket, outflow: 5/s, capacity: 10}
  - {name: signup, algorithm: fixed_window, limit: 10, window: 1d}
`)
	i.Says(0, words("policies ls"),
		"mail    leaking_bucket  5/s       10        active  file default", "10 in 1d")
	i.Says(0, words("policies show mail"), "# active, revision", "name: mail\n", "outflow: 5/s\n",
		"    max_attempts: 25\n")
	var all struct {
		Policies []struct{ Policy struct{ Name string } }
	}
	i.Document(0, &all, "policies", "ls")
	if len(all.Policies) != 2 || all.Policies[0].Policy.Name != "mail" {
		t.Errorf("the policies are %v", all)
	}

	apply := func(status int, text string, args ...string) string {
		t.Helper()
		r := i.Feed(text, append([]string{"policies", "apply", "-"}, args...)...)
		if r.Status != status {
			t.Fatalf("status %d, want %d: %s%s", r.Status, status, r.Out, r.Err)
		}
		return r.Out + r.Err
	}
	const file = `
policies:
  - {name: mail, algorithm: leaking_bucket, outflow: 7/s, capacity: 10}
  - {name: new, algorithm: token_bucket, capacity: 2, refill: 2/s}
`
	for n, c := range []struct {
		status int
		text   string
		args   []string
		want   string
	}{
		{6, file, nil, "penstock: mail: conflict with the policy: policy mail comes from the file"},
		{0, file, []string{"--dry-run"},
			"mail would be changed: outflow 5/s → 7/s\nnew would be unchanged\n"},
		{0, file, nil, "mail changed: outflow 5/s → 7/s\nnew unchanged\n"},
		{0, file, nil, "mail unchanged\nnew unchanged\n"},
		{0, `{"name":"mail","algorithm":"leaking_bucket","outflow":"8/s","capacity":10}`, nil,
			"mail changed: outflow 7/s → 8/s\n"},
		{2, "policies: [{name: x, algorithm: leaking_bucket, outflow: 9, capasity: 4}]", nil,
			"line 1: policies[0].outflow: "},
		{2, "policies: [{algorithm: leaking_bucket}]", nil, "policies[0].name: is required"},
		{2, "http: {listen: x}", nil, `want a list "policies", or one policy`},
		{2, "a: [", nil, "is not YAML"},
		{2, "policies: {name: mail}", nil, "policies: want a list, not fields"},
		{6, "{name: mail, algorithm: token_bucket, capacity: 2, refill: 2/s}", nil,
			"\npenstock: mail: queue: cannot be removed"},
		{6, strings.NewReplacer("leaking_bucket, outflow: 7/s", "token_bucket, refill: 2/s",
			"refill: 2/s}", "refill: 3/s}").Replace(file), nil, "new changed: refill 2/s → 3/s\n"},
	} {
		if out := apply(c.status, c.text, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("apply says\n%s\nwant %q", out, c.want)
		}
		if n == 0 {
			i.Says(0, words("policies release mail"), "belongs to the API")
		}
	}
	i.Says(0, words("audit"), "file of set default", "policy written through the API",
		"127.0.0.1", "outflow 7/s → 8/s", "algorithm token_bucket")
	i.Says(0, words("audit mail -n 1"), "outflow 7/s → 8/s")
	i.Says(0, words("audit none"), "no changes")
	i.Says(2, words("policies apply /nowhere"), "no such file")
	i.Says(4, words("policies show mial"), `unknown policy: "mial"`)
}

func TestAShellCompletesCommandsAndPolicies(t *testing.T) {
	i := install(t, "  - {name: mail, algorithm: leaking_bucket, outflow: 5/s, capacity: 10}\n")
	for _, shell := range words("bash zsh fish powershell") {
		i.Says(0, words("completion "+shell), "penstock")
	}
	i.Says(0, words("__complete pause m"), "mail\n")
	i.Says(0, words("__complete pol"), "policies\t")
	i.Says(0, words("version"), "penstock ")
	pages := t.TempDir()
	i.Run(0, "man", pages)
	if text, err := os.ReadFile(filepath.Join(pages, "penstock-dead-ls.1")); err != nil ||
		!strings.Contains(string(text), "dead letters, oldest first") {
		t.Errorf("a manual page is %s, %v", text, err)
	}
	i.Says(0, words("--help"), "Exit status:", "PENSTOCK_TOKEN")
}

func TestPoliciesAreAppliedWithTheirSharedLimits(t *testing.T) {
	i := install(t, "  - {name: other, algorithm: leaking_bucket, outflow: 1/s, capacity: 9}\n",
		"--drain")
	file := `shared_limits: [{name: account, algorithm: sliding_log, limit: 5, window: 1s}]
policies:
  - {name: mail, algorithm: leaking_bucket, capacity: 9, limits: [{shared: account}]}
  - {name: push, algorithm: leaking_bucket, outflow: 3/s, capacity: 9, limits: [{shared: account}]}
`
	i.Run(0, "policies", "apply", write(t, file))
	i.Says(0, words("policies show push --json"), `"shared":"account"`, `"limit":5`)
	i.Says(0, words("policies ls"), "3/s, 1 limit")
	i.Until("limit account", "drainers")
	i.Says(2, []string{"policies", "apply", write(t,
		strings.Replace(file, "shared: account", "shared: acount", 1))}, "did you mean account?")
}
