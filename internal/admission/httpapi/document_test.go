package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
)

func (i *installation) send(method, path, body string,
	fields ...string) (status int, tag, answer string) {
	i.t.Helper()
	response, answer := i.do(method, path, body, fields...)
	return response.StatusCode, response.Header.Get("ETag"), answer
}

func (i *installation) want(status int, parts []string, method, path, body string,
	fields ...string) (tag string) {
	i.t.Helper()
	got, tag, answer := i.send(method, path, body, fields...)
	if got != status {
		i.t.Errorf("%s %s %s %q: %d %s, want %d", method, path, body, fields, got, answer, status)
	}
	for _, part := range parts {
		if !strings.Contains(answer, part) {
			i.t.Errorf("%s %s %s: %s, without %s", method, path, body, answer, part)
		}
	}
	return tag
}

func TestTheListOfPoliciesHasAnETag(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	tag := i.want(200, nil, "GET", "/v1/policies", "")
	if again := i.want(304, nil, "GET", "/v1/policies", "", "If-None-Match", tag); again != tag {
		t.Errorf("the list's tag is %q, and was %q", again, tag)
	}
	i.expect("POST", "/v1/pause/stripe", "", 200)
	i.want(200, []string{`"paused":true`}, "GET", "/v1/policies", "", "If-None-Match", tag)
}

func TestTwoRacingCreatesAreOneCreation(t *testing.T) {
	i := install(t, manage.Options{})
	for round := range 10 {
		var created, replaced atomic.Int64
		var racing sync.WaitGroup
		for n := range 4 {
			racing.Go(func() {
				body := fmt.Sprintf(
					`{"algorithm":"leaking_bucket","outflow":"96/s","capacity":%d,"partitions":4}`,
					10+n/2)
				switch status, _, answer := i.send("PUT", fmt.Sprint("/v1/policies/p", round),
					body); status {
				case 201:
					created.Add(1)
				case 200:
					replaced.Add(1)
				default:
					t.Errorf("%d %s", status, answer)
				}
			})
		}
		racing.Wait()
		if created.Load() != 1 || replaced.Load() != 3 {
			t.Errorf("created %d times, replaced %d times", created.Load(), replaced.Load())
		}
	}
}

func TestADrainingPolicyDoesNotComeBackSmallerThanItsBuckets(t *testing.T) {
	i := install(t, manage.Options{})
	i.want(201, nil, "PUT", "/v1/policies/stripe", stripe)
	i.publish("stripe", "acme", nil)
	i.publish("stripe", "acme", nil)
	i.drain("stripe")
	smaller := strings.Replace(stripe, `y":2`, `y":1`, 1)
	i.want(409, []string{`capacity 1 is too low: bucket \"acme\" holds 2 jobs`}, "PUT",
		"/v1/policies/stripe", smaller)
	i.want(409, []string{`is draining`}, "PATCH", "/v1/policies/stripe", `{"workers":5}`)
	i.want(200, []string{`"state":"draining"`, `"capacity":2`}, "GET", "/v1/policies/stripe", "")
	i.want(200, []string{`"state":"live"`, `"capacity":2`}, "PUT", "/v1/policies/stripe", stripe)
	i.publish("stripe", "other", nil)
}

func (i *installation) drain(name string) {
	i.t.Helper()
	entry, err := store.New(i.broker, nil).Policy(i.t.Context(), name)
	if err != nil {
		i.t.Fatal(err)
	}
	record, err := json.Marshal(map[string]any{"v": 1, "policy": entry.Policy, "source": "api",
		"draining": true})
	if err != nil {
		i.t.Fatal(err)
	}
	if _, err := i.broker.Conn().Request("$KV.PENSTOCK_POLICIES."+name, record,
		waittest.Patience()); err != nil {
		i.t.Fatal(err)
	}
	if gone, err := i.broker.Retire(i.t.Context(), name); err != nil || gone {
		i.t.Fatalf("draining: gone %t, %v", gone, err)
	}
}

