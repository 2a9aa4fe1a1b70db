package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/penstock-mq/penstock/admission"
)

// maxDocument bounds the bytes of a policy or an override.
const maxDocument = 64 << 10

// noBody rejects a body, without waiting for one that is announced.
func noBody(r *http.Request) error {
	n := 1
	var err error
	if r.ContentLength <= 0 {
		n, err = r.Body.Read(make([]byte, 1))
	}
	switch {
	case n > 0:
		return bad("body", "is not asked for here")
	case err != nil && err != io.EOF:
		return unread(err)
	}
	return nil
}

var errEmptyQuery = bad("query", "is empty; a question mark in a key is written %%3F")

// parameters reads a query. It rejects unknown and repeated parameters: they are misspelt, or part
// of a key with a question mark.
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
			return nil, bad(fmt.Sprintf("%.64s", name), "is not a query parameter here; a "+
				"question mark in a key is written %%3F")
		case len(given) > 1:
			return nil, bad(name, "is given twice")
		}
	}
	return values, nil
}

func bad(field, reason string, args ...any) error {
	return &admission.RequestError{Field: field, Reason: fmt.Sprintf(reason, args...)}
}

func (at *place) fail(err error) { at.err = cmp.Or(at.err, err) }

func (at *place) number(name string, unset, least, most uint64) uint64 {
	if !at.query.Has(name) {
		return unset
	}
	n, err := strconv.ParseUint(at.query.Get(name), 10, 64)
	if err != nil || n < least || n > most {
		at.fail(bad(name, "must be a whole number from %d to %d", least, most))
	}
	return n
}

func (at *place) limit() int { return int(at.number("limit", defaultLimit, 1, maxLimit)) }

func readDocument(r *http.Request) ([]byte, error) {
	document, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxDocument))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fmt.Errorf("%w: a policy or an override is at most %d bytes",
			admission.ErrTooLarge, maxDocument)
	}
	if err != nil {
		return nil, unread(err)
	}
	return document, nil
}
