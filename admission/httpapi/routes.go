package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// route is one row of the API: a method of a path, who may ask for it, and what answers. A test
// compares openapi.yaml with them.
type route struct {
	method string
	// path may hold {policy}, {job} and {id}, each one segment, and at its end {key...}, the rest
	// of the path, slashes and all. Behind a question mark are the query parameters that an
	// operator's call knows; a client's call reports by itself what is wrong with its query.
	path string
	// right is what a client needs for the policy and the key that the path names, and for all of
	// them where it names none; see [route.each]. Zero: anybody may ask, by any name of the host.
	right access.Right
	ask   call
}

// call answers a request. It does not write: an answer is spelled in one place.
type call func(r *http.Request, at place) (answer.Answer, error)

// managed reports whether the route belongs to the management: what operators ask.
func (rt route) managed() bool {
	return rt.right&(access.Read|access.Operate|access.Admin) != 0 && rt.ask != nil
}

// each reports whether the route names no policy and looks at each that it meets by itself: it is
// for every client that has the right for some.
func (rt route) each() bool {
	path, _, _ := strings.Cut(rt.path, "?")
	return slices.Contains([]string{batchPath, policiesPath, bucketsPath, eventsPath, statsPath,
		clientPath}, path)
}

const (
	root     = "/v1/"
	console  = "/console"
	jobsPath = "/v1/jobs/"

	batchPath    = "/v1/jobs:batch"
	policiesPath = "/v1/policies"
	bucketsPath  = "/v1/buckets"
	eventsPath   = "/v1/events"
	statsPath    = "/v1/stats"
	clientPath   = "/v1/client"
)

