package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

func TestManageJobs(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("GET", "/v1/jobs/stripe:1", "", 404, `unknown policy`)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, `y":2`, `y":20`, 1), 201)
	key := keyIn(t, 1)
	deadline := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	for range 6 {
		i.publish("stripe", key,
			nats.Header{"Penstock-Deadline": {deadline}, "Penstock-Priority": {"3"}})
	}
	i.expect("GET", "/v1/jobs/stripe:7", "", 404, `job stripe:7 has finished or never existed`)
	i.expect("GET", "/v1/jobs/stripe:1", "", 200,
		`{"job":"stripe:1","key":"`+key+`","partition":1,"state":"stored",`+
			`"position":null,"eta_ms":null,"blocked_by":"no_drainer","why":"is stored and waits: `+
			`no drainer answers for its partition; start drainer, or admitter --drain","accepted_at":"20`,
		`"deadline":"`+deadline+`","cost":1,"priority":3,"size":4}`)
	i.expect("DELETE", "/v1/jobs/stripe:6", "", 200, `"job":"stripe:6"`, `"state":"cancelled"`)

	position, expect := 4, int64(1200)
	states := map[uint64]*job.State{
		1: {Seq: 1, State: job.Waiting, Position: &position, ETAMS: &expect},
		2: {Seq: 2, State: job.Running, Attempts: 2, LastError: "status 500"},
		3: {Seq: 3, State: job.Finishing},
		4: {Seq: 4, State: job.Delayed, Attempts: 1},
	}
	i.valve("stripe", 1, func(q job.Question) job.Answer {
		if len(q.Jobs) != 1 {
			return job.Answer{Error: "one job"}
		}
		a := job.Answer{Job: states[q.Jobs[0]]}
		if q.Op == job.OpCancel && a.Job != nil &&
			(a.Job.State == job.Waiting || a.Job.State == job.Delayed) {
			a.Removed = 1
		}
		return a
	})
	i.expect("GET", "/v1/jobs/stripe:1", "", 200,
		`"state":"waiting","position":4,"eta_ms":1200,"attempts":0,`)
	i.expect("GET", "/v1/jobs/stripe%3A2", "", 200, `"state":"running"`,
		`"attempts":2,"last_error":"status 500"`)
	i.expect("GET", "/v1/jobs/stripe:5", "", 200, `"state":"stored"`)
	i.expect("DELETE", "/v1/jobs/stripe:1", "", 200,
		`"state":"cancelled","position":null,"eta_ms":null`)
	i.expect("DELETE", "/v1/jobs/stripe:2", "", 409, `job stripe:2 is running and cannot be cancelled`)
	i.expect("DELETE", "/v1/jobs/stripe:3", "", 409, `job stripe:3 has just ended`)
	i.expect("DELETE", "/v1/jobs/stripe:4", "", 200, `"state":"cancelled"`, `"attempts":1`)
	i.expect("DELETE", "/v1/jobs/stripe:5", "", 503, `has not received job stripe:5 yet`)
	i.expect("DELETE", "/v1/jobs/stripe:7", "", 404)
	for _, id := range []string{"stripe", "stripe:", "stripe:x", "stripe:-1", "stripe:1:2", ":",
		"stripe:99999999999999999999"} {
		i.expect("GET", "/v1/jobs/"+id, "", 400, `"field":"job"`)
	}
	i.expect("GET", "/v1/jobs/stripe:0", "", 404)
	i.expect("GET", "/v1/jobs/*:1", "", 404, `unknown policy`)
	for path, want := range map[string]string{
		"/v1/jobs/stripe:1": "POST, DELETE, PATCH, GET, HEAD, OPTIONS",
		"/v1/jobs/stripe/x": "POST, GET, HEAD, OPTIONS"} {
		response, _ := i.do("BREW", path, "")
		if got := response.Header.Get("Allow"); response.StatusCode != 405 || got != want {
			t.Errorf("%s: %s, allow %q", path, response.Status, got)
		}
	}
	i.expect("GET", "/v1/jobs/stripe/x", "", 200, `{"jobs":[]}`)
}

