package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

func TestManagePolicies(t *testing.T) {
	var mu sync.Mutex
	waited := map[string]uint64{}
	i := install(t, manage.Options{Followed: func(_ context.Context, policy string, revision uint64) {
		mu.Lock()
		defer mu.Unlock()
		waited[policy] = max(waited[policy], revision)
	}})
	i.expect("GET", "/v1/policies", "", 200, `{"policies":[]}`)
	i.expect("GET", "/v1/policies/stripe", "", 404, `"detail":"unknown policy: \"stripe\""`)
	i.expect("PUT", "/v1/policies/stripe", stripe, 201, `"name":"stripe"`, `"timeout":"30s"`, `"source":"api"`,
		`"paused":false`, `"retired":false`)
	i.publish("stripe", "acme", nil) // the stream is there
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, "96", "50", 1), 200, `"outflow":"50/s"`)
	i.expect("PUT", "/v1/policies/signup", `{"name":"signup","algorithm":"fixed_window","limit":10,"window":"1d"}`, 201)
	i.expect("PUT", "/v1/policies/fair", `{"algorithm":"leaking_bucket","outflow_total":"100/s","capacity":50}`, 201,
		`"outflow_total":"100/s"`, `"partitions":1`)
	list := i.expect("GET", "/v1/policies", "", 200)
	if fair, signup := strings.Index(list, `"fair"`), strings.Index(list, `"signup"`); fair < 0 || signup < fair {
		t.Errorf("listed %s", list)
	}

	// What cannot be, and what it cannot become.
	i.expect("PUT", "/v1/policies/bad", `{"algorithm":"leaking_bucket","capacity":-1,"timeout":"0s"}`, 400,
		`"field":"timeout"`, `"problems":[{"field":"timeout"`)
	i.expect("PUT", "/v1/policies/bad", `{"algorithm":"leaking_bucket","capacity":-1}`, 400,
		`{"field":"outflow","reason":"is required by leaking_bucket"}`, `"field":"capacity"`)
	i.expect("PUT", "/v1/policies/Bad.Name", stripe, 400, `"field":"name"`)
	i.expect("PUT", "/v1/policies/other", strings.Replace(stripe, `{`, `{"name":"stripe",`, 1), 400, `"field":"name"`)
	i.expect("PUT", "/v1/policies/bad", ``, 400, `is not JSON`)
	i.expect("PUT", "/v1/policies/bad", `[]`, 400, `want fields, not a list`)
	i.expect("PUT", "/v1/policies/bad", `{"algorithm":"abacus","sekret":1}`, 400, `"field":"sekret","reason":"unknown field"`)
	i.expect("PUT", "/v1/policies/bad", `{"name":"`+strings.Repeat("x", 64<<10)+`"}`, 413, `65536 bytes`)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, `":4`, `":8`, 1), 409,
		`"field":"partitions","reason":"cannot change from 4 to 8: give the policy a new name"`)
	i.expect("PUT", "/v1/policies/stripe", `{"algorithm":"fixed_window","limit":1,"window":"1s"}`, 409, `"field":"algorithm"`,
		`"field":"queue"`)
	i.expect("PUT", "/v1/policies/fair", `{"algorithm":"leaking_bucket","outflow":"100/s","capacity":50}`, 409,
		`"field":"partitions"`)
	i.expect("GET", "/v1/policies/bad", "", 404)

	// Lowering the capacity below what waits is refused, and nothing is lost or written.
	i.publish("stripe", "acme", nil)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, `y":2`, `y":1`, 1), 409,
		`capacity 1 is too low: bucket \"acme\" holds 2 jobs`)
	i.expect("GET", "/v1/policies/stripe", "", 200, `"capacity":2`)
	if depth, err := i.broker.Depth(t.Context(), "stripe"); err != nil || depth != 2 {
		t.Errorf("depth %d, %v", depth, err)
	}

	// A pause is no part of the policy.
	i.expect("POST", "/v1/pause/stripe", "", 200, `"paused":true`)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, `y":2`, `y":3`, 1), 200, `"capacity":3`, `"paused":true`)
	i.expect("POST", "/v1/resume/stripe", "", 200, `"paused":false`)
	i.expect("POST", "/v1/resume/stripe", "", 200, `"paused":false`)
	i.expect("POST", "/v1/pause/nobody", "", 404)
	i.expect("POST", "/v1/pause/signup", "", 409, `has no queue`)

	var last manage.Policy
	if err := json.Unmarshal([]byte(i.expect("GET", "/v1/policies/stripe", "", 200)), &last); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if waited["stripe"] != last.Revision || last.Revision == 0 {
		t.Errorf("waited for revision %d, want %d", waited["stripe"], last.Revision)
	}
}