// routes are the API. Of the paths that fit a request the first counts, with all methods of its
// form.
func (h *handler) routes() []route {
	s := h.options.Management
	m := management{s, h.options.Clients}
	return []route{
		{"POST", "/v1/jobs/{policy}/{key...}", access.Submit, h.submit},
		{"GET", "/v1/jobs/{policy}/{key...}?after&limit&state&tag", access.Read, m.jobs},
		{"POST", batchPath, access.Submit, h.submitBatch},
		{"GET", "/v1/check/{policy}/{key...}", access.Check, h.check},
		{"POST", "/v1/check/{policy}/{key...}", access.Check, h.check},
		{"DELETE", "/v1/check/{policy}/{key...}", access.Check, h.check},

		{"POST", "/v1/jobs/{policy}", access.Submit, noKey},
		{"DELETE", "/v1/jobs/{job}", access.Operate, numbered(s.Cancel)},
		{"PATCH", "/v1/jobs/{job}?run&front&priority&deadline", access.Operate, m.editJob},
		{"GET", "/v1/jobs/{job}?body", access.Read, m.job},
		{"GET", "/v1/check/{policy}", access.Check, noKey},
		{"POST", "/v1/check/{policy}", access.Check, noKey},
		{"DELETE", "/v1/check/{policy}", access.Check, noKey},

		{"GET", policiesPath, access.Read, m.policies},
		{"GET", "/v1/policies/{policy}", access.Read, m.getPolicy},
		{"PUT", "/v1/policies/{policy}?dry_run", access.Admin, m.putPolicy},
		{"PATCH", "/v1/policies/{policy}?dry_run", access.Admin, m.patchPolicy},
		{"DELETE", "/v1/policies/{policy}?purge", access.Admin, m.deletePolicy},
		{"GET", "/v1/policies/{policy}/keys?after&limit", access.Read, m.overrides},
		{"GET", "/v1/policies/{policy}/keys/{key...}", access.Read, m.getOverride},
		{"PUT", "/v1/policies/{policy}/keys/{key...}?dry_run", access.Operate, m.putOverride},
		{"PATCH", "/v1/policies/{policy}/keys/{key...}?dry_run", access.Operate, m.patchOverride},
		{"DELETE", "/v1/policies/{policy}/keys/{key...}", access.Operate, m.deleteOverride},
		{"POST", "/v1/pause/{policy}", access.Operate, m.pausePolicy(true)},
		{"POST", "/v1/pause/{policy}/{key...}", access.Operate, m.pauseKey(true)},
		{"POST", "/v1/resume/{policy}", access.Operate, m.pausePolicy(false)},
		{"POST", "/v1/resume/{policy}/{key...}", access.Operate, m.pauseKey(false)},
		{"POST", "/v1/cancel/{policy}?tag&after", access.Operate, m.cancelTagged(false)},
		{"POST", "/v1/cancel/{policy}/{key...}?tag&after", access.Operate, m.cancelTagged(true)},

		{"GET", "/v1/schedules/{policy}", access.Read, h.listSchedules},
		{"POST", "/v1/schedules/{policy}/{key...}", access.Submit, h.putSchedule},
		{"GET", "/v1/schedules/{policy}/{key...}?name", access.Read, h.getSchedule},
		{"PATCH", "/v1/schedules/{policy}/{key...}?name&paused", access.Operate,
			h.changeSchedule},
		{"DELETE", "/v1/schedules/{policy}/{key...}?name", access.Operate, h.deleteSchedule},

		{"GET", bucketsPath + "?by&limit", access.Read, m.allBuckets},
		{"GET", "/v1/buckets/{policy}?offset&limit", access.Read, m.buckets},
		{"GET", "/v1/buckets/{policy}/{key...}", access.Read, keyed(s.Bucket)},
		{"POST", "/v1/purge/{policy}", access.Operate, notAWholePolicy},
		{"POST", "/v1/purge/{policy}/{key...}", access.Operate, keyed(s.Purge)},

		{"GET", "/v1/history/{policy}?before&limit", access.Read, m.history},
		{"GET", "/v1/history/{policy}/{key...}?before&limit", access.Read, m.history},

		{"GET", "/v1/dead", access.Read, plain(m.deadPolicies)},
		{"GET", "/v1/dead/{policy}?after&limit", access.Read, m.deadLetters},
		{"DELETE", "/v1/dead/{policy}?through&key&reason&since&before", access.Operate,
			m.discardAll},
		{"POST", "/v1/dead/{policy}/replay?key&reason&since&before", access.Operate, m.replayAll},
		{"GET", "/v1/dead/{policy}/{id}", access.Read, numbered(s.DeadLetter)},
		{"DELETE", "/v1/dead/{policy}/{id}", access.Operate, numbered(m.discard)},
		{"POST", "/v1/dead/{policy}/{id}/replay", access.Operate, m.replay},
		{"GET", "/v1/drainers", access.Read, m.drainers},
		{"GET", eventsPath + "?policy&key&type&recent", access.Read, m.events},
		{"GET", statsPath + "?keys", access.Read, m.stats},
		{"GET", "/v1/minutes/{policy}", access.Read,
			plain(func(ctx context.Context, at place) (queue.Day, error) {
				return s.Day(ctx, at.policy)
			})},
		{"GET", clientPath, access.Any, m.client},

		{"GET", "/healthz", 0, h.health},
		{"POST", "/healthz", 0, h.health}, // a target to try things out with
		{"GET", "/readyz", 0, h.ready},
		{"GET", "/metrics", access.Read, nil}, // Options.Metrics answers by itself
		{"GET", "/openapi.yaml", 0, describe},
	}
}

// resource is what lies at paths of one form: the routes of its methods.
type resource struct {
	form   []string // the segments of the path, with "{}" or "{...}" for those in braces
	routes []route
}

// resources gathers the routes that are served, those of one form together.
func (h *handler) resources() []resource {
	var all []resource
	for _, r := range h.routes() {
		if r.managed() && h.options.Management == nil {
			continue
		}
		form := form(r.path)
		i := slices.IndexFunc(all, func(known resource) bool {
			return slices.Equal(known.form, form)
		})
		if i < 0 {
			i, all = len(all), append(all, resource{form: form})
		}
		all[i].routes = append(all[i].routes, r)
	}
	return all
}

// segments returns the segments of a route's path.
func segments(path string) []string {
	path, _, _ = strings.Cut(path, "?")
	return strings.Split(path, "/")
}

func form(path string) []string {
	form := segments(path)
	for i, s := range form {
		switch {
		case strings.HasSuffix(s, "...}"):
			form[i] = "{...}"
		case strings.HasPrefix(s, "{"):
			form[i] = "{}"
		}
	}
	return form
}

// match returns what a path has in place of the form's braces. Nothing is cleaned, and a segment
// may be empty.
func (re resource) match(path string) (found []string, ok bool) {
	for i, want := range re.form {
		segment, rest, more := strings.Cut(path, "/")
		switch last := i == len(re.form)-1; {
		case want == "{...}":
			return append(found, path), true
		case last == more, want != "{}" && want != segment:
			return nil, false
		case want == "{}":
			found = append(found, segment)
		}
		path = rest
	}
	return found, true
}

