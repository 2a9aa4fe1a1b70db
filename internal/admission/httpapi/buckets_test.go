package httpapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

func TestManageBuckets(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("GET", "/v1/buckets/stripe", "", 404)
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.expect("PUT", "/v1/policies/signup", `{"algorithm":"fixed_window","limit":10,"window":"1d"}`,
		201)
	i.expect("GET", "/v1/buckets/stripe", "", 200,
		`{"buckets":[],"total":0,"unanswered":[0,1,2,3],"bytes":{"used":0,"max":`)
	i.expect("GET", "/v1/buckets/signup", "", 409, `has no queue`)

	// Without a drainer, the depth comes from JetStream.
	i.publish("stripe", "tenant 7", nil)
	partition := job.Partition(i.broker.Names().Jobs("stripe", "tenant%207"), 4)
	i.expect("GET", "/v1/buckets/stripe/tenant%207", "", 200,
		fmt.Sprintf(
			`{"key":"tenant 7","partition":%d,"depth":1,"blocked_by":"no_drainer","why":"holds 1 of 2 jobs: `+
				`no drainer answers for its partition; start drainer, or admitter --drain","unanswered":[%[1]d]}`,
			partition))
	// A drainer that still reads the queue counts fewer jobs than JetStream.
	stopReading, err := i.broker.ServeValve("stripe", partition,
		func(q job.Question, reply func(job.Answer)) {
			reply(job.Answer{Bucket: &job.BucketState{Key: q.Key,
				BucketState: api.BucketState{Reading: true}}})
		})
	if err != nil {
		t.Fatal(err)
	}
	i.expect("GET", "/v1/buckets/stripe/tenant%207", "", 200, `"depth":1,`, `"reading":true,`,
		`"blocked_by":"storage"`)
	stopReading()
	i.expect("POST", "/v1/purge/stripe/tenant%207", "", 200, `{"key":"tenant 7","removed":1}`)

	// Partition 2 has no owner; the owner of 3 does not answer.
	expect := int64(40)
	deepest := func(prefix string, first int) func(job.Question) job.Answer {
		return func(q job.Question) job.Answer {
			const held = 1200
			a := job.Answer{Total: held}
			if q.By == job.ByAge {
				for n := range 2 {
					a.Buckets = append(a.Buckets, job.BucketState{
						Key: queue.Key(fmt.Sprint(prefix, n)), BucketState: api.BucketState{
							HeadAgeMS: int64(9 - n + first)}})
				}
				return a
			}
			if q.By == job.ByLate {
				for _, state := range []job.BucketState{
					{Key: "late", BucketState: api.BucketState{LateMS: map[string]int64{
						job.BlockedByThrottled: int64(500 + first)}}},
					{Key: "rests", BucketState: api.BucketState{LateMS: map[string]int64{
						job.BlockedByPaused: 60_000}}}} {
					state.Key = queue.Key(prefix) + state.Key
					a.Buckets = append(a.Buckets, state)
				}
				return a
			}
			for n := q.Offset; n < min(q.Offset+q.Limit, held); n++ {
				a.Buckets = append(a.Buckets,
					job.BucketState{Key: queue.Key(fmt.Sprintf("%s-%04d", prefix, n)),
						Depth: 2*(held-n) + first, BucketState: api.BucketState{Waiting: 1,
							Rate: 0.5, ETAMS: &expect}})
			}
			return a
		}
	}
	i.valve("stripe", 0, deepest("a", 0))
	i.valve("stripe", 1, deepest("b", 1))
	stop, err := i.broker.ServeValve("stripe", 3, func(job.Question, func(job.Answer)) {})
	if err != nil {
		t.Fatal(err)
	}
	i.expect("GET", "/v1/buckets/stripe?limit=3", "", 200,
		`{"buckets":[{"key":"b-0000","partition":1,"depth":2401,"waiting":1,"delayed":0,"running":0,"rate":0.5,`+
			`"paused":false,"eta_ms":40,"why":"holds 2401 of 2 jobs and is full, so new ones are refused `+
			`(1 waiting): its next job starts now; a job accepted now starts immediately"},`+
			`{"key":"a-0000","partition":0,"depth":2400,`,
		`{"key":"b-0001"`,
		`],"total":2400,"next_offset":3,"unanswered":[2,3],"bytes":{`)
	i.expect("GET", "/v1/buckets?limit=2", "", 200,
		`{"buckets":[{"policy":"stripe","key":"b-0000","partition":1,"depth":2401,`,
		`{"policy":"stripe","key":"a-0000",`, `],"total":2400,"depths":{},"bytes":{},"unanswered":{"stripe":[2,3]}}`)
	i.expect("GET", "/v1/buckets?by=late&limit=3", "", 200, `{"buckets":[{"policy":"stripe","key":"blate"`,
		`},{"policy":"stripe","key":"alate"`, `},{"policy":"stripe","key":"arests"`)
	i.expect("GET", "/v1/buckets?by=age&limit=3", "", 200, `{"buckets":[{"policy":"stripe","key":"b0"`,
		`},{"policy":"stripe","key":"a0"`, `},{"policy":"stripe","key":"b1"`)
	for by, want := range map[string]string{"": "want one of depth, age, late, refused",
		"refuse": "did you mean refused?"} {
		i.expect("GET", "/v1/buckets?by="+by, "", 400, `"field":"by"`, want)
	}
	i.expect("GET", "/v1/buckets?limit=1001", "", 400)
	i.expect("GET", "/v1/buckets?offset=1", "", 400)
	stop()
	var keys []string
	for offset := 0; ; {
		var page api.Buckets
		answer := i.expect("GET", fmt.Sprintf("/v1/buckets/stripe?limit=1000&offset=%d", offset),
			"", 200)
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
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "limit=", "offset=-1",
		"offset=10001", "limit=1&limit=2",
		"offset=9500&limit=1000", "page=2", "limit=%zz"} {
		i.expect("GET", "/v1/buckets/stripe?"+query, "", 400, `"field"`)
	}
}