func TestManageOverrides(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 404, `unknown policy`)
	i.expect("PUT", "/v1/policies/stripe/keys/acme", `{"paused":true}`, 404, `unknown policy`)
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.expect("PUT", "/v1/policies/signup", `{"algorithm":"fixed_window","limit":10,"window":"1d"}`, 201)
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 404, `"detail":"not found: key \"acme\" has no limits of its own"`)
	i.expect("PUT", "/v1/policies/stripe/keys/acme", `{"outflow":"5/s","burst":2,"concurrency":0}`, 200,
		`{"key":"acme","override":{"outflow":"5/s","burst":2,"concurrency":0}`)
	i.expect("POST", "/v1/pause/stripe/acme", "", 200, `"burst":2`, `"paused":true`)
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 200, `"paused":true`)
	i.expect("POST", "/v1/resume/stripe/acme", "", 200, `{"key":"acme","override":{"outflow":"5/s","burst":2,"concurrency":0}}`)

	// A key that had nothing but a pause has nothing left.
	i.expect("POST", "/v1/pause/stripe/a%2Fb%3F/../%C3%A9", "", 200, `{"key":"a/b?/../é","override":{"paused":true}}`)
	i.expect("GET", "/v1/policies/stripe/keys/a%2Fb%3F/../%C3%A9", "", 200, `"paused":true`)
	i.expect("POST", "/v1/resume/stripe/a%2Fb%3F/../%C3%A9", "", 200, `"override":{}`)
	i.expect("GET", "/v1/policies/stripe/keys/a%2Fb%3F/../%C3%A9", "", 404)
	i.expect("POST", "/v1/pause/stripe/", "", 200, `{"key":"","override":{"paused":true}}`) // the empty key
	i.expect("GET", "/v1/policies/stripe", "", 200, `"paused":false`)

	i.expect("PUT", "/v1/policies/stripe/keys/b", `{"paused":true}`, 200)
	i.expect("GET", "/v1/policies/stripe/keys", "", 200, `{"overrides":[{"key":"","override":{"paused":true}},{"key":"acme"`)
	i.expect("GET", "/v1/policies/stripe/keys?limit=1", "", 200, `}],"next":""}`)
	i.expect("GET", "/v1/policies/stripe/keys?limit=1&after=", "", 200, `[{"key":"acme"`, `}],"next":"acme"}`)
	i.expect("GET", "/v1/policies/stripe/keys?after=acme", "", 200, `{"overrides":[{"key":"b","override":{"paused":true}}]}`)
	i.expect("DELETE", "/v1/policies/stripe/keys/acme", "", 200, `{"key":"acme","override":{}}`)
	i.expect("DELETE", "/v1/policies/stripe/keys/acme", "", 200)
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 404)

	for body, want := range map[string]string{
		``:                `is not JSON`,
		`{"weight":2}`:    `"field":"weight","reason":"needs the policy's outflow_total`,
		`{"burst":3}`:     `must be 1 to the capacity (2), not 3`,
		`{"rate":"1/s"}`:  `"field":"rate","reason":"unknown field"`,
		`{"outflow":"5"}`: `"field":"outflow"`,
		`{"burst":0}`:     `must not be 0`,
	} {
		i.expect("PUT", "/v1/policies/stripe/keys/acme", body, 400, want)
	}
	i.expect("PUT", "/v1/policies/signup/keys/acme", `{"paused":true}`, 409, `has no queue`)
	i.expect("GET", "/v1/policies/stripe/keys/acme", "", 404)
}