// methods returns the methods of the resource, as Allow lists them.
func (re resource) methods() []string {
	var methods []string
	for _, r := range re.routes {
		if methods = append(methods, r.method); r.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	return append(methods, http.MethodOptions)
}

// route returns the route of a method; HEAD has that of GET.
func (re resource) route(method string) (route, bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	i := slices.IndexFunc(re.routes, func(r route) bool { return r.method == method })
	if i < 0 {
		return route{}, false
	}
	return re.routes[i], true
}

// place is what a request names: by its path, and by the query of an operator's.
type place struct {
	policy string
	key    job.Key
	seq    uint64 // of a job or a dead letter
	query  url.Values
	client *access.Client // who asks
	from   admission.Client
}

// place reads what a route's path holds in braces, and the query.
func (rt route) place(r *http.Request, found []string) (at place, err error) {
	path, known, _ := strings.Cut(rt.path, "?")
	for s := range strings.SplitSeq(path, "/") {
		if !strings.HasPrefix(s, "{") {
			continue
		}
		if err = at.read(s, found[0]); err != nil {
			return place{}, err
		}
		found = found[1:]
	}
	if rt.managed() {
		isAnd := func(c rune) bool { return c == '&' }
		at.query, err = parameters(r, strings.FieldsFunc(known, isAnd)...)
	}
	return at, err
}

func (at *place) read(name, escaped string) (err error) {
	if name == "{key...}" {
		at.key, err = decodeKey(escaped)
		return err
	}
	text, err := url.PathUnescape(escaped)
	if err != nil {
		return &admission.RequestError{Field: strings.Trim(name, "{}"),
			Reason: "is not escaped correctly"}
	}
	switch name {
	case "{policy}":
		at.policy = text
	case "{job}":
		var ok bool
		if at.policy, at.seq, ok = job.ParseID(text); !ok {
			return &admission.RequestError{Field: "job", Reason: "want an id such as stripe:42"}
		}
	case "{id}":
		if at.seq, err = strconv.ParseUint(text, 10, 64); err != nil {
			return &admission.RequestError{Field: "id", Reason: "want the number of a dead letter"}
		}
	default:
		panic("a route names " + name + ", which nothing reads")
	}
	return nil
}

// decodeKey reads a key as it is escaped in a path.
func decodeKey(escaped string) (job.Key, error) {
	raw, err := url.PathUnescape(escaped)
	if err != nil {
		return "", &admission.RequestError{Field: "key", Reason: "is not escaped correctly"}
	}
	key, err := job.EncodeKey(raw)
	if err != nil {
		return "", admission.InvalidKey(err)
	}
	return key, nil
}

// noKey answers where a key was most likely forgotten.
func noKey(*http.Request, place) (answer.Answer, error) {
	return answer.Answer{}, &admission.RequestError{Field: "key",
		Reason: "is missing; the empty key is a slash at the end"}
}

func notAWholePolicy(*http.Request, place) (answer.Answer, error) {
	return answer.Answer{}, &admission.RequestError{Field: "key", Reason: "is missing: a whole " +
		"policy is not purged at once; the empty key is a slash at the end"}
}

// plain returns the call of what needs neither parameters nor a body, and answers with a document.
func plain[T any](do func(ctx context.Context, at place) (T, error)) call {
	return func(r *http.Request, at place) (answer.Answer, error) {
		if err := noBody(r); err != nil {
			return answer.Answer{}, err
		}
		return document(do(r.Context(), at))
	}
}

// keyed returns the plain call of what is done with one key of a policy.
func keyed[T any](do func(ctx context.Context, policy string, key job.Key) (T, error)) call {
	return plain(func(ctx context.Context, at place) (T, error) {
		return do(ctx, at.policy, at.key)
	})
}

// numbered returns the plain call of what is done with one job or dead letter of a policy.
func numbered[T any](do func(ctx context.Context, policy string, seq uint64) (T, error)) call {
	return plain(func(ctx context.Context, at place) (T, error) {
		return do(ctx, at.policy, at.seq)
	})
}

// document answers with what a call of the management returned.
func document[T any](d T, err error) (answer.Answer, error) {
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, d), nil
}