func keyIn(t *testing.T, partition int) string {
	t.Helper()
	names, err := jet.NewNames("")
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		key := fmt.Sprint("k", n)
		if job.Partition(names.Jobs("stripe", queue.Key(key)), 4) == partition {
			return key
		}
	}
}

func TestManageOneBucket(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	key := keyIn(t, 3)
	i.valve("stripe", 3, func(q job.Question) job.Answer {
		switch {
		case q.Op == job.OpBucket && q.Key == queue.Key(key):
			return job.Answer{Bucket: &job.BucketState{Key: q.Key, Depth: 7,
				BucketState: api.BucketState{Waiting: 4, Delayed: 2, Running: 1, Rate: 2.5,
					Paused: true, ThrottledMS: 100, HeadAgeMS: 1500}}}
		case q.Op == job.OpPurge && q.Key == queue.Key(key) && len(q.Jobs) == 0:
			return job.Answer{Removed: 6, More: 40}
		case q.Op == job.OpPurge && q.Key == queue.Key(key) && q.Jobs[0] == 40:
			return job.Answer{Removed: 2, More: 39}
		}
		return job.Answer{Error: "no such question"}
	})
	i.expect("GET", "/v1/buckets/stripe/"+key, "", 200,
		fmt.Sprintf(`{"key":%q,"partition":3,"depth":7,"waiting":4,"delayed":2,`+
			`"running":1,"rate":2.5,"paused":true,"throttled_ms":100,"head_age_ms":1500,"eta_ms":null,"why":"holds 7 of 2 jobs and is full, so new `+
			`ones are refused (4 waiting, 2 delayed, 1 running): the target asked for a pause, which ends now"}`, key))
	i.expect("POST", "/v1/purge/stripe/"+key, "", 200, fmt.Sprintf(`{"key":%q,"removed":8,"more":true}`,
		key))
	i.expect("POST", "/v1/purge/stripe", "", 400, `a policy cannot be purged as a whole`)
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
