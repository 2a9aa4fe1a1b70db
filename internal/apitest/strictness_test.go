package apitest

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestAWrongAnswerIsFound(t *testing.T) {
	const (
		kind    = "Content-Type: application/json"
		wrong   = "Content-Type: application/problem+json"
		lines   = "Content-Type: application/x-ndjson"
		policy  = "GET /v1/policies/a"
		aPolicy = `{"policy":{"limits":[{"name":"a"}]},"revision":1,"source":"api",` +
			`"state":"live","paused":false,` +
			`"last_change":{"at":"2026-11-23T14:32:07Z","changed":[]}}`
		aJob = `{"job":"a:1","key":"b","state":"dead","accepted_at":"2026-11-23T14:32:07Z",` +
			`"letter":1,"reason":"permanent","attempts":1,"size":1,` +
			`"dead_at":"2026-11-23T14:32:07Z"}`
		aProblem = `{"type":"about:blank","title":"Bad Request","status":400,"detail":"a"}`
		drainers = `{"drainers":[{"id":"a","alive":true,"lease_ms":1,"lease_age_ms":1,` +
			`"draining":false,"policies":{"a":{"owned":[0],"workers":1,"busy":0,"free":1}}}]}`
		line = `{"n":1,"status":202,"verdict":"queued","job":"a:1"}` + "\n"
	)
	d := open(t)
	for _, a := range []struct {
		wrong, operation string
		status           int
		header, body     string
		old, new         string // in the body
	}{
		{"", policy, 200, kind + "\nETag: \"1\"", aPolicy, "", ""},
		{"", policy, 304, "ETag: \"1\"", "", "", ""},
		{"", policy, 400, wrong, aProblem, "", ""},
		{"", "GET /v1/jobs/a:1", 200, kind, aJob, "", ""},
		{"", "GET /v1/drainers", 200, kind, drainers, "", ""},
		{"", "POST /v1/jobs:batch", 200, lines, line + line, "", ""},
		{"member", policy, 200, kind, aPolicy, `"revision"`, `"x":1,"revision"`},
		{"member of an inner object", policy, 200, kind, aPolicy, `"at"`, `"x":1,"at"`},
		{"member of allOf", policy, 200, kind, aPolicy, `"limits"`, `"x":1,"limits"`},
		{"member of an item", policy, 200, kind, aPolicy, `"name"`, `"x":1,"name"`},
		{"member of oneOf", "GET /v1/jobs/a:1", 200, kind, aJob, `"job"`, `"x":1,"job"`},
		{"member of a map's value", "GET /v1/drainers", 200, kind, drainers, `"busy"`,
			`"x":1,"busy"`},
		{"member of a problem", policy, 400, wrong, aProblem, `"title"`, `"x":1,"title"`},
		{"member of a line", "POST /v1/jobs:batch", 200, lines, line + line, "\n{", "\n{\"x\":1,"},
		{"type", policy, 200, kind, aPolicy, `"revision":1`, `"revision":"1"`},
		{"missing member", policy, 200, kind, aPolicy, `"paused":false,`, ``},
		{"word", policy, 200, kind, aPolicy, `"api"`, `"x"`},
		{"time", policy, 200, kind, aPolicy, `23T14`, `23 at 14`},
		{"day", policy, 200, kind, aPolicy, `11-23`, `11-31`},
		{"URI", policy, 400, wrong, aProblem, `about:blank`, `a b`},
		{"JSON", policy, 200, kind, aPolicy, `{`, ``},
		{"missing body", policy, 200, kind, aPolicy, aPolicy, ``},
		{"body", policy, 304, kind, aPolicy, "", ""},
		{"status", policy, 203, kind, aPolicy, "", ""},
		{"content type", policy, 200, "Content-Type: text/plain", aPolicy, "", ""},
		{"missing content type", policy, 200, "", aPolicy, "", ""},
		{"header", policy, 200, kind + "\nX-A: 1", aPolicy, "", ""},
		{"pattern of a header", policy, 200, kind + "\nETag: 1", aPolicy, "", ""},
		{"pattern of a header of 304", policy, 304, "ETag: 1", "", "", ""},
		{"number in a header", policy, 503, wrong + "\nRetry-After: a", aProblem, "", ""},
		{"minimum of a header", policy, 503, wrong + "\nRetry-After: 0", aProblem, "", ""},
	} {
		r := &http.Response{StatusCode: a.status, Header: http.Header{}}
		for line := range strings.Lines(a.header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			r.Header.Set(name, value)
		}
		method, path, _ := strings.Cut(a.operation, " ")
		r.Request = request(t, method, path)
		found := ""
		d.hold(d.find(method, path), r, []byte(strings.Replace(a.body, a.old, a.new, 1)),
			func(format string, args ...any) { found += fmt.Sprintf(format, args...) })
		if (found != "") != (a.wrong != "") {
			t.Errorf("%s %d with a wrong %q: found %q", a.operation, a.status, a.wrong, found)
		}
	}
}

func TestAWrongDescriptionIsFound(t *testing.T) {
	for _, edit := range [][2]string{
		{"operationId: getPolicy", "operationID: getPolicy"},
		{"description: the policies, sorted by name\n", "\n"},
		{"in: query", "in: somewhere"},
		{"{type: integer, minimum: 0}", "{type: int, minimum: 0}"},
		{"required: [policies]", "required: policies"},
		{"'#/components/schemas/Jobs'", "'#/components/schemas/Nothing'"},
		{"name: wait\n          in: query", "in: query"},
		{"title: Penstock", ""},
		{"\"304\": {", "three: {"},
	} {
		text := source(t)
		wrong := bytes.Replace(text, []byte(edit[0]), []byte(edit[1]), 1)
		if _, err := parse(wrong); err == nil || bytes.Equal(text, wrong) {
			t.Errorf("%q instead of %q is valid", edit[1], edit[0])
		}
	}
}
