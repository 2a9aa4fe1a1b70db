package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/admission/watch"
)

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

var errEmptyQuery = bad("query", "is empty; escape a question mark in a key as %%3F")

// Unknown and repeated parameters are misspelt, or part of a key with a question mark.
func parameters(r *http.Request, known ...string) (url.Values, error) {
	if r.URL.ForceQuery {
		return nil, errEmptyQuery
	}
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("query", "cannot be parsed")
	}
	for name, given := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, bad(fmt.Sprintf("%.64s", name), "is not a query parameter of this "+
				"path; escape a question mark in a key as %%3F")
		case len(given) > 1:
			return nil, bad(name, "is given twice")
		}
	}
	return values, nil
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

func (at *place) parameters(r *http.Request, listed string) (err error) {
	known := strings.FieldsFunc(listed, func(c rune) bool { return c == '&' })
	at.numbers = make(map[string]uint64, len(known))
	for i, name := range known {
		var typed bool
		known[i], _, typed = strings.Cut(name, "=")
		if of, number := ranges[name]; number && !typed {
			at.numbers[name] = of.unset
		}
	}
	if at.query, err = parameters(r, known...); err != nil {
		return err
	}
	for name := range at.numbers {
		if of := ranges[name]; at.query.Has(name) {
			n, err := strconv.ParseUint(at.query.Get(name), 10, 64)
			if of.least == of.most && n != of.most {
				return bad(name, "must be %d, or left out", of.most)
			} else if err != nil || n < of.least || n > of.most {
				return bad(name, "must be a whole number from %d to %d", of.least, of.most)
			}
			at.numbers[name] = n
		}
	}
	return nil
}

func (at place) number(name string) int { return int(at.numbers[name]) }

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