func TestAPatchChangesOnlyWhatItNames(t *testing.T) {
	i := install(t, manage.Options{})
	i.want(404, nil, "PATCH", "/v1/policies/stripe", `{"workers":5}`)
	i.want(201, nil, "PUT", "/v1/policies/stripe",
		`{"algorithm":"leaking_bucket","outflow":"20/s","capacity":50,`+
			`"partitions":4,"workers":32,"target":{"http":{"url":"http://127.0.0.1:1"}},"retry":{"max_attempts":7}}`)
	i.want(200,
		[]string{`"outflow":"50/s"`, `"workers":32`, `"max_attempts":7`,
			`"changed":["outflow 20/s → 50/s"]`},
		"PATCH", "/v1/policies/stripe", `{"outflow":"50/s"}`, "Content-Type",
		"application/merge-patch+json")
	i.want(200,
		[]string{`"max_attempts":7`, `"backoff":"3s"`,
			`"changed":["workers 32 → 64","retry.backoff 1s → 3s"]`},
		"PATCH", "/v1/policies/stripe", `{"workers":null,"retry":{"backoff":"3s"}}`)
	i.want(200, []string{`"target":{"nats":{"subject":"svc"}}`}, "PATCH", "/v1/policies/stripe",
		`{"policy":{"target":{"http":null,"nats":{"subject":"svc"}}}}`)
	i.want(200, []string{`"changed":["capacity 50 → 60","workers 64 → 5"`}, "PUT",
		"/v1/policies/stripe",
		`{"algorithm":"leaking_bucket","outflow":"50/s","capacity":60,"partitions":4,"workers":5}`)
	for _, c := range []struct {
		status     int
		patch, say string
	}{
		{400, `{"capasity":5}`, `"field":"capasity"`},
		{400, `{"workers":3,"workers":4}`, `is given twice`},
		{400, `{"workers":0}`, `"field":"workers"`},
		{400, `[{"op":"replace","path":"/workers","value":5}]`, `want fields, not a list`},
		{400, `{"outflow":null}`, `"field":"outflow","reason":"is required by leaking_bucket"`},
		{400, `{"name":"other"}`, `"field":"name"`},
		{409, `{"partitions":8}`, `"field":"partitions"`},
		{409, `{"policy":{"workers":7},"paused":true}`, `/v1/pause`},
		{400, `{"policy":{"workers":7},"policy":{"workers":8}}`, `is given twice`},
	} {
		i.want(c.status, []string{c.say}, "PATCH", "/v1/policies/stripe", c.patch)
	}
	i.broker.Refuse(errors.New("the disk is full"))
	i.want(507, []string{`"reason":"storage"`}, "PATCH", "/v1/policies/stripe", `{"workers":6}`)
	i.want(200, nil, "GET", "/v1/policies/stripe", "")
	i.broker.Refuse(nil)
	i.want(415, []string{`merge-patch+json`}, "PATCH", "/v1/policies/stripe", `[]`, "Content-Type",
		"application/json-patch+json")

	const keys = "/v1/policies/stripe/keys/acme"
	i.want(200, []string{`"override":{"outflow":"5/s"}`}, "PATCH", keys, `{"outflow":"5/s"}`)
	i.want(200,
		[]string{`"override":{"outflow":"5/s","concurrency":2}`,
			`"changed":["concurrency the policy's → 2"]`}, "PATCH", keys,
		`{"override":{"concurrency":2}}`)
	i.want(200, []string{`"override":{"concurrency":2}`}, "PATCH", keys, `{"outflow":null}`)
	i.want(400, []string{`"field":"burst"`}, "PATCH", keys, `{"burst":1000}`)
	i.want(200, []string{`"override":{}`}, "PATCH", keys, `{"concurrency":null}`)
	i.want(404, nil, "GET", keys, "")
}

