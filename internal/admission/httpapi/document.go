package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/admission/watch"
	"github.com/penstock-mq/penstock/queue"
)

// look answers a request without a body with a document; nil: there is none.
func look(do func(ctx context.Context, at place) (document any, err error)) call {
	return func(r *http.Request, at place) (answer.Answer, error) {
		if err := noBody(r); err != nil {
			return answer.Answer{}, err
		}
		return at.answer(r, do)
	}
}

// write is [look] for a request with a document.
func write(patch bool, do func(ctx context.Context, at place) (document any, err error)) call {
	return func(r *http.Request, at place) (_ answer.Answer, err error) {
		if patch {
			if a := notAPatch(r); a != nil {
				return *a, nil
			}
		}
		if at.document, err = readDocument(r); err != nil {
			return answer.Answer{}, err
		}
		return at.answer(r, do)
	}
}

func named[T any](do func(ctx context.Context, policy string) (T, error)) call {
	return look(func(ctx context.Context, at place) (any, error) { return do(ctx, at.policy) })
}

func keyed[T any](do func(ctx context.Context, policy string, key queue.Key) (T, error)) call {
	return look(func(ctx context.Context, at place) (any, error) {
		return do(ctx, at.policy, at.key)
	})
}

func numbered[T any](do func(ctx context.Context, policy string, seq uint64) (T, error)) call {
	return look(func(ctx context.Context, at place) (any, error) {
		return do(ctx, at.policy, at.seq)
	})
}

// withStatus is a document whose status is not 200.
type withStatus struct {
	document any
	status   int
}

func (at place) answer(r *http.Request,
	do func(ctx context.Context, at place) (any, error)) (_ answer.Answer, err error) {

	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !get {
		at.write = manage.Write{DryRun: at.number("dry_run") == 1, Possible: within(at.client)}
		if at.write.If, err = precondition(r.Header); err != nil {
			return answer.Answer{}, err
		}
		if at.write.For, at.write.Because, err = at.lasting(); err != nil {
			return answer.Answer{}, err
		}
	}
	document, err := do(r.Context(), at)
	if err != nil {
		return answer.Answer{}, err
	}
	if document == nil {
		return answer.Answer{Status: http.StatusNoContent}, nil
	}
	status := http.StatusOK
	if given, ok := document.(withStatus); ok {
		document, status = given.document, given.status
	}
	a := answer.JSON(status, document)
	revision := revisionOf(document, a.Body)
	if known := r.Header.Values("If-None-Match"); get && matches(known, revision, true) {
		a = answer.Answer{Status: http.StatusNotModified}
	}
	if revision > 0 && r.Method != http.MethodPost { // a POST's path has no document
		a.Header = append(a.Header, answer.Field{Name: "ETag", Value: tag(revision)})
	}
	return a, nil
}

// revisionOf returns 0 for a document without an ETag. The list of policies has no revision, and is
// tagged by its content.
func revisionOf(document any, text []byte) uint64 {
	switch d := document.(type) {
	case manage.Policy:
		if !d.DryRun {
			return d.Revision
		}
	case manage.Override:
		if !d.DryRun {
			return d.Revision
		}
	case manage.Policies:
		sum := fnv.New64a()
		sum.Write(text)
		return sum.Sum64()
	}
	return 0
}

func tag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

func precondition(h http.Header) (func(revision uint64) bool, error) {
	match, none := h.Values("If-Match"), h.Values("If-None-Match")
	for name, values := range map[string][]string{"If-Match": match, "If-None-Match": none} {
		for _, t := range tags(values) {
			t = strings.TrimPrefix(t, "W/")
			if t != "*" && (len(t) < 2 || t[0] != '"' || t[len(t)-1] != '"') {
				return nil, bad(name, `want * or quoted entity tags such as "7"`)
			}
		}
	}
	if match == nil && none == nil {
		return nil, nil
	}
	return func(revision uint64) bool {
		return (match == nil || matches(match, revision, false)) &&
			(none == nil || !matches(none, revision, true))
	}, nil
}

func matches(values []string, revision uint64, weak bool) bool {
	return revision > 0 && slices.ContainsFunc(tags(values), func(t string) bool {
		if weak {
			t = strings.TrimPrefix(t, "W/")
		}
		return t == "*" || t == tag(revision)
	})
}

func tags(values []string) []string {
	var list []string
	for _, value := range values {
		for t := range strings.SplitSeq(value, ",") {
			list = append(list, strings.TrimSpace(t))
		}
	}
	return list
}

