package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/queue/job"
)

// Policies and overrides are documents with a revision, which is their entity tag.

// revised answers with a document as it is at a revision.
func revised(status int, document any, revision uint64) answer.Answer {
	a := answer.JSON(status, document)
	if revision > 0 {
		a.Header = append(a.Header, answer.Field{Name: "ETag", Value: tag(revision)})
	}
	return a
}

func tag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// written answers with a document that was written, or would be.
func written(document any, revision uint64, w manage.Write, created bool, err error) (
	answer.Answer, error) {

	switch {
	case err != nil:
		return answer.Answer{}, err
	case w.DryRun:
		return answer.JSON(http.StatusOK, document), nil
	case created:
		return revised(http.StatusCreated, document, revision), nil
	}
	return revised(http.StatusOK, document, revision), nil
}

// unlessKnown returns the answer, or 304 for a client that has it already.
func unlessKnown(r *http.Request, a answer.Answer, revision uint64) answer.Answer {
	if known := r.Header.Values("If-None-Match"); len(known) > 0 && matches(known, revision, true) {
		return answer.Answer{Status: http.StatusNotModified,
			Header: []answer.Field{{Name: "ETag", Value: tag(revision)}}}
	}
	return a
}

// writing reads what a request that writes a document says.
func writing(r *http.Request, at place) (w manage.Write, document []byte, err error) {
	dry, err := at.number("dry_run", 0, 0, 1)
	if err != nil {
		return w, nil, err
	}
	w.DryRun, w.Possible = dry == 1, within(at.client)
	if w.If, err = precondition(r.Header); err != nil {
		return w, nil, err
	}
	document, err = readDocument(r)
	return w, document, err
}

// precondition reads If-Match and If-None-Match (RFC 9110); nil: neither is there.
func precondition(h http.Header) (func(revision uint64) bool, error) {
	match, none := h.Values("If-Match"), h.Values("If-None-Match")
	for name, values := range map[string][]string{"If-Match": match, "If-None-Match": none} {
		for _, t := range tags(values) {
			t = strings.TrimPrefix(t, "W/")
			if t != "*" && (len(t) < 2 || t[0] != '"' || t[len(t)-1] != '"') {
				return nil, &admission.RequestError{Field: name,
					Reason: `want * or entity tags such as "7", in quotes`}
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

// matches reports whether one of the entity tags is that of a revision; * is whatever there is. A
// weak tag is one only where a weak comparison will do.
func matches(values []string, revision uint64, weak bool) bool {
	return revision > 0 && slices.ContainsFunc(tags(values), func(t string) bool {
		if weak {
			t = strings.TrimPrefix(t, "W/")
		}
		return t == "*" || t == tag(revision)
	})
}

// tags splits lists of entity tags. Ours hold no commas.
func tags(values []string) []string {
	var list []string
	for _, value := range values {
		for t := range strings.SplitSeq(value, ",") {
			list = append(list, strings.TrimSpace(t))
		}
	}
	return list
}

// unwrapPolicy returns the policy in what GET answers, and any other document as it is. Beside the
// policy only paused means anything: whether the sender takes the policy for paused.
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

// unwrapOverride returns the override in what GET answers, and any other document as it is.
func unwrapOverride(document []byte, key job.Key) (inner []byte, err error) {
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
		return nil, &admission.RequestError{Field: "key",
			Reason: fmt.Sprintf("%.64q is not the key in the path", *enclosed.Key)}
	}
	return enclosed.Inner, nil
}

// unwrap reads a document that has a member of a name, strictly, and reports whether it has.
func unwrap(document []byte, name string, into any) (bool, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(document, &members) != nil || members[name] == nil {
		return false, nil // the reader of the document reports what is wrong
	}
	in := json.NewDecoder(bytes.NewReader(document))
	in.DisallowUnknownFields()
	if err := in.Decode(into); err != nil {
		return true, &admission.RequestError{Field: name,
			Reason: "what is beside it cannot be read: " + err.Error()}
	}
	return true, nil
}

const contentMergePatch = "application/merge-patch+json"

// notAPatch returns the answer for a body whose Content-Type is not that of a JSON merge patch; nil
// if it may be one. The type that curl gives to any data counts as none.
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
