package apitest

import (
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
)

// endpoint has what the route table and the structs do not say: its operation's name in
// testdata/operations.txt, its group, the headers that it reads, and the structs of its body and of
// its answers. A text is a [media]; the usual problems are added: see usualProblems.
type endpoint struct {
	id, tag string
	headers []string
	body    any
	answers answers
}

type answers map[int]answer

type answer struct {
	of      any // struct, media or nil
	headers []string
}

// media is a body that is no JSON.
type media string

// oneOf is a body of several kinds, told apart by a field.
type oneOf struct {
	field string
	of    []any
}

// patch is a JSON merge patch of a document.
type patch struct{}

// lines is a stream of documents, or a list of them in a request.
type lines struct{ of any }

var (
	quota    = []string{"X-Ratelimit-Limit", "RateLimit-Policy"}
	counted  = join(quota, "X-Ratelimit-Remaining", "RateLimit")
	accepted = join(counted, "Location", "Idempotent-Replayed")
	refused  = join(counted, "Retry-After", "X-Ratelimit-Retry-After")
	etag     = []string{"ETag"}

	known   = []string{"If-None-Match"}
	matched = []string{"If-Match", "If-None-Match"}
	address = []string{"Penstock-IP"}
	ofJob   = join(address, "Idempotency-Key", "Penstock-Deadline", "Penstock-Not-Before",
		"Penstock-Max-Attempts", "Penstock-Timeout", "Penstock-Retention", "Penstock-Unique",
		"Penstock-Priority", "Penstock-Cost", "Penstock-Method", "Penstock-Path", "Penstock-Tag",
		"Penstock-Callback", "Content-Encoding", "traceparent")
)

func join(names []string, more ...string) []string {
	return append(names[:len(names):len(names)], more...)
}

func is(of any, headers ...string) answer { return answer{of, headers} }

var problem = answer{of: api.Problem{}}

