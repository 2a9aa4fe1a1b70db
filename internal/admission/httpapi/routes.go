package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// route is an endpoint. openapi.yaml is generated from the routes: see [Routes].
type route struct {
	method string
	// path may hold {policy}, {job} and {id}, one segment each, and end in {key...}, the rest with
	// its slashes. The query parameters follow a question mark; "=" and a type marks one without a
	// range in [ranges].
	path string
	// required for the policy and key in the path, or for all; zero: public
	right access.Right
	ask   call
}

type call func(r *http.Request, at place) (answer.Answer, error)

func (rt route) managed() bool {
	return rt.right&(access.Read|access.Operate|access.Admin) != 0 && rt.ask != nil
}

// parameters lists those of the path's query.
func (rt route) parameters() (all []Parameter) {
	_, query, _ := strings.Cut(rt.path, "?")
	for _, given := range strings.FieldsFunc(query, func(c rune) bool { return c == '&' }) {
		name, _, typed := strings.Cut(given, "=")
		of, number := ranges[name]
		all = append(all, Parameter{name, number && !typed, of.unset, of.least, of.most})
	}
	return all
}

// each: the handler checks each policy, so the right for any suffices.
func (rt route) each() bool {
	path, _, _ := strings.Cut(rt.path, "?")
	return slices.Contains([]string{batchPath, policiesPath, bucketsPath, schedulesPath,
		eventsPath, statsPath, clientPath}, path)
}

const (
	root      = "/v1/"
	console   = "/console"
	jobsPath  = "/v1/jobs/"
	checkPath = "/v1/check/"

	batchPath     = "/v1/jobs:batch"
	policiesPath  = "/v1/policies"
	bucketsPath   = "/v1/buckets"
	schedulesPath = "/v1/schedules"
	eventsPath    = "/v1/events"
	statsPath     = "/v1/stats"
	clientPath    = "/v1/client"
)

