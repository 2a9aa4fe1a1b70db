package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/queue/job"
)

// route is one row of the API: a method of a path, who may ask, and what answers. The first table
// of docs/api.md lists the same, and a test compares the two.
type route struct {
	method string
	// path may hold {policy}, {job} and {id}, each one segment, and at its end {key...}, the rest
	// of the path, slashes and all. Behind a question mark are the query parameters that an
	// operator's call knows; a client's call reports by itself what is wrong with its query.
	path   string
	rights rights
	ask    call
}

// call answers a request. It does not write: an answer is spelled in one place.
type call func(r *http.Request, at place) (answer.Answer, error)

// rights are what a client needs in order to ask.
type rights int

const (
	// machines ask whether the process lives, by whatever name they know it.
	machines rights = iota
	// named are requests that know the process by one of its names.
	named
	// clients are named, and neither another site's page nor a job on its way to a target.
	clients
	// operators are clients where there is a management.
	operators
)

const (
	root     = "/v1/"
	jobsPath = "/v1/jobs/"
)

// routes are the API. Of the paths that fit a request the first counts, with all methods of its
// form.
func (h *handler) routes() []route {
	s := h.options.Management
	m := management{s}
	return []route{
		{"POST", "/v1/jobs/{policy}/{key...}", clients, h.submit},
		{"POST", "/v1/jobs:batch", clients, h.submitBatch},
		{"GET", "/v1/check/{policy}/{key...}", clients, h.check},
		{"POST", "/v1/check/{policy}/{key...}", clients, h.check},
		{"DELETE", "/v1/check/{policy}/{key...}", clients, h.check},

		{"POST", "/v1/jobs/{policy}", clients, noKey},
		{"DELETE", "/v1/jobs/{job}", operators, numbered(s.Cancel)},
		{"GET", "/v1/jobs/{job}", operators, numbered(m.job)},
		{"GET", "/v1/check/{policy}", clients, noKey},
		{"POST", "/v1/check/{policy}", clients, noKey},
		{"DELETE", "/v1/check/{policy}", clients, noKey},

		{"GET", "/v1/policies", operators, m.policies},
		{"GET", "/v1/policies/{policy}", operators, m.getPolicy},
		{"PUT", "/v1/policies/{policy}?dry_run", operators, m.putPolicy},
		{"PATCH", "/v1/policies/{policy}?dry_run", operators, m.patchPolicy},
		{"DELETE", "/v1/policies/{policy}?purge", operators, m.deletePolicy},
		{"GET", "/v1/policies/{policy}/keys?after&limit", operators, m.overrides},
		{"GET", "/v1/policies/{policy}/keys/{key...}", operators, m.getOverride},
		{"PUT", "/v1/policies/{policy}/keys/{key...}?dry_run", operators, m.putOverride},
		{"PATCH", "/v1/policies/{policy}/keys/{key...}?dry_run", operators, m.patchOverride},
		{"DELETE", "/v1/policies/{policy}/keys/{key...}", operators, m.deleteOverride},
		{"POST", "/v1/pause/{policy}", operators, m.pausePolicy(true)},
		{"POST", "/v1/pause/{policy}/{key...}", operators, m.pauseKey(true)},
		{"POST", "/v1/resume/{policy}", operators, m.pausePolicy(false)},
		{"POST", "/v1/resume/{policy}/{key...}", operators, m.pauseKey(false)},

		{"GET", "/v1/buckets/{policy}?offset&limit", operators, m.buckets},
		{"GET", "/v1/buckets/{policy}/{key...}", operators, keyed(s.Bucket)},
		{"POST", "/v1/purge/{policy}", operators, notAWholePolicy},
		{"POST", "/v1/purge/{policy}/{key...}", operators, keyed(s.Purge)},

		{"GET", "/v1/dead/{policy}?after&limit", operators, m.deadLetters},
		{"DELETE", "/v1/dead/{policy}?through", operators, m.discardAll},
		{"POST", "/v1/dead/{policy}/replay", operators, m.replayAll},
		{"GET", "/v1/dead/{policy}/{id}", operators, numbered(s.DeadLetter)},
		{"DELETE", "/v1/dead/{policy}/{id}", operators, numbered(m.discard)},
		{"POST", "/v1/dead/{policy}/{id}/replay", operators, m.replay},
		{"GET", "/v1/drainers", operators, m.drainers},

		{"GET", "/healthz", machines, h.health},
		{"POST", "/healthz", machines, h.health}, // a target to try things out with
		{"GET", "/readyz", machines, h.ready},
		{"GET", "/metrics", named, nil}, // Options.Metrics answers by itself
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
		if r.rights == operators && h.options.Management == nil {
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
}

// place reads what a route's path holds in braces, and the query.
func (rt route) place(r *http.Request, found []string) (at place, err error) {
	for _, s := range segments(rt.path) {
		if !strings.HasPrefix(s, "{") {
			continue
		}
		if err = at.read(s, found[0]); err != nil {
			return place{}, err
		}
		found = found[1:]
	}
	if rt.rights == operators {
		_, known, _ := strings.Cut(rt.path, "?")
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