func TestADeadJobLeadsToItsLetter(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.bury(jet.DeadLetter{Policy: "stripe", Key: "tenant%207", Seq: 42, Reason: "attempts",
		Error: "status 500", Attempts: 5,
		Body: []byte("hello")})
	i.expect("GET", "/v1/jobs/stripe:42", "", 200,
		`{"job":"stripe:42","key":"tenant 7","state":"dead",`+
			`"accepted_at":"2026-03-01T12:00:00Z","why":"is dead: all its attempts failed, after 5 attempts: `+
			`status 500","letter":1,"reason":"attempts","last_error":"status 500","attempts":5,`+
			`"dead_at":"20`, `"size":5}`)
	i.expect("POST", "/v1/dead/stripe/1/replay", "", 202)
	i.expect("GET", "/v1/jobs/stripe:42", "", 200, `"state":"replayed"`, `"replayed_as":"stripe:1"`)

	i.bury(jet.DeadLetter{Policy: "stripe", Key: "acme", Seq: 43, Reason: "deadline"})
	i.expect("DELETE", "/v1/dead/stripe/2", "", 200)
	i.expect("GET", "/v1/jobs/stripe:43", "", 200,
		`{"job":"stripe:43","state":"dead","accepted_at":"2026-03-01T12:00:00Z",`+
			`"why":"is dead: its dead letter is gone"}`)
	i.expect("GET", "/v1/jobs/stripe:44", "", 404, `job stripe:44 has finished or never existed`)

	i.bury(jet.DeadLetter{Policy: "gone", Key: "acme", Seq: 7, Reason: "deadline"})
	i.expect("GET", "/v1/jobs/gone:7", "", 200, `"letter":1,"reason":"deadline"`)
	i.expect("GET", "/v1/jobs/gone:8", "", 404, `unknown policy`)
	i.expect("DELETE", "/v1/jobs/stripe:43", "", 404)
}

func TestManageDeadLetters(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("GET", "/v1/dead/stripe", "", 404)
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.expect("GET", "/v1/dead/stripe", "", 200, `{"letters":[]}`)
	letter := jet.DeadLetter{Policy: "stripe", Key: "tenant%207", Seq: 42, Reason: "attempts",
		Error: "status 500", Attempts: 5,
		Header: nats.Header{"Content-Type": {"text/plain"}}, Body: []byte("hello")}
	i.bury(letter)
	letter.Seq, letter.Body = 43, []byte{0xFF, 0}
	i.bury(letter)
	letter.Policy = "other"
	i.bury(letter)
	letter.Policy, letter.Seq = "stripe", 44
	i.bury(letter)

	i.expect("GET", "/v1/dead/stripe", "", 200,
		`{"letters":[{"id":1,"key":"tenant 7","job":"stripe:42","reason":"attempts",`+
			`"error":"status 500","attempts":5,"accepted_at":"2026-03-01T12:00:00Z","dead_at":"20`,
		`"size":5},{"id":2,`, `{"id":3,`)
	i.expect("GET", "/v1/dead/stripe?limit=1", "", 200, `"id":1`, `],"next":1}`)
	i.expect("GET", "/v1/dead/stripe?limit=1&after=2", "", 200, `[{"id":3,`, `}]}`)
	i.expect("GET", "/v1/dead/stripe/1", "", 200,
		`"header":{"Content-Type":["text/plain"]},"body":"hello"}`)
	i.expect("GET", "/v1/dead/stripe/2", "", 200, `"body_base64":"/wA="}`)
	i.expect("GET", "/v1/dead/stripe/4", "", 404, `policy \"stripe\" has no dead letter 4`)
	i.expect("DELETE", "/v1/dead/stripe/4", "", 404)
	i.expect("POST", "/v1/dead/stripe/4/replay", "", 404)

	// A replay is a new job within its bucket's capacity, and removes the letter.
	i.expect("POST", "/v1/dead/stripe/1/replay", "", 202, `{"verdict":"queued","job":"stripe:1"}`)
	i.expect("GET", "/v1/jobs/stripe:1", "", 200, `"key":"tenant 7"`, `"size":5`)
	i.expect("GET", "/v1/dead/stripe/1", "", 404)
	i.publish("stripe", "tenant 7", nil)
	i.expect("POST", "/v1/dead/stripe/2/replay", "", 429, `quota-exceeded`, `"verdict":"rejected"`,
		`"retry_after_ms":1000`)
	i.expect("GET", "/v1/dead/stripe/2", "", 200)
	i.bury(jet.DeadLetter{Policy: "stripe", Key: "%!.x", Seq: 45, Reason: "malformed"})
	i.bury(jet.DeadLetter{Policy: "stripe", Key: "acme", Seq: 46, Reason: "deadline"})
	i.expect("POST", "/v1/dead/stripe/4/replay", "", 409, `cannot be replayed`)
	i.expect("POST", "/v1/dead/stripe/replay", "", 200,
		`{"replayed":1,"full":2,"unfit":1,"complete":true}`)

	i.expect("DELETE", "/v1/dead/stripe/2", "", 200, `{"discarded":1}`)
	i.expect("DELETE", "/v1/dead/stripe/2", "", 404)
	i.expect("DELETE", "/v1/dead/stripe?through=3", "", 200, `{"discarded":1}`)
	i.expect("DELETE", "/v1/dead/stripe", "", 200, `{"discarded":1}`)
	i.expect("GET", "/v1/dead/stripe", "", 200, `{"letters":[]}`)

	for _, query := range []string{"after=-1", "after=x", "limit=0", "limit=5000", "before=3"} {
		i.expect("GET", "/v1/dead/stripe?"+query, "", 400, `"field"`)
	}
	for _, query := range []string{"through=0", "through=", "through=x", "all=1"} {
		i.expect("DELETE", "/v1/dead/stripe?"+query, "", 400, `"field"`)
	}
	i.expect("GET", "/v1/dead/stripe/x", "", 400, `"field":"id"`)
	i.expect("POST", "/v1/dead/stripe/1/bury", "", 404)
	i.expect("GET", "/v1/dead/stripe/1/replay", "", 405)
	i.expect("POST", "/v1/dead/stripe", "", 405)
	i.expect("DELETE", "/v1/dead/nobody", "", 404)
}