func (h *handler) routes() []route {
	process := []route{
		{"GET", "/healthz", 0, h.health},
		{"POST", "/healthz", 0, h.health}, // lets the process serve as a target for trials
		{"GET", "/readyz?verbose", 0, h.ready},
		{"GET", "/metrics", access.Read, nil},
	}
	if h.service == nil {
		return process
	}
	m := management{h.options.Management, h.options.Clients}
	return append([]route{
		{"POST", "/v1/jobs/{policy}/{key...}?wait", access.Submit, h.submit},
		{"GET", "/v1/jobs/{policy}/{key...}?after&limit&state&tag", access.Read, look(m.jobs)},
		{"POST", batchPath, access.Submit, h.submitBatch},
		{"GET", "/v1/check/{policy}/{key...}?cost", access.Check, h.check},
		{"POST", "/v1/check/{policy}/{key...}?cost", access.Check, h.check},
		{"DELETE", "/v1/check/{policy}/{key...}?cost", access.Check, h.check},

		{"POST", "/v1/permits/{policy}/{key...}?wait", access.Submit, h.acquire},
		{"PUT", "/v1/permits/{policy}/{key...}?permit", access.Submit, h.settle},
		{"DELETE", "/v1/permits/{policy}/{key...}?permit", access.Submit, h.settle},

		{"POST", "/v1/jobs/{policy}", access.Submit, noKey},
		{"DELETE", "/v1/jobs/{job}", access.Operate, numbered(m.Cancel)},
		{"PATCH", "/v1/jobs/{job}?run&front&priority&deadline", access.Operate, look(m.editJob)},
		{"GET", "/v1/jobs/{job}?body", access.Read, look(m.job)},
		{"GET", "/v1/check/{policy}", access.Check, noKey},
		{"POST", "/v1/check/{policy}", access.Check, noKey},
		{"DELETE", "/v1/check/{policy}", access.Check, noKey},

		{"GET", policiesPath, access.Read, look(m.policies)},
		{"GET", "/v1/policies/{policy}", access.Read, named(m.Policy)},
		{"PUT", "/v1/policies/{policy}?dry_run", access.Admin, write(false, m.putPolicy)},
		{"PATCH", "/v1/policies/{policy}?dry_run&for&because", access.Admin,
			write(true, m.patchPolicy)},
		{"DELETE", "/v1/policies/{policy}?purge", access.Admin, look(m.deletePolicy)},
		{"PATCH", "/v1/policies/{policy}/override?dry_run&for&because", access.Operate,
			write(true, m.overridePolicy)},
		{"DELETE", "/v1/policies/{policy}/override", access.Operate, look(m.restorePolicy)},
		{"POST", "/v1/take/{policy}?set", access.Admin, look(m.takePolicy)},
		{"POST", "/v1/release/{policy}", access.Admin, named(m.ReleasePolicy)},
		{"GET", "/v1/policies/{policy}/keys?after=key&limit", access.Read, look(m.overrides)},
		{"GET", "/v1/policies/{policy}/keys/{key...}", access.Read, keyed(m.Override)},
		{"PUT", "/v1/policies/{policy}/keys/{key...}?dry_run", access.Operate,
			m.writeOverride(false)},
		{"PATCH", "/v1/policies/{policy}/keys/{key...}?dry_run", access.Operate,
			m.writeOverride(true)},
		{"DELETE", "/v1/policies/{policy}/keys/{key...}", access.Operate, look(m.deleteOverride)},
		{"POST", "/v1/pause/{policy}?for&because", access.Operate, m.pausePolicy(true)},
		{"POST", "/v1/pause/{policy}/{key...}", access.Operate, m.pauseKey(true)},
		{"POST", "/v1/resume/{policy}", access.Operate, m.pausePolicy(false)},
		{"POST", "/v1/resume/{policy}/{key...}", access.Operate, m.pauseKey(false)},
		{"POST", "/v1/cancel/{policy}?tag&after", access.Operate, m.cancelTagged(false)},
		{"POST", "/v1/cancel/{policy}/{key...}?tag&after", access.Operate, m.cancelTagged(true)},

		{"GET", schedulesPath + "?limit", access.Read, look(h.allSchedules)},
		{"GET", "/v1/schedules/{policy}", access.Read, h.schedule(listSchedules)},
		{"POST", "/v1/schedules/{policy}/{key...}", access.Submit, h.putSchedule},
		{"GET", "/v1/schedules/{policy}/{key...}?name", access.Read, h.schedule(getSchedule)},
		{"PATCH", "/v1/schedules/{policy}/{key...}?name&paused", access.Operate,
			h.schedule(changeSchedule)},
		{"DELETE", "/v1/schedules/{policy}/{key...}?name", access.Operate,
			h.schedule(removeSchedule)},
		{"POST", "/v1/run/{policy}/{key...}?name", access.Operate, h.runSchedule},

		{"GET", bucketsPath + "?by&limit", access.Read, look(m.allBuckets)},
		{"GET", "/v1/buckets/{policy}?offset&limit", access.Read, look(m.buckets)},
		{"GET", "/v1/buckets/{policy}/{key...}", access.Read, keyed(m.Bucket)},
		{"POST", "/v1/purge/{policy}", access.Operate, notAWholePolicy},
		{"POST", "/v1/purge/{policy}/{key...}", access.Operate, keyed(m.Purge)},

		{"GET", "/v1/history/{policy}?before&limit", access.Read, look(m.history)},
		{"GET", "/v1/history/{policy}/{key...}?before&limit", access.Read, look(m.history)},

		{"GET", "/v1/audit?before&limit", access.Read, look(m.audit)},
		{"GET", "/v1/audit/{policy}?before&limit", access.Read, look(m.auditOfPolicy)},

		{"GET", "/v1/dead", access.Read, look(m.deadPolicies)},
		{"GET", "/v1/dead/{policy}?after&limit", access.Read, look(m.deadLetters)},
		{"DELETE", "/v1/dead/{policy}?through&key&reason&since&before=time", access.Operate,
			selected(m.DiscardSome)},
		{"POST", "/v1/dead/{policy}/replay?key&reason&since&before=time", access.Operate,
			selected(m.ReplaySome)},
		{"GET", "/v1/dead/{policy}/{id}", access.Read, numbered(m.DeadLetter)},
		{"DELETE", "/v1/dead/{policy}/{id}", access.Operate, numbered(m.Discard)},
		{"POST", "/v1/dead/{policy}/{id}/replay", access.Operate, m.replay},
		{"GET", "/v1/drainers", access.Read, look(m.drainers)},
		{"GET", eventsPath + "?policy&key&type&recent", access.Read, m.events},
		{"GET", statsPath + "?keys", access.Read, look(m.stats)},
		{"GET", "/v1/minutes/{policy}", access.Read, named(m.Day)},
		{"GET", clientPath, access.Any, look(m.client)},

		{"GET", "/openapi.yaml", 0, describe},
	}, process...)
}

// Route is an endpoint of the API, for its description.
type Route struct {
	Method, Path string // {key...} in the path is the rest of it
	Right        access.Right
	Query        []Parameter
}

// Parameter is a parameter of a query. A Number is within a range.
type Parameter struct {
	Name               string
	Number             bool
	Unset, Least, Most uint64
}

// Routes returns the endpoints of an admitter.
func Routes() (all []Route) {
	for _, rt := range (&handler{service: struct{ Service }{}}).routes() {
		path, _, _ := strings.Cut(rt.path, "?")
		all = append(all, Route{rt.method, path, rt.right, rt.parameters()})
	}
	return all
}

type resource struct {
	form   []string // path segments, with "{}" or "{...}" for those in braces
	routes []route
}

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

