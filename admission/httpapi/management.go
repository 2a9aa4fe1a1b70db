package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	// maxDocument is the largest policy or override that is read, in bytes.
	maxDocument = 64 << 10

	defaultLimit = 100  // entries of a page
	maxLimit     = 1000 // most entries of a page
)

// management is the part of the handler for operators.
type management struct{ service *manage.Service }

// call answers one method of one resource.
type call func(r *http.Request) (answer.Answer, error)

// resource is what lies at a path: its methods.
type resource map[string]call

const root = "/v1/"

// jobMethods are what a job's path takes besides submissions.
var jobMethods = []string{http.MethodDelete, http.MethodGet, http.MethodHead}

// serves reports whether a request is for the management. A POST to a job's path is a submission.
func (m *management) serves(method, path string) bool {
	if id, found := strings.CutPrefix(path, jobsPath); found {
		return !strings.Contains(id, "/") && slices.Contains(jobMethods, method)
	}
	kind, found := strings.CutPrefix(path, root)
	kind, _, _ = strings.Cut(kind, "/")
	switch kind {
	case "policies", "pause", "resume", "purge", "buckets", "dead", "drainers":
		return found
	}
	return false
}

// manage answers a request for the management.
func (h *handler) manage(w http.ResponseWriter, r *http.Request, path string) {
	found, err := h.management.find(strings.TrimPrefix(path, root))
	if err != nil {
		write(w, h.errors.Answer(err))
		return
	}
	if found == nil {
		notFound(w, r)
		return
	}
	methods := slices.Sorted(maps.Keys(found))
	if found[http.MethodGet] != nil {
		methods = append(methods, http.MethodHead)
	}
	if !allow(w, r, methods...) {
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	r = r.WithContext(manage.WithClient(r.Context(), r.RemoteAddr))
	a, err := found[method](r)
	if err != nil {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close") // what was not read of a body is not waited for
		}
		a = h.errors.Answer(err)
	}
	write(w, a)
}

// find finds what lies at a path below /v1/, nil when nothing does.
func (m *management) find(path string) (resource, error) {
	kind, rest, _ := strings.Cut(path, "/")
	if kind == "policies" && !strings.Contains(path, "/") {
		return resource{http.MethodGet: m.policies}, nil
	}
	if path == "drainers" {
		return resource{http.MethodGet: plain(func(ctx context.Context) (any, error) {
			drainers, err := m.service.Drainers(ctx)
			return map[string]any{"drainers": drainers}, err
		})}, nil
	}
	escaped, rest, more := strings.Cut(rest, "/")
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, &admission.RequestError{Field: "policy", Reason: "is not escaped correctly"}
	}
	switch kind {
	case "jobs":
		return m.job(name)
	case "policies":
		return m.policy(name, rest, more)
	case "dead":
		return m.dead(name, rest, more)
	}
	var key queue.Key
	if more {
		if key, err = decodeKey(rest); err != nil {
			return nil, err
		}
	}
	switch kind {
	case "pause", "resume":
		return m.pause(name, key, more, kind == "pause"), nil
	case "purge":
		return resource{http.MethodPost: plain(func(ctx context.Context) (any, error) {
			if !more {
				return nil, &admission.RequestError{Field: "key", Reason: "is missing: a whole policy is not purged at once; " +
					"the empty key is a slash at the end"}
			}
			return m.service.Purge(ctx, name, key)
		})}, nil
	case "buckets":
		if more {
			return resource{http.MethodGet: plain(func(ctx context.Context) (any, error) {
				return m.service.Bucket(ctx, name, key)
			})}, nil
		}
		return resource{http.MethodGet: func(r *http.Request) (answer.Answer, error) { return m.buckets(r, name) }}, nil
	}
	return nil, nil
}

func (m *management) policies(r *http.Request) (answer.Answer, error) {
	return plain(func(ctx context.Context) (any, error) {
		policies, err := m.service.Policies(ctx)
		return map[string]any{"policies": policies}, err
	})(r)
}