func TestTheJobsOfABucketAreListedInPages(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("GET", "/v1/jobs/stripe/a", "", 404, `unknown policy`)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, `y":2`, `y":50`, 1), 201)
	key, other := keyIn(t, 1), keyIn(t, 2)
	i.expect("GET", "/v1/jobs/stripe/"+key, "", 200, `{"jobs":[]}`)
	for range 7 {
		i.publish("stripe", key, nil)
		i.publish("stripe", other, nil)
	}
	// without a drainer: the bucket's jobs as stored
	list := "/v1/jobs/stripe/" + key
	i.expect("GET", list+"?limit=2", "", 200, `{"jobs":[{"job":"stripe:1",`, `"state":"stored"`, `"blocked_by":"no_drainer"`, `"job":"stripe:3"`, `],"next":3}`)
	i.expect("GET", list+"?limit=2&after=3", "", 200, `{"jobs":[{"job":"stripe:5",`,
		`"job":"stripe:7"`, `"next":7}`)
	last := i.expect("GET", list+"?limit=3&after=7", "", 200, `"stripe:13"`)
	if strings.Contains(last, "next") {
		t.Errorf("the last page has a next one: %s", last)
	}
	i.valve("stripe", 1, func(q job.Question) (a job.Answer) {
		if q.Op != job.OpJobs {
			return job.Answer{Error: "not asked for"}
		}
		for _, seq := range q.Jobs {
			if seq == 5 {
				continue
			}
			state := job.Waiting
			if seq == 9 {
				state = job.Running
			}
			a.States = append(a.States, job.State{Seq: seq, State: state, Attempts: int(seq)})
		}
		return a
	})
	i.expect("GET", list, "", 200,
		`"job":"stripe:3","key":"`+key+`","partition":1,"state":"waiting"`, `"attempts":3`,
		`"job":"stripe:5","key":"`+key+`","partition":1,"state":"stored"`,
		`"job":"stripe:9","key":"`+key+`","partition":1,"state":"running"`)
	i.expect("GET", list+"?state=running&limit=1", "", 200,
		`{"jobs":[{"job":"stripe:9"`, `],"next":9}`)
	i.expect("GET", list+"?state=delayed", "", 200, `{"jobs":[]}`)
	for query, field := range map[string]string{"state=lost": "state", "state=": "state",
		"limit=0": "limit", "after=x": "after", "stat=running": "stat"} {
		i.expect("GET", list+"?"+query, "", 400, `"field":"`+field+`"`)
	}
}

func TestABodyIsShownOnRequest(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.publish("stripe", "a", nats.Header{"Penstock-Forward-Authorization": {"Bearer secret"},
		"Content-Type": {"text/plain"}})
	if without := i.expect("GET", "/v1/jobs/stripe:1", "", 200); strings.Contains(without, "body") {
		t.Errorf("a body that nobody asked for: %s", without)
	}
	whole := i.expect("GET", "/v1/jobs/stripe:1?body=1", "", 200, `"body":"body"`,
		`"Content-Type":["text/plain"]`, `[redacted]`)
	if strings.Contains(whole, "secret") {
		t.Errorf("a credential is shown: %s", whole)
	}
	i.expect("GET", "/v1/jobs/stripe:1?body=2", "", 400, `"field":"body"`)
}