func TestManageBuckets(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("GET", "/v1/buckets/stripe", "", 404)
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.expect("PUT", "/v1/policies/signup", `{"algorithm":"fixed_window","limit":10,"window":"1d"}`, 201)
	i.expect("GET", "/v1/buckets/stripe", "", 200, `{"buckets":[],"total":0,"unanswered":[0,1,2,3]}`)
	i.expect("GET", "/v1/buckets/signup", "", 409, `has no queue`)

	// One bucket without a drainer: JetStream knows its depth.
	receipt := i.publish("stripe", "tenant 7", nil)
	i.expect("GET", "/v1/buckets/stripe/tenant%207", "", 200,
		fmt.Sprintf(`{"key":"tenant 7","partition":%d,"depth":1,"held_by":"no_drainer","unanswered":[%[1]d]}`, receipt.Partition))
	i.expect("POST", "/v1/purge/stripe/tenant%207", "", 200, `{"key":"tenant 7","removed":1}`)

	// Partition 2 has no owner, and 3 one that never answers.
	expect := int64(40)
	deepest := func(prefix string, first int) func(queue.ValveQuestion) queue.ValveAnswer {
		return func(q queue.ValveQuestion) queue.ValveAnswer {
			const held = 1200
			a := queue.ValveAnswer{Total: held}
			for n := q.Offset; n < min(q.Offset+q.Limit, held); n++ {
				a.Buckets = append(a.Buckets, queue.BucketState{Key: queue.Key(fmt.Sprintf("%s-%04d", prefix, n)),
					Depth: 2*(held-n) + first, Waiting: 1, Rate: 0.5, ExpectMS: &expect})
			}
			return a
		}
	}
	i.valve("stripe", 0, deepest("a", 0))
	i.valve("stripe", 1, deepest("b", 1))
	stop, err := i.broker.ServeValve("stripe", 3, func(queue.ValveQuestion, func(queue.ValveAnswer)) {})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	i.expect("GET", "/v1/buckets/stripe?limit=3", "", 200,
		`{"buckets":[{"key":"b-0000","partition":1,"depth":2401,"waiting":1,"delayed":0,"running":0,"rate":0.5,`+
			`"paused":false,"expect_ms":40},{"key":"a-0000","partition":0,"depth":2400,`, `{"key":"b-0001"`,
		`],"total":2400,"next_offset":3,"unanswered":[2,3]}`)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %s", took)
	}
	stop()
	var keys []string
	for offset := 0; ; {
		var page manage.Buckets
		answer := i.expect("GET", fmt.Sprintf("/v1/buckets/stripe?limit=1000&offset=%d", offset), "", 200)
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Buckets {
			keys = append(keys, b.Key)
		}
		if page.Next == nil {
			break
		}
		offset = *page.Next
	}
	if len(keys) != 2400 || keys[0] != "b-0000" || keys[1] != "a-0000" || keys[2399] != "a-1199" {
		t.Errorf("%d keys: %q …", len(keys), keys[:min(3, len(keys))])
	}
	slices.Sort(keys)
	if n := len(slices.Compact(keys)); n != 2400 {
		t.Errorf("only %d are different", n)
	}
	i.expect("GET", "/v1/buckets/stripe?offset=9999&limit=1", "", 200, `"buckets":[]`)
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "limit=", "offset=-1", "offset=10001", "limit=1&limit=2",
		"offset=9500&limit=1000", "page=2", "limit=%zz"} {
		i.expect("GET", "/v1/buckets/stripe?"+query, "", 400, `"field"`)
	}
}

// keyIn finds a key that lies in a partition of stripe.
func keyIn(t *testing.T, partition int) string {
	t.Helper()
	names, err := queue.NewNames("")
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		key := fmt.Sprint("k", n)
		if queue.Partition(names.Jobs("stripe", queue.Key(key)), 4) == partition {
			return key
		}
	}
}

func TestManageOneBucket(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	key := keyIn(t, 3)
	i.valve("stripe", 3, func(q queue.ValveQuestion) queue.ValveAnswer {
		switch {
		case q.Op == queue.OpBucket && q.Key == queue.Key(key):
			return queue.ValveAnswer{Bucket: &queue.BucketState{Key: q.Key, Depth: 7, Waiting: 4, Delayed: 2, Running: 1, Rate: 2.5,
				Paused: true, CoolingMS: 100, HeadAgeMS: 1500}}
		case q.Op == queue.OpPurge && q.Key == queue.Key(key):
			return queue.ValveAnswer{Removed: 6}
		}
		return queue.ValveAnswer{Error: "no such question"}
	})
	i.expect("GET", "/v1/buckets/stripe/"+key, "", 200, fmt.Sprintf(`{"key":%q,"partition":3,"depth":7,"waiting":4,"delayed":2,`+
		`"running":1,"rate":2.5,"paused":true,"cooling_ms":100,"head_age_ms":1500,"expect_ms":null}`, key))
	i.expect("POST", "/v1/purge/stripe/"+key, "", 200, fmt.Sprintf(`{"key":%q,"removed":6}`, key))
	i.expect("POST", "/v1/purge/stripe", "", 400, `a whole policy is not purged at once`)
	i.expect("POST", "/v1/purge/nobody/x", "", 404)
	i.expect("GET", "/v1/purge/stripe/"+key, "", 405)
	i.expect("POST", "/v1/purge/stripe/"+key+"?really=1", "", 400, `"field":"really"`)
	i.expect("GET", "/v1/buckets/stripe/"+key+"?", "", 400, `"field":"query"`)
	i.expect("POST", "/v1/purge/stripe/%ff", "", 400, `"field":"key"`)
	i.expect("POST", "/v1/purge/stripe/"+strings.Repeat("x", 300), "", 400, `"field":"key"`)
	if empty := keyIn(t, 1); empty != "" {
		i.expect("GET", "/v1/buckets/stripe/"+empty, "", 200, `"depth":0`, `"unanswered":[1]`)
	}
}