// policy is a policy, the list of its overrides, or one of them.
func (m *management) policy(name, rest string, more bool) (resource, error) {
	if !more {
		return resource{
			http.MethodGet:    func(r *http.Request) (answer.Answer, error) { return m.getPolicy(r, name) },
			http.MethodPut:    func(r *http.Request) (answer.Answer, error) { return m.putPolicy(r, name) },
			http.MethodPatch:  func(r *http.Request) (answer.Answer, error) { return m.patchPolicy(r, name) },
			http.MethodDelete: func(r *http.Request) (answer.Answer, error) { return m.deletePolicy(r, name) },
		}, nil
	}
	kind, rest, more := strings.Cut(rest, "/")
	if kind != "keys" {
		return nil, nil
	}
	if !more {
		return resource{http.MethodGet: func(r *http.Request) (answer.Answer, error) { return m.overrides(r, name) }}, nil
	}
	key, err := decodeKey(rest)
	if err != nil {
		return nil, err
	}
	return resource{
		http.MethodGet:    func(r *http.Request) (answer.Answer, error) { return m.getOverride(r, name, key) },
		http.MethodPut:    func(r *http.Request) (answer.Answer, error) { return m.putOverride(r, name, key) },
		http.MethodPatch:  func(r *http.Request) (answer.Answer, error) { return m.patchOverride(r, name, key) },
		http.MethodDelete: func(r *http.Request) (answer.Answer, error) { return m.deleteOverride(r, name, key) },
	}, nil
}

func (m *management) getPolicy(r *http.Request, name string) (answer.Answer, error) {
	if err := empty(r); err != nil {
		return answer.Answer{}, err
	}
	p, err := m.service.Policy(r.Context(), name)
	if err != nil {
		return answer.Answer{}, err
	}
	return unlessKnown(r, revised(http.StatusOK, p, p.Revision), p.Revision), nil
}

func (m *management) putPolicy(r *http.Request, name string) (answer.Answer, error) {
	w, document, err := writing(r)
	if err != nil {
		return answer.Answer{}, err
	}
	if document, w.Paused, err = unwrapPolicy(document); err != nil {
		return answer.Answer{}, err
	}
	p, err := policy.Parse(document)
	if err != nil {
		return answer.Answer{}, err
	}
	if p.Name == "" {
		p.Name = name
	}
	if p.Name != name {
		return answer.Answer{}, &admission.RequestError{Field: "name",
			Reason: fmt.Sprintf("%.64q is not the name in the path", p.Name)}
	}
	put, created, err := m.service.PutPolicy(r.Context(), p, w)
	return written(put, put.Revision, w, created, err)
}

func (m *management) patchPolicy(r *http.Request, name string) (answer.Answer, error) {
	if a := notAPatch(r); a != nil {
		return *a, nil
	}
	w, patch, err := writing(r)
	if err == nil {
		patch, w.Paused, err = unwrapPolicy(patch)
	}
	if err != nil {
		return answer.Answer{}, err
	}
	patched, err := m.service.PatchPolicy(r.Context(), name, patch, w)
	return written(patched, patched.Revision, w, false, err)
}

func (m *management) deletePolicy(r *http.Request, name string) (answer.Answer, error) {
	if err := empty(r, "purge"); err != nil {
		return answer.Answer{}, err
	}
	purge, err := number(r.URL.Query(), "purge", 0, 0, 1)
	if err != nil {
		return answer.Answer{}, err
	}
	may, err := precondition(r.Header)
	if err != nil {
		return answer.Answer{}, err
	}
	deleted, err := m.service.DeletePolicy(r.Context(), name, purge == 1, manage.Write{If: may})
	switch {
	case err != nil:
		return answer.Answer{}, err
	case deleted.Deleted:
		return answer.JSON(http.StatusOK, deleted), nil
	}
	return answer.JSON(http.StatusAccepted, deleted), nil
}

func (m *management) getOverride(r *http.Request, name string, key queue.Key) (answer.Answer, error) {
	if err := empty(r); err != nil {
		return answer.Answer{}, err
	}
	o, err := m.service.Override(r.Context(), name, key)
	if err != nil {
		return answer.Answer{}, err
	}
	return unlessKnown(r, revised(http.StatusOK, o, o.Revision), o.Revision), nil
}

func (m *management) putOverride(r *http.Request, name string, key queue.Key) (answer.Answer, error) {
	w, document, err := writing(r)
	if err != nil {
		return answer.Answer{}, err
	}
	if document, err = unwrapOverride(document, key); err != nil {
		return answer.Answer{}, err
	}
	o, err := policy.ParseOverride(document)
	if err != nil {
		return answer.Answer{}, err
	}
	put, err := m.service.PutOverride(r.Context(), name, key, o, w)
	return written(put, put.Revision, w, false, err)
}