func TestIfMatch(t *testing.T) {
	i := install(t, manage.Options{})
	const path = "/v1/policies/stripe"
	i.want(412, []string{`it does not exist`}, "PUT", path, stripe, "If-Match", "*")
	first := i.want(201, nil, "PUT", path, stripe, "If-None-Match", "*")
	i.want(412, []string{`precondition failed`}, "PUT", path, stripe, "If-None-Match", "*")
	if again := i.want(200, nil, "GET", path, ""); again != first || len(first) < 3 ||
		first[0] != '"' {
		t.Errorf("tags %s and %s", first, again)
	}
	i.want(304, nil, "GET", path, "", "If-None-Match", `"0", W/`+first)
	second := i.want(200, nil, "PATCH", path, `{"workers":5}`, "If-Match", `"0", `+first)
	if second == first {
		t.Errorf("tag %s stays", first)
	}
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		body := map[string]string{"PUT": stripe, "PATCH": `{"workers":6}`}[method]
		i.want(412, []string{`the revision is ` + strings.Trim(second, `"`)}, method,
			path, body, "If-Match", first)
		i.want(412, nil, method, path, body, "If-Match", "W/"+second)
		i.want(400, []string{`"field":"If-Match"`}, method, path, body, "If-Match",
			strings.Trim(second, `"`))
	}
	i.want(200, []string{`"workers":5`}, "GET", path, "")

	const key = path + "/keys/acme"
	i.want(412, nil, "PUT", key, `{"concurrency":1}`, "If-Match", "*")
	tag := i.want(200, nil, "PUT", key, `{"concurrency":1}`, "If-None-Match", "*")
	i.want(412, nil, "PUT", key, `{"concurrency":2}`, "If-None-Match", "*")
	i.want(412, nil, "DELETE", key, "", "If-Match", `"1"`)
	if got := i.want(200, nil, "GET", key, ""); got != tag || tag == "" {
		t.Errorf("tags %s and %s", tag, got)
	}
	i.want(200, nil, "DELETE", key, "", "If-Match", tag)

	// Of several writers that expect the same revision one succeeds.
	var won, lost atomic.Int64
	var racing sync.WaitGroup
	for n := range 6 {
		racing.Go(func() {
			status, _, answer := i.send("PATCH", path, fmt.Sprintf(`{"workers":%d}`, 10+n),
				"If-Match", second)
			switch status {
			case 200:
				won.Add(1)
			case 412:
				lost.Add(1)
			default:
				t.Errorf("%d %s", status, answer)
			}
		})
	}
	racing.Wait()
	if won.Load() != 1 || lost.Load() != 5 {
		t.Errorf("%d won and %d lost", won.Load(), lost.Load())
	}
}

func TestADryRunChecksEverythingAndWritesNothing(t *testing.T) {
	i := install(t, manage.Options{Possible: func(_, p policy.Policy) []policy.Problem {
		if p.Workers == 13 {
			return []policy.Problem{{Field: "workers", Reason: "are never 13 here"}}
		}
		return nil
	}})
	const path = "/v1/policies/stripe"
	i.want(200, []string{`"capacity":2`, `"dry_run":true`, `"timeout":"30s"`}, "PUT",
		path+"?dry_run=1", stripe)
	i.want(404, nil, "GET", path, "")
	i.want(201, nil, "PUT", path+"?dry_run=0", stripe)
	i.publish("stripe", "acme", nil)
	i.publish("stripe", "acme", nil)
	before := i.want(200, nil, "GET", path, "")
	i.want(200, []string{`"workers":5`, `"changed":["workers 64 → 5"]`, `"dry_run":true`}, "PATCH",
		path+"?dry_run=1", `{"workers":5}`)
	i.want(409, []string{`capacity 1 is too low: bucket \"acme\" holds 2 jobs`}, "PATCH",
		path+"?dry_run=1", `{"capacity":1}`)
	i.want(409, []string{`"field":"partitions"`}, "PATCH", path+"?dry_run=1", `{"partitions":8}`)
	i.want(400, []string{`are never 13 here`}, "PATCH", path+"?dry_run=1", `{"workers":13}`)
	i.want(412, nil, "PATCH", path+"?dry_run=1", `{"workers":5}`, "If-Match", `"0"`)
	i.want(400, []string{`"field":"dry_run"`}, "PATCH", path+"?dry_run=yes", `{"workers":5}`)
	i.want(200, []string{`"override":{"concurrency":2}`, `"dry_run":true`}, "PUT",
		path+"/keys/a?dry_run=1", `{"concurrency":2}`)
	i.want(400, []string{`"field":"burst"`}, "PATCH", path+"/keys/a?dry_run=1", `{"burst":9}`)
	i.want(404, nil, "GET", path+"/keys/a", "")
	if after := i.want(200, nil, "GET", path, ""); after != before {
		t.Errorf("revision %s became %s", before, after)
	}
}