var endpoints = map[string]endpoint{
	"POST /v1/jobs/{policy}/{key}": {"submitJob", "jobs", join(ofJob, "Penstock-Wait"),
		media("*/*"),
		answers{200: is(api.Outcome{}, accepted...), 202: is(api.Accepted{}, accepted...),
			409: problem, 413: problem, 422: problem,
			429: is(api.Rejected{}, refused...)}},
	"GET /v1/jobs/{policy}/{key}": {"listJobs", "jobs", nil, nil, answers{200: is(api.Jobs{})}},
	"POST /v1/jobs:batch": {"submitBatch", "jobs", address, lines{api.BatchJob{}},
		answers{200: is(lines{api.BatchLine{}})}},
	"GET /v1/jobs/{job}": {"getJob", "jobs", nil, nil, answers{
		200: is(oneOf{"state", []any{api.Job{}, api.EndedJob{}}}), 404: problem}},
	"PATCH /v1/jobs/{job}": {"changeJob", "jobs", nil, nil, answers{200: is(api.Job{}),
		409: problem}},
	"DELETE /v1/jobs/{job}": {"cancelJob", "jobs", nil, nil, answers{200: is(api.Job{}),
		409: problem}},

	"GET /v1/check/{policy}/{key}":  {"peek", "checks", address, nil, checked},
	"POST /v1/check/{policy}/{key}": {"check", "checks", address, nil, checked},
	"DELETE /v1/check/{policy}/{key}": {"refund", "checks", address, nil, answers{204: {},
		409: problem}},

	"POST /v1/permits/{policy}/{key}": {"acquirePermit", "permits",
		[]string{"Penstock-Priority", "Penstock-Cost"}, api.PermitRequest{},
		answers{200: is(api.Permit{}), 409: problem,
			429: is(api.Problem{}, "Retry-After", "Retry-After-Ms")}},
	"PUT /v1/permits/{policy}/{key}": {"settlePermit", "permits", nil, api.Settlement{},
		answers{204: {}, 404: problem}},
	"DELETE /v1/permits/{policy}/{key}": {"returnPermit", "permits", nil, nil,
		answers{204: {}}},

	"GET /v1/policies": {"listPolicies", "policies", known, nil,
		answers{200: is(manage.Policies{}, etag...), 304: is(nil, etag...)}},
	"GET /v1/policies/{policy}": {"getPolicy", "policies", known, nil,
		answers{200: is(manage.Policy{}, etag...), 304: is(nil, etag...)}},
	"PUT /v1/policies/{policy}": {"putPolicy", "policies", matched, policy.Policy{},
		answers{200: is(manage.Policy{}, etag...), 201: is(manage.Policy{}, etag...),
			409: problem, 412: problem}},
	"PATCH /v1/policies/{policy}": {"patchPolicy", "policies", matched, patch{}, patched(
		manage.Policy{})},
	"DELETE /v1/policies/{policy}": {"deletePolicy", "policies", matched, nil,
		answers{200: is(api.Deleted{}), 202: is(api.Deleted{}), 409: problem, 412: problem}},
	"PATCH /v1/policies/{policy}/override": {"overridePolicy", "policies", matched, patch{},
		answers{200: is(manage.Policy{}, etag...), 412: problem,
			415: is(api.Problem{}, "Accept-Patch")}},
	"DELETE /v1/policies/{policy}/override": {"restorePolicy", "policies", matched, nil,
		answers{200: is(manage.Policy{}, etag...), 412: problem}},
	"POST /v1/take/{policy}": {"takePolicy", "policies", nil, nil,
		answers{200: is(manage.Policy{})}},
	"POST /v1/release/{policy}": {"releasePolicy", "policies", nil, nil,
		answers{200: is(manage.Policy{})}},
	"POST /v1/pause/{policy}": {"pausePolicy", "policies", nil, nil,
		answers{200: is(manage.Policy{})}},
	"POST /v1/resume/{policy}": {"resumePolicy", "policies", nil, nil,
		answers{200: is(manage.Policy{})}},
	"GET /v1/audit": {"listChanges", "policies", nil, nil,
		answers{200: is(api.AuditList{})}},
	"GET /v1/audit/{policy}": {"listChangesOfPolicy", "policies", nil, nil,
		answers{200: is(api.AuditList{})}},

	"GET /v1/policies/{policy}/keys": {"listOverrides", "keys", nil, nil,
		answers{200: is(manage.Overrides{})}},
	"GET /v1/policies/{policy}/keys/{key}": {"getOverride", "keys", known, nil,
		answers{200: is(manage.Override{}, etag...), 304: is(nil, etag...)}},
	"PUT /v1/policies/{policy}/keys/{key}": {"putOverride", "keys", matched, inforce.Override{},
		answers{200: is(manage.Override{}, etag...), 409: problem, 412: problem}},
	"PATCH /v1/policies/{policy}/keys/{key}": {"patchOverride", "keys", matched, patch{}, patched(
		manage.Override{})},
	"DELETE /v1/policies/{policy}/keys/{key}": {"deleteOverride", "keys", matched, nil,
		answers{200: is(manage.Override{}), 412: problem}},
	"POST /v1/pause/{policy}/{key}": {"pauseKey", "keys", nil, nil,
		answers{200: is(manage.Override{})}},
	"POST /v1/resume/{policy}/{key}": {"resumeKey", "keys", nil, nil,
		answers{200: is(manage.Override{})}},

	"GET /v1/buckets": {"listAllBuckets", "buckets", nil, nil,
		answers{200: is(api.AllBuckets{})}},
	"GET /v1/buckets/{policy}": {"listBuckets", "buckets", nil, nil,
		answers{200: is(api.Buckets{})}},
	"GET /v1/buckets/{policy}/{key}": {"getBucket", "buckets", nil, nil,
		answers{200: is(manage.Bucket{})}},
	"POST /v1/purge/{policy}/{key}": {"purge", "buckets", nil, nil,
		answers{200: is(api.Purged{})}},
	"POST /v1/cancel/{policy}": {"cancelTagged", "jobs", nil, nil,
		answers{200: is(api.Cancelled{})}},
	"POST /v1/cancel/{policy}/{key}": {"cancelTaggedOfKey", "jobs", nil, nil,
		answers{200: is(api.Cancelled{})}},
	"GET /v1/history/{policy}": {"listHistory", "jobs", nil, nil,
		answers{200: is(api.EndedJobs{})}},
	"GET /v1/history/{policy}/{key}": {"listHistoryOfBucket", "jobs", nil, nil,
		answers{200: is(api.EndedJobs{})}},

	"GET /v1/schedules": {"listAllSchedules", "schedules", nil, nil,
		answers{200: is(api.Schedules{})}},
	"GET /v1/schedules/{policy}": {"listSchedules", "schedules", nil, nil,
		answers{200: is(api.Schedules{})}},
	"POST /v1/schedules/{policy}/{key}": {"putSchedule", "schedules",
		[]string{"Penstock-Schedule", "Penstock-Schedule-Zone", "Penstock-Schedule-Name"},
		media("*/*"), answers{201: is(api.Schedule{})}},
	"GET /v1/schedules/{policy}/{key}": {"getSchedule", "schedules", nil, nil,
		answers{200: is(api.ScheduleDetail{})}},
	"PATCH /v1/schedules/{policy}/{key}": {"pauseSchedule", "schedules", nil, nil,
		answers{200: is(api.Schedule{})}},
	"DELETE /v1/schedules/{policy}/{key}": {"deleteSchedule", "schedules", nil, nil,
		answers{204: {}}},
	"POST /v1/run/{policy}/{key}": {"runSchedule", "schedules", nil, nil, answers{
		202: is(api.Accepted{}, accepted...), 429: is(api.Rejected{}, refused...)}},

	"GET /v1/dead": {"listPoliciesWithDeadLetters", "dead letters", nil, nil,
		answers{200: is(api.DeadPolicies{})}},
	"GET /v1/dead/{policy}": {"listDeadLetters", "dead letters", nil, nil,
		answers{200: is(api.DeadLetters{})}},
	"DELETE /v1/dead/{policy}": {"discardDeadLetters", "dead letters", nil, nil,
		answers{200: is(api.Discarded{})}},
	"POST /v1/dead/{policy}/replay": {"replayDeadLetters", "dead letters", nil, nil,
		answers{200: is(api.Replayed{}), 409: problem}},
	"GET /v1/dead/{policy}/{id}": {"getDeadLetter", "dead letters", nil, nil,
		answers{200: is(api.DeadLetter{})}},
	"DELETE /v1/dead/{policy}/{id}": {"discardDeadLetter", "dead letters", nil, nil,
		answers{200: is(api.Discarded{})}},
	"POST /v1/dead/{policy}/{id}/replay": {"replayDeadLetter", "dead letters", nil, nil,
		answers{202: is(api.Accepted{}, quota...), 409: problem,
			429: is(api.Rejected{}, refused...)}},

	"GET /v1/drainers": {"listDrainers", "happenings", nil, nil,
		answers{200: is(api.Drainers{})}},
	"GET /v1/events": {"listenToEvents", "happenings", []string{"Last-Event-ID"}, nil,
		answers{200: is(
			media("text/event-stream"), "Cache-Control", "X-Accel-Buffering")}},
	"GET /v1/minutes/{policy}": {"getMinutes", "happenings", nil, nil,
		answers{200: is(api.Day{})}},
	"GET /v1/stats": {"getStats", "happenings", nil, nil,
		answers{200: is(api.Stats{})}},
	"GET /v1/client": {"getClient", "happenings", nil, nil,
		answers{200: is(api.Grant{})}},

	"GET /healthz": {"health", "operation", nil, nil, answers{200: is(media("text/plain"))}},
	"GET /readyz": {"ready", "operation", nil, nil, answers{200: is(readiness{}),
		503: is(readiness{}, "Retry-After")}},
	"GET /metrics": {"metrics", "operation", nil, nil,
		answers{200: is(media("text/plain"))}},
	"GET /openapi.yaml": {"describe", "operation", nil, nil,
		answers{200: is(media("application/yaml"))}},
}

// readiness is a text, or JSON if the request accepts it.
type readiness struct{}

var checked = answers{200: is(api.Decision{}, counted...), 409: problem,
	429: is(api.Refused{}, refused...)}

func patched(document any) answers {
	return answers{200: is(document, etag...), 409: problem, 412: problem,
		415: is(api.Problem{}, "Accept-Patch")}
}

// untold are the routes that report a missing key, or serve as a policy's target for trials.
var untold = []string{"DELETE /v1/check/{policy}", "GET /v1/check/{policy}",
	"POST /v1/check/{policy}", "POST /v1/jobs/{policy}", "POST /v1/purge/{policy}", "POST /healthz"}

// groups are in the order of the page.
var groups = [][2]string{
	{"jobs", "submitting work"},
	{"checks", "rate limit checks"},
	{"permits", "pacing calls that clients make themselves"},
	{"policies", "named rules: algorithm, numbers, queue, target"},
	{"keys", "limits of individual keys"},
	{"buckets", "queues, one per key of a policy"},
	{"schedules", "recurring and scheduled jobs"},
	{"dead letters", "failed jobs, kept for 14 days"},
	{"happenings", "drainers, events and statistics"},
	{"operation", "health and metrics"},
}