func (m *management) patchOverride(r *http.Request, name string, key queue.Key) (answer.Answer, error) {
	if a := notAPatch(r); a != nil {
		return *a, nil
	}
	w, patch, err := writing(r)
	if err == nil {
		patch, err = unwrapOverride(patch, key)
	}
	if err != nil {
		return answer.Answer{}, err
	}
	patched, err := m.service.PatchOverride(r.Context(), name, key, patch, w)
	return written(patched, patched.Revision, w, false, err)
}

func (m *management) deleteOverride(r *http.Request, name string, key queue.Key) (answer.Answer, error) {
	if err := empty(r); err != nil {
		return answer.Answer{}, err
	}
	may, err := precondition(r.Header)
	if err == nil {
		err = m.service.DeleteOverride(r.Context(), name, key, manage.Write{If: may})
	}
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, manage.Override{Key: key.Raw()}), nil
}

func (m *management) overrides(r *http.Request, name string) (answer.Answer, error) {
	q, err := parameters(r, "after", "limit")
	if err != nil {
		return answer.Answer{}, err
	}
	limit, err := number(q, "limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return answer.Answer{}, err
	}
	var after queue.Key
	if q.Has("after") {
		if after, err = queue.EncodeKey(q.Get("after")); err != nil {
			return answer.Answer{}, &admission.RequestError{Field: "after", Reason: "is not a key"}
		}
	}
	page, err := m.service.Overrides(r.Context(), name, after, int(limit))
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, page), nil
}

// pause holds back, or lets go, a policy or a bucket.
func (m *management) pause(name string, key queue.Key, ofKey, paused bool) resource {
	return resource{http.MethodPost: plain(func(ctx context.Context) (any, error) {
		if ofKey {
			return m.service.PauseKey(ctx, name, key, paused)
		}
		return m.service.PausePolicy(ctx, name, paused)
	})}
}

func (m *management) buckets(r *http.Request, name string) (answer.Answer, error) {
	q, err := parameters(r, "offset", "limit")
	if err != nil {
		return answer.Answer{}, err
	}
	limit, err := number(q, "limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return answer.Answer{}, err
	}
	offset, err := number(q, "offset", 0, 0, manage.MaxListed)
	if err != nil {
		return answer.Answer{}, err
	}
	page, err := m.service.Buckets(r.Context(), name, int(offset), int(limit))
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, page), nil
}

// job is a job by its id.
func (m *management) job(id string) (resource, error) {
	name, digits, found := strings.Cut(id, ":")
	seq, err := strconv.ParseUint(digits, 10, 64)
	if !found || err != nil {
		return nil, &admission.RequestError{Field: "job", Reason: "want an id such as stripe:42"}
	}
	return resource{
		http.MethodGet:    plain(func(ctx context.Context) (any, error) { return m.lookUp(ctx, name, seq) }),
		http.MethodDelete: plain(func(ctx context.Context) (any, error) { return m.service.Cancel(ctx, name, seq) }),
	}, nil
}

// lookUp finds a job, or what became of it.
func (m *management) lookUp(ctx context.Context, name string, seq uint64) (any, error) {
	job, err := m.service.Job(ctx, name, seq)
	if errors.Is(err, admission.ErrNotFound) || errors.Is(err, admission.ErrUnknownPolicy) {
		if ended, endedErr := m.service.Ended(ctx, name, seq); !errors.Is(endedErr, admission.ErrNotFound) {
			return ended, endedErr
		}
	}
	return job, err
}

// dead is the dead letters of a policy, one of them, or the replay of either.
func (m *management) dead(name, rest string, more bool) (resource, error) {
	if !more {
		return resource{
			http.MethodGet:    func(r *http.Request) (answer.Answer, error) { return m.deadLetters(r, name) },
			http.MethodDelete: func(r *http.Request) (answer.Answer, error) { return m.discardAll(r, name) },
		}, nil
	}
	if rest == "replay" {
		return resource{http.MethodPost: plain(func(ctx context.Context) (any, error) {
			return m.service.ReplayAll(ctx, name)
		})}, nil
	}
	digits, action, more := strings.Cut(rest, "/")
	if more && action != "replay" {
		return nil, nil
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return nil, &admission.RequestError{Field: "id", Reason: "want the number of a dead letter"}
	}
	if more {
		return resource{http.MethodPost: func(r *http.Request) (answer.Answer, error) { return m.replay(r, name, id) }}, nil
	}
	return resource{
		http.MethodGet: plain(func(ctx context.Context) (any, error) { return m.service.DeadLetter(ctx, name, id) }),
		http.MethodDelete: plain(func(ctx context.Context) (any, error) {
			return manage.Discarded{Discarded: 1}, m.service.Discard(ctx, name, id)
		}),
	}, nil
}