func TestGetAndPutRoundTrip(t *testing.T) {
	i := install(t, manage.Options{})
	for _, path := range []string{"/v1/policies/stripe", "/v1/policies/stripe/keys/acme"} {
		first := stripe
		if strings.HasSuffix(path, "acme") {
			first = `{"concurrency":3}`
		}
		i.send("PUT", path, first)
		_, tag, document := i.send("GET", path, "")
		if again := i.want(200, nil, "PUT", path, document); again != tag {
			t.Errorf("%s: revision %s became %s though nothing changed", path, tag, again)
		}
		changed := strings.Replace(strings.Replace(document, `"outflow":"96/s"`, `"outflow":"95/s"`,
			1), `ncy":3`, `ncy":4`, 1)
		if after := i.want(
			200, []string{` → `}, "PUT", path, changed, "If-Match", tag); after == tag {
			t.Errorf("%s: revision %s stays though something changed", path, tag)
		}
		i.want(400, []string{`sekret`}, "PUT", path,
			strings.Replace(document, `{`, `{"sekret":1,`, 1))
	}
	i.want(400, []string{`"field":"key"`}, "PUT", "/v1/policies/stripe/keys/other",
		`{"key":"acme","override":{"concurrency":3}}`)
	i.want(409, []string{`/v1/pause`}, "PUT", "/v1/policies/stripe",
		`{"policy":`+stripe+`,"paused":true}`)
}

func TestADeletedPolicyLeavesItsNameFree(t *testing.T) {
	i := install(t, manage.Options{})
	const path = "/v1/policies/stripe"
	i.want(404, nil, "DELETE", path, "")
	i.want(201, nil, "PUT", path, stripe)
	i.want(200, nil, "PUT", path+"/keys/acme", `{"concurrency":1}`)
	i.bury(jet.DeadLetter{Policy: "stripe", Key: "acme", Seq: 42, Reason: "attempts"})
	i.want(200, []string{`{"policy":"stripe","deleted":true,"removed":0}`}, "DELETE", path, "")
	i.want(404, nil, "GET", path, "")
	i.want(404, nil, "DELETE", path, "")
	i.want(200, []string{`{"policies":[]}`}, "GET", "/v1/policies", "")
	if _, err := i.broker.Depth(t.Context(), "stripe"); err == nil {
		t.Error("its stream is still there")
	}

	// Its dead letters remain.
	i.want(200, []string{`"job":"stripe:42"`}, "GET", "/v1/dead/stripe", "")
	i.want(200, []string{`"job":"stripe:42"`}, "GET", "/v1/dead/stripe/1", "")
	i.want(409, []string{`no longer accepts jobs`}, "POST", "/v1/dead/stripe/1/replay", "")
	i.want(404, nil, "GET", "/v1/dead/nobody", "")

	// A new policy of that name, with other partitions, starts empty.
	other := strings.Replace(stripe, `s":4`, `s":2`, 1)
	i.want(201, []string{`"partitions":2`}, "PUT", path, other)
	i.want(200, []string{`{"overrides":[]}`}, "GET", path+"/keys", "")
	i.publish("stripe", "acme", nil)
	i.want(202, []string{`"verdict":"queued"`}, "POST", "/v1/dead/stripe/1/replay", "")
	i.want(200, nil, "DELETE", "/v1/dead/stripe", "")
	i.want(409, nil, "PUT", path, `{"algorithm":"fixed_window","limit":1,"window":"1s"}`)

	// The rest of a deleted policy is removed with its last letter.
	i.bury(jet.DeadLetter{Policy: "gone", Key: "acme", Seq: 7, Reason: "deadline"})
	i.want(200, []string{`"letter":1`}, "GET", "/v1/jobs/gone:7", "")
	i.want(200, []string{`{"discarded":1}`}, "DELETE", "/v1/dead/gone", "")
	if m, err := i.broker.Conn().Request("$JS.API.STREAM.INFO."+i.broker.Names().DeadStream("gone"),
		nil, waittest.Patience()); err != nil ||
		!strings.Contains(string(m.Data), `"code":404`) {
		t.Errorf("its letters' stream is left: %s, %v", m.Data, err)
	}
	i.bury(jet.DeadLetter{Policy: "gone", Key: "acme", Seq: 8, Reason: "deadline"})
	i.want(200, []string{`{"job":"gone:7","state":"dead","accepted_at":"2026-03-01T12:00:00Z",` +
		`"why":"is dead: its dead letter is gone"}`},
		"GET", "/v1/jobs/gone:7", "")

	i.want(201, nil, "PUT", "/v1/policies/signup",
		`{"algorithm":"fixed_window","limit":10,"window":"1d"}`)
	i.want(200, []string{`"deleted":true`}, "DELETE", "/v1/policies/signup?purge=0", "")
	i.want(404, nil, "GET", "/v1/policies/signup", "")
	i.want(400, []string{`"field":"purge"`}, "DELETE", path+"?purge=yes", "")
}