// Paths are not cleaned; segments may be empty.
func (re resource) match(path string) (found []string, ok bool) {
	found = make([]string, 0, 2)
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

func (re resource) methods() []string {
	var methods []string
	for _, r := range re.routes {
		if methods = append(methods, r.method); r.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	return append(methods, http.MethodOptions)
}

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

type place struct {
	policy  string
	key     queue.Key
	seq     uint64
	query   url.Values
	numbers map[string]uint64
	client  *access.Client
	// of a request that may change something
	document []byte
	write    manage.Write
	from     admit.Client
	ip       string // address that limits apply to; empty: unknown
	proxy    error  // why the address in a header is ignored
}

func (rt route) place(found []string) (at place, err error) {
	path, _, _ := strings.Cut(rt.path, "?")
	for s := range strings.SplitSeq(path, "/") {
		if !strings.HasPrefix(s, "{") {
			continue
		}
		if err = at.read(s, found[0]); err != nil {
			return place{}, err
		}
		found = found[1:]
	}
	return at, nil
}

func (at *place) read(name, escaped string) (err error) {
	if name == "{key...}" {
		at.key, err = decodeKey(escaped)
		return err
	}
	text, err := url.PathUnescape(escaped)
	if err != nil {
		return bad(strings.Trim(name, "{}"), "is not escaped correctly")
	}
	switch name {
	case "{policy}":
		at.policy = text
	case "{job}":
		var ok bool
		if at.policy, at.seq, ok = job.ParseID(text); !ok {
			return bad("job", "want a job id such as stripe:42")
		}
	case "{id}":
		if at.seq, err = strconv.ParseUint(text, 10, 64); err != nil {
			return bad("id", "want the id of a dead letter, which is a number")
		}
	default:
		panic("a route names " + name + ", which nothing reads")
	}
	return nil
}

func decodeKey(escaped string) (queue.Key, error) {
	raw, err := url.PathUnescape(escaped)
	if err != nil {
		return "", bad("key", "is not escaped correctly")
	}
	key, err := queue.EncodeKey(raw)
	if err != nil {
		return "", admit.InvalidKey(err)
	}
	return key, nil
}

func noKey(*http.Request, place) (answer.Answer, error) {
	return answer.Answer{}, bad("key", "is missing; end the path with a slash for the empty key")
}

func notAWholePolicy(*http.Request, place) (answer.Answer, error) {
	return answer.Answer{}, bad("key", "is missing: a policy cannot be purged as a whole; end "+
		"the path with a slash for the empty key")
}

// permits returns why the client may not send the request, which does not reveal whether the
// resource exists. A job or dead letter named by number needs the right for all keys of its policy.
func (rt route) permits(at place) error {
	path, _, _ := strings.Cut(rt.path, "?")
	may, scope := at.client.MayAll(rt.right), " for all policies and keys"
	switch {
	case rt.right == 0:
		return nil
	case rt.each():
		may, scope = at.client.May(rt.right), ""
	case strings.HasSuffix(path, "{key...}"):
		may = at.client.MayKey(rt.right, at.policy, at.key.Raw())
		scope = " for key %.64[3]q of policy %.64[2]q"
	case strings.Contains(path, "{"):
		may = at.client.MayPolicy(rt.right, at.policy)
		scope = " for policy %.64[2]q with all its keys"
	}
	if may {
		return nil
	}
	return forbidden(at.client,
		fmt.Sprintf("%[1]s"+scope, rt.right, at.policy, at.key.Raw()))
}

func forbidden(c *access.Client, what string) error {
	return fmt.Errorf("%w: the client %q has no right to %s", admit.ErrForbidden, c.Name, what)
}

func permitSubmit(c *access.Client, r admit.SubmitRequest) error {
	if c.MayKey(access.Submit, r.Policy, r.Key.Raw()) {
		return nil
	}
	return forbidden(c, fmt.Sprintf("submit for key %.64q of policy %.64q", r.Key.Raw(), r.Policy))
}

// within checks the right to write a policy. A NATS target publishes with the drainers' rights, and
// new callbacks are signed by another policy.
func within(c *access.Client) func(before, p policy.Policy) []policy.Problem {
	return func(before, p policy.Policy) []policy.Problem {
		var found []policy.Problem
		if p.Target != nil && p.Target.NATS != nil && !c.MayAll(access.Admin) {
			found = append(found, policy.Problem{Field: "target.nats",
				Reason: "requires the right admin for all policies, because it reaches them all"})
		}
		if through := p.Callbacks; through != "" && through != before.Callbacks &&
			!c.MayPolicy(access.Admin, through) {
			found = append(found, policy.Problem{Field: "callbacks", Reason: fmt.Sprintf(
				"requires the right admin for policy %.64q too, which signs callbacks", through)})
		}
		return found
	}
}

func describe(*http.Request, place) (answer.Answer, error) {
	return answer.Answer{Status: http.StatusOK, Body: []byte(api.OpenAPI),
		Header: []answer.Field{{Name: "Content-Type", Value: "application/yaml"}}}, nil
}