func TestManageJobs(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("GET", "/v1/jobs/stripe:1", "", 404, `unknown policy`)
	i.expect("PUT", "/v1/policies/stripe", strings.Replace(stripe, `y":2`, `y":20`, 1), 201)
	key := keyIn(t, 1)
	deadline := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	for range 6 {
		i.publish("stripe", key, nats.Header{"Penstock-Deadline": {deadline}, "Penstock-Priority": {"3"}})
	}
	i.expect("GET", "/v1/jobs/stripe:7", "", 404, `job stripe:7 has finished, or never was`)
	i.expect("GET", "/v1/jobs/stripe:1", "", 200, `{"job":"stripe:1","key":"`+key+`","partition":1,"state":"stored",`+
		`"position":null,"expect_ms":null,"held_by":"no_drainer","accepted_at":"20`, `"deadline":"`+deadline+`","cost":1,"priority":3,"size":4}`)
	i.expect("DELETE", "/v1/jobs/stripe:6", "", 200, `"job":"stripe:6"`, `"state":"cancelled"`)

	position, expect := 4, int64(1200)
	states := map[uint64]*queue.JobState{
		1: {Seq: 1, State: queue.JobWaiting, Position: &position, ExpectMS: &expect},
		2: {Seq: 2, State: queue.JobRunning, Attempts: 2, LastError: "status 500"},
		3: {Seq: 3, State: queue.JobFinishing},
		4: {Seq: 4, State: queue.JobDelayed, Attempts: 1},
	}
	i.valve("stripe", 1, func(q queue.ValveQuestion) queue.ValveAnswer {
		if len(q.Jobs) != 1 {
			return queue.ValveAnswer{Error: "one job"}
		}
		a := queue.ValveAnswer{Job: states[q.Jobs[0]]}
		if q.Op == queue.OpCancel && a.Job != nil && (a.Job.State == queue.JobWaiting || a.Job.State == queue.JobDelayed) {
			a.Removed = 1
		}
		return a
	})
	i.expect("GET", "/v1/jobs/stripe:1", "", 200, `"state":"waiting","position":4,"expect_ms":1200,"attempts":0,`)
	i.expect("GET", "/v1/jobs/stripe%3A2", "", 200, `"state":"running"`, `"attempts":2,"last_error":"status 500"`)
	i.expect("GET", "/v1/jobs/stripe:5", "", 200, `"state":"stored"`)
	i.expect("DELETE", "/v1/jobs/stripe:1", "", 200, `"state":"cancelled","position":null,"expect_ms":null`)
	i.expect("DELETE", "/v1/jobs/stripe:2", "", 409, `job stripe:2 runs and cannot be cancelled`)
	i.expect("DELETE", "/v1/jobs/stripe:3", "", 409, `job stripe:3 has just ended`)
	i.expect("DELETE", "/v1/jobs/stripe:4", "", 200, `"state":"cancelled"`, `"attempts":1`)
	i.expect("DELETE", "/v1/jobs/stripe:5", "", 503, `has not received job stripe:5 yet`)
	i.expect("DELETE", "/v1/jobs/stripe:7", "", 404)
	for _, id := range []string{"stripe", "stripe:", "stripe:x", "stripe:-1", "stripe:1:2", ":", "stripe:99999999999999999999"} {
		i.expect("GET", "/v1/jobs/"+id, "", 400, `"field":"job"`)
	}
	i.expect("GET", "/v1/jobs/stripe:0", "", 404)
	i.expect("GET", "/v1/jobs/*:1", "", 404, `unknown policy`)
	for path, want := range map[string]string{"/v1/jobs/stripe:1": "POST, DELETE, GET, HEAD, OPTIONS",
		"/v1/jobs/stripe/x": "POST, OPTIONS"} {
		request, err := http.NewRequest("PATCH", i.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got := response.Header.Get("Allow"); response.StatusCode != 405 || got != want {
			t.Errorf("%s: %s, allow %q", path, response.Status, got)
		}
	}
	i.expect("GET", "/v1/jobs/stripe/x", "", 405)
}

func TestADeadJobLeadsToItsLetter(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.bury(queue.DeadLetter{Policy: "stripe", Key: "tenant%207", Seq: 42, Reason: "attempts", Error: "status 500", Attempts: 5,
		Body: []byte("hello")})
	i.expect("GET", "/v1/jobs/stripe:42", "", 200, `{"job":"stripe:42","key":"tenant 7","state":"dead",`+
		`"accepted_at":"2026-03-01T12:00:00Z","letter":1,"reason":"attempts","last_error":"status 500","attempts":5,`+
		`"buried_at":"20`, `"size":5}`)
	i.expect("POST", "/v1/dead/stripe/1/replay", "", 202)
	i.expect("GET", "/v1/jobs/stripe:42", "", 200, `"state":"replayed"`, `"replayed_as":"stripe:1"`)

	i.bury(queue.DeadLetter{Policy: "stripe", Key: "acme", Seq: 43, Reason: "deadline"})
	i.expect("DELETE", "/v1/dead/stripe/2", "", 200)
	i.expect("GET", "/v1/jobs/stripe:43", "", 200, `{"job":"stripe:43","state":"dead","accepted_at":"2026-03-01T12:00:00Z"}`)
	i.expect("GET", "/v1/jobs/stripe:44", "", 404, `job stripe:44 has finished, or never was`)

	// It does when its policy is gone, too.
	i.bury(queue.DeadLetter{Policy: "gone", Key: "acme", Seq: 7, Reason: "deadline"})
	i.expect("GET", "/v1/jobs/gone:7", "", 200, `"letter":1,"reason":"deadline"`)
	i.expect("GET", "/v1/jobs/gone:8", "", 404, `unknown policy`)
	i.expect("DELETE", "/v1/jobs/stripe:43", "", 404)
}

func TestManageDeadLetters(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("GET", "/v1/dead/stripe", "", 404)
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.expect("GET", "/v1/dead/stripe", "", 200, `{"letters":[]}`)
	letter := queue.DeadLetter{Policy: "stripe", Key: "tenant%207", Seq: 42, Reason: "attempts", Error: "status 500", Attempts: 5,
		Header: nats.Header{"Content-Type": {"text/plain"}}, Body: []byte("hello")}
	i.bury(letter)
	letter.Seq, letter.Body = 43, []byte{0xFF, 0}
	i.bury(letter)
	letter.Policy = "other"
	i.bury(letter)
	letter.Policy, letter.Seq = "stripe", 44
	i.bury(letter)

	i.expect("GET", "/v1/dead/stripe", "", 200, `{"letters":[{"id":1,"key":"tenant 7","job":"stripe:42","reason":"attempts",`+
		`"error":"status 500","attempts":5,"accepted_at":"2026-03-01T12:00:00Z","buried_at":"20`, `"size":5},{"id":2,`, `{"id":3,`)
	i.expect("GET", "/v1/dead/stripe?limit=1", "", 200, `"id":1`, `],"next":1}`)
	i.expect("GET", "/v1/dead/stripe?limit=1&after=2", "", 200, `[{"id":3,`, `}]}`)
	i.expect("GET", "/v1/dead/stripe/1", "", 200, `"header":{"Content-Type":["text/plain"]},"body":"hello"}`)
	i.expect("GET", "/v1/dead/stripe/2", "", 200, `"body_base64":"/wA="}`)
	i.expect("GET", "/v1/dead/stripe/4", "", 404, `policy \"stripe\" has no dead letter 4`)
	i.expect("DELETE", "/v1/dead/stripe/4", "", 404)
	i.expect("POST", "/v1/dead/stripe/4/replay", "", 404)

	// A replay is a new job within the bound of its bucket, and takes the letter away.
	i.expect("POST", "/v1/dead/stripe/1/replay", "", 202, `{"verdict":"queued","job":"stripe:1"}`)
	i.expect("GET", "/v1/jobs/stripe:1", "", 200, `"key":"tenant 7"`, `"size":5`)
	i.expect("GET", "/v1/dead/stripe/1", "", 404)
	i.publish("stripe", "tenant 7", nil)
	i.expect("POST", "/v1/dead/stripe/2/replay", "", 429, `quota-exceeded`, `"verdict":"rejected"`, `"retry_after_ms":1000`)
	i.expect("GET", "/v1/dead/stripe/2", "", 200)
	i.bury(queue.DeadLetter{Policy: "stripe", Key: "%!.x", Seq: 45, Reason: "malformed"})
	i.bury(queue.DeadLetter{Policy: "stripe", Key: "acme", Seq: 46, Reason: "deadline"})
	i.expect("POST", "/v1/dead/stripe/4/replay", "", 409, `would become the same again`)
	i.expect("POST", "/v1/dead/stripe/replay", "", 200, `{"replayed":1,"full":2,"unfit":1,"complete":true}`)

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

func TestManageWithoutNATS(t *testing.T) {
	i := install(t, manage.Options{Timeout: 200 * time.Millisecond})
	i.broker.Conn().Close()
	for _, path := range []string{"/v1/policies", "/v1/drainers", "/v1/policies/stripe", "/v1/buckets/stripe", "/v1/dead/stripe",
		"/v1/policies/stripe/keys", "/v1/jobs/stripe:1"} {
		i.expect("GET", path, "", 503, `temporary-reduced-capacity`)
	}
	i.expect("PUT", "/v1/policies/stripe", stripe, 503)
	i.expect("POST", "/v1/dead/stripe/replay", "", 503)
}

func TestManagePaths(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v1/policies/", 404},
		{"GET", "/v1/policies/stripe/", 404},
		{"GET", "/v1/policies/stripe/key/a", 404},
		{"POST", "/v1/policies", 405},
		{"POST", "/v1/policies/stripe", 405},
		{"POST", "/v1/policies/stripe/keys", 405},
		{"GET", "/v1/pause/stripe", 405},
		{"POST", "/v1/pause", 404},
		{"POST", "/v1/pause/", 404},
		{"GET", "/v1/buckets", 404},
		{"GET", "/v1/dead/", 404},
		{"GET", "/v1/drainers", 200},
		{"POST", "/v1/drainers", 405},
		{"GET", "/v1/drainers/", 404},
		{"GET", "/v1/drainers?x=1", 400},
		{"GET", "/v1/policy/stripe", 404},
		{"GET", "/policies", 404},
		{"GET", "/v1/policies?x=1", 400},
		{"GET", "/v1/policies/UPPER%20", 404},
		{"GET", "/v1/policies/a.b", 404},
		{"GET", "/v1/policies/%2A", 404},
		{"GET", "/v1/policies/stripe/keys/%ff", 400},
	} {
		i.expect(c.method, c.path, "", c.status)
	}
	// The same without a body.
	response, err := http.Head(i.url + "/v1/policies/stripe")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("HEAD: %s", response.Status)
	}
	// A browser on another site's page.
	for site, want := range map[string]int{"cross-site": 403, "same-origin": 200, "none": 200} {
		request, err := http.NewRequest("POST", i.url+"/v1/pause/stripe", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Sec-Fetch-Site", site)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", site, response.Status)
		}
	}
	// Without the option there is no management.
	w := httptest.NewRecorder()
	New(&fakeService{}, Options{Hosts: testHosts}).ServeHTTP(w, httptest.NewRequest("GET", "/v1/policies", nil))
	if w.Code != 404 {
		t.Errorf("without management: %d", w.Code)
	}
}

// What is valid elsewhere may be impossible here: a Redis Cluster cannot have every set of limits.
func TestWhatThisInstallationCannotHaveIsRefused(t *testing.T) {
	i := install(t, manage.Options{Possible: func(p policy.Policy) []policy.Problem { return p.OnCluster() }})
	const limits = `{"limits":[{"name":"a","key":"{key}","algorithm":"token_bucket","capacity":2,"refill":"2/s"},
		{"name":"b","key":"%s","algorithm":"fixed_window","limit":9,"window":"1s"}]}`
	i.expect("PUT", "/v1/policies/api", fmt.Sprintf(limits, "global"), 400, `"field":"limits[1].key"`)
	i.expect("GET", "/v1/policies/api", "", 404)
	i.expect("PUT", "/v1/policies/api", fmt.Sprintf(limits, "{key}"), 201)
}

// A body that nobody reads is most likely meant for something else.
func TestBodiesThatAreNotAskedForAreRefused(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.expect("POST", "/v1/pause/stripe", `{"for":"1h"}`, 400, `"field":"body"`)
	i.expect("GET", "/v1/policies/stripe", "", 200, `"paused":false`)
	i.expect("POST", "/v1/pause/stripe", "", 200)
}
