package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/queue/job"
)

func revised(status int, document any, revision uint64) answer.Answer {
	a := answer.JSON(status, document)
	if revision > 0 {
		a.Header = append(a.Header, answer.Field{Name: "ETag", Value: tag(revision)})
	}
	return a
}

func tag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

func write(patch bool, do func(ctx context.Context, at place, document []byte, w manage.Write) (
	written any, revision uint64, created bool, err error)) call {

	return func(r *http.Request, at place) (answer.Answer, error) {
		if patch {
			if a := notAPatch(r); a != nil {
				return *a, nil
			}
		}
		may, err := precondition(r.Header)
		if err != nil {
			return answer.Answer{}, err
		}
		document, err := readDocument(r)
		if err != nil {
			return answer.Answer{}, err
		}
		w := manage.Write{If: may, DryRun: at.number("dry_run") == 1, Possible: within(at.client)}
		if w.For, w.Because, err = at.lasting(); err != nil {
			return answer.Answer{}, err
		}
		written, revision, created, err := do(r.Context(), at, document, w)
		switch {
		case err != nil:
			return answer.Answer{}, err
		case w.DryRun:
			return answer.JSON(http.StatusOK, written), nil
		case created:
			return revised(http.StatusCreated, written, revision), nil
		}
		return revised(http.StatusOK, written, revision), nil
	}
}

// tagged answers 304 if the client has the document. A list has no revision, and is tagged by its
// content.
func tagged(read func(ctx context.Context, at place) (document any, revision uint64,
	err error)) call {

	return func(r *http.Request, at place) (answer.Answer, error) {
		if err := noBody(r); err != nil {
			return answer.Answer{}, err
		}
		document, revision, err := read(r.Context(), at)
		if err != nil {
			return answer.Answer{}, err
		}
		a := answer.JSON(http.StatusOK, document)
		if revision == 0 {
			sum := fnv.New64a()
			sum.Write(a.Body)
			revision = sum.Sum64()
		}
		known := r.Header.Values("If-None-Match")
		if len(known) > 0 && matches(known, revision, true) {
			a = answer.Answer{Status: http.StatusNotModified}
		}
		a.Header = append(a.Header, answer.Field{Name: "ETag", Value: tag(revision)})
		return a, nil
	}
}

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