func TestAPolicyWithJobsDrainsAndIsRevivedOrPurged(t *testing.T) {
	i := install(t, manage.Options{})
	const path = "/v1/policies/stripe"
	i.want(201, nil, "PUT", path, stripe)
	key := keyIn(t, 3)
	i.publish("stripe", key, nil)
	i.publish("stripe", key, nil)
	i.want(202, []string{`"deleted":false,"removed":0,"jobs":2`}, "DELETE", path, "")
	i.want(200, []string{`"state":"draining"`}, "GET", path, "")
	i.want(200, nil, "PUT", path, stripe)
	i.want(200, []string{`"state":"live"`}, "GET", path, "")
	i.publish("stripe", keyIn(t, 1), nil)

	// The valves drop all jobs of their buckets except for the running one.
	for number := range 4 {
		i.valve("stripe", number, func(q job.Question) job.Answer {
			request := fmt.Sprintf(`{"filter":%q,"keep":1}`,
				i.broker.Names().Queue("stripe", number, q.Key))
			m, err := i.broker.Conn().Request("$JS.API.STREAM.PURGE.PENSTOCK_stripe",
				[]byte(request), waittest.Patience())
			var answer struct{ Purged int }
			if err == nil {
				err = json.Unmarshal(m.Data, &answer)
			}
			if err != nil || q.Op != job.OpPurge {
				t.Errorf("%s of %s: %v", q.Op, q.Key, err)
			}
			return job.Answer{Removed: answer.Purged}
		})
	}
	i.want(202, []string{`{"policy":"stripe","deleted":false,"removed":1,"jobs":2}`}, "DELETE",
		path+"?purge=1", "")
	i.want(200, []string{`"state":"draining"`}, "GET", path, "")
	i.want(202, []string{`"deleted":false,"removed":0,"jobs":2`}, "DELETE", path, "")
	if _, err := i.broker.Conn().Request("$JS.API.STREAM.PURGE.PENSTOCK_stripe", nil,
		waittest.Patience()); err != nil {
		t.Fatal(err)
	}
	i.want(200, []string{`"deleted":true`}, "DELETE", path, "")
	i.want(404, nil, "GET", path, "")
}

func TestADeletedPolicyThatIsWrittenAgainStays(t *testing.T) {
	i := install(t, manage.Options{})
	const path = "/v1/policies/stripe"
	i.want(201, nil, "PUT", path, stripe)
	i.publish("stripe", "acme", nil)
	i.valve("stripe", job.Partition(i.broker.Names().Jobs("stripe", "acme"), 4),
		func(job.Question) job.Answer { return job.Answer{} })
	i.want(202, nil, "DELETE", path+"?purge=1", "")
	i.want(200, []string{`"state":"live"`}, "PUT", path, stripe)
	if gone, err := store.New(i.broker, nil).Forget(t.Context(), "stripe"); err != nil || gone {
		t.Errorf("gone %t, %v", gone, err)
	}
	i.publish("stripe", "acme", nil)
}

func TestChangesAreLoggedOldAndNewAndFromWhere(t *testing.T) {
	var log strings.Builder
	i := install(t, manage.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	i.want(201, nil, "PUT", "/v1/policies/stripe", stripe)
	i.want(200, nil, "PATCH", "/v1/policies/stripe", `{"outflow":"50/s","workers":32}`)
	i.want(200, nil, "PUT", "/v1/policies/stripe/keys/acme", `{"concurrency":2}`)
	i.want(200, nil, "DELETE", "/v1/policies/stripe/keys/acme", "")
	i.want(200, nil, "DELETE", "/v1/policies/stripe", "")
	for _, want := range []string{`changed="outflow 96/s → 50/s, workers 64 → 32" from=127.0.0.1`,
		`key=acme`, `changed="concurrency the policy's → 2" from=127.0.0.1`,
		`changed="concurrency 2 → the policy's" from=127.0.0.1`,
		`msg="policy deleted through the API" policy=stripe`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is without %s:\n%s", want, log.String())
		}
	}
}