func (m *management) deadLetters(r *http.Request, name string) (answer.Answer, error) {
	q, err := parameters(r, "after", "limit")
	if err != nil {
		return answer.Answer{}, err
	}
	limit, err := number(q, "limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return answer.Answer{}, err
	}
	after, err := number(q, "after", 0, 0, maxID)
	if err != nil {
		return answer.Answer{}, err
	}
	page, err := m.service.DeadLetters(r.Context(), name, after, int(limit))
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, page), nil
}

func (m *management) discardAll(r *http.Request, name string) (answer.Answer, error) {
	q, err := parameters(r, "through")
	if err != nil {
		return answer.Answer{}, err
	}
	var through uint64
	if q.Has("through") {
		if through, err = number(q, "through", 0, 1, maxID); err != nil {
			return answer.Answer{}, err
		}
	}
	discarded, err := m.service.DiscardAll(r.Context(), name, through)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusOK, discarded), nil
}

func (m *management) replay(r *http.Request, name string, id uint64) (answer.Answer, error) {
	if _, err := parameters(r); err != nil {
		return answer.Answer{}, err
	}
	outcome, err := m.service.Replay(r.Context(), name, id)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Submitted(outcome), nil
}

// plain makes a call of what needs neither parameters nor a body.
func plain(do func(ctx context.Context) (any, error)) call {
	return func(r *http.Request) (answer.Answer, error) {
		if err := empty(r); err != nil {
			return answer.Answer{}, err
		}
		document, err := do(r.Context())
		if err != nil {
			return answer.Answer{}, err
		}
		return answer.JSON(http.StatusOK, document), nil
	}
}

// empty refuses parameters but the known ones, and a body. One that is announced is not waited for.
func empty(r *http.Request, known ...string) error {
	if _, err := parameters(r, known...); err != nil {
		return err
	}
	n := 1
	var err error
	if r.ContentLength <= 0 {
		n, err = r.Body.Read(make([]byte, 1))
	}
	switch {
	case n > 0:
		return &admission.RequestError{Field: "body", Reason: "is not asked for here"}
	case err != nil && err != io.EOF:
		return unread(err)
	}
	return nil
}

// maxID is the largest number of a dead letter that is taken: the next one is a number, too.
const maxID = 1<<63 - 1

// parameters reads a query, and refuses any parameter that is not known or is given twice: it is most likely misspelt,
// or the rest of a key with a question mark in it.
func parameters(r *http.Request, known ...string) (url.Values, error) {
	if r.URL.ForceQuery {
		return nil, &admission.RequestError{Field: "query", Reason: "is empty; a question mark in a key is written %3F"}
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &admission.RequestError{Field: "query", Reason: "cannot be parsed"}
	}
	for name, given := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, &admission.RequestError{Field: fmt.Sprintf("%.64s", name),
				Reason: "is not a query parameter here; a question mark in a key is written %3F"}
		case len(given) > 1:
			return nil, &admission.RequestError{Field: name, Reason: "is given twice"}
		}
	}
	return values, nil
}

func number(q url.Values, name string, unset, least, most uint64) (uint64, error) {
	if !q.Has(name) {
		return unset, nil
	}
	n, err := strconv.ParseUint(q.Get(name), 10, 64)
	if err != nil || n < least || n > most {
		return 0, &admission.RequestError{Field: name,
			Reason: fmt.Sprintf("must be a whole number from %d to %d", least, most)}
	}
	return n, nil
}

// readDocument reads the JSON of a request.
func readDocument(r *http.Request) ([]byte, error) {
	document, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxDocument))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fmt.Errorf("%w: a policy or an override is at most %d bytes", admission.ErrTooLarge, maxDocument)
	}
	if err != nil {
		return nil, unread(err)
	}
	return document, nil
}