func unwrapPolicy(document []byte) (inner []byte, paused *bool, err error) {
	var enclosed struct {
		manage.Policy
		Inner  json.RawMessage `json:"policy"`
		Paused *bool           `json:"paused"`
	}
	wrapped, err := unwrap(document, "policy", &enclosed)
	if !wrapped || err != nil {
		return document, nil, err
	}
	return enclosed.Inner, enclosed.Paused, nil
}

func unwrapOverride(document []byte, key queue.Key) (inner []byte, err error) {
	var enclosed struct {
		manage.Override
		Inner json.RawMessage `json:"override"`
		Key   *string         `json:"key"`
	}
	wrapped, err := unwrap(document, "override", &enclosed)
	switch {
	case !wrapped || err != nil:
		return document, err
	case enclosed.Key != nil && *enclosed.Key != key.Raw():
		return nil, bad("key", "%.64q differs from the key in the path", *enclosed.Key)
	}
	return enclosed.Inner, nil
}

func unwrap(document []byte, name string, into any) (bool, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(document, &members) != nil || members[name] == nil {
		return false, nil
	}
	if err := decode(document, into); err != nil {
		return true, bad(name, "the fields beside it cannot be read: %v", err)
	}
	return true, nil
}

const contentMergePatch = "application/merge-patch+json"

// notAPatch refuses other content types. It accepts curl's default.
func notAPatch(r *http.Request) *answer.Answer {
	given := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(given)
	switch {
	case given == "":
		return nil
	case err == nil && slices.Contains([]string{contentMergePatch, "application/json",
		"application/x-www-form-urlencoded"}, kind):
		return nil
	}
	a := answer.Problem(http.StatusUnsupportedMediaType,
		fmt.Sprintf("%.64q: want a JSON merge patch, %s", given,
			contentMergePatch), answer.Field{Name: "Accept-Patch", Value: contentMergePatch})
	return &a
}

const maxDocument = 64 << 10

// An announced body is not waited for.
func noBody(r *http.Request) error {
	n := 1
	var err error
	if r.ContentLength <= 0 {
		n, err = r.Body.Read(make([]byte, 1))
	}
	switch {
	case n > 0:
		return bad("body", "must be empty: this request has no body")
	case err != nil && err != io.EOF:
		return unread(err)
	}
	return nil
}

func bad(field, reason string, args ...any) error {
	return &admission.RequestError{Field: field, Reason: fmt.Sprintf(reason, args...)}
}

// ranges bounds the whole numbers in queries, with a default.
var ranges = map[string]struct{ unset, least, most uint64 }{
	"after": {most: maxID}, "before": {most: maxID}, "through": {least: 1, most: maxID},
	"limit": {100, 1, 1000}, "offset": {most: manage.MaxListed},
	"keys": {most: watch.MostKeys}, "recent": {most: watch.MaxRecent},
	"body": {most: 1}, "purge": {most: 1}, "dry_run": {most: 1},
	"run": {0, 1, 1}, "front": {0, 1, 1},
}

// of a dead letter; one more still fits
const maxID = 1<<63 - 1

// parameters reads the query. Unknown and repeated parameters are misspelt, or part of a key with a
// question mark, which would be cut short.
func (at *place) parameters(r *http.Request, rt route) (err error) {
	if r.URL.ForceQuery {
		return bad("query", "is empty; escape a question mark in a key as %%3F")
	}
	if r.URL.RawQuery == "" {
		return nil
	}
	if at.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return bad("query", "cannot be parsed")
	}
	known := rt.parameters()
	at.numbers = map[string]uint64{}
	for _, name := range slices.Sorted(maps.Keys(at.query)) {
		i := slices.IndexFunc(known, func(p Parameter) bool { return p.Name == name })
		switch {
		case i < 0:
			return bad(fmt.Sprintf("%.64s", name), "is not a query parameter of this "+
				"path; escape a question mark in a key as %%3F")
		case len(at.query[name]) > 1:
			return bad(name, "is given twice")
		case !known[i].Number:
			continue
		}
		p := known[i]
		n, err := strconv.ParseUint(at.query.Get(name), 10, 64)
		switch {
		case p.Least == p.Most && n != p.Most:
			return bad(name, "must be %d, or left out", p.Most)
		case err != nil || n < p.Least || n > p.Most:
			return bad(name, "must be a whole number from %d to %d", p.Least, p.Most)
		}
		at.numbers[name] = n
	}
	return nil
}

// number returns a parameter, or its default.
func (at place) number(name string) int {
	n, given := at.numbers[name]
	if !given {
		n = ranges[name].unset
	}
	return int(n)
}

func readDocument(r *http.Request) ([]byte, error) {
	document, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxDocument))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fmt.Errorf("%w: a policy or override has at most %d bytes",
			admission.ErrTooLarge, maxDocument)
	}
	if err != nil {
		return nil, unread(err)
	}
	return document, nil
}
