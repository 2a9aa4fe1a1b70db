package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/penstock-mq/penstock/admission"
)

// maxDocument is the largest policy or override that is read, in bytes.
const maxDocument = 64 << 10

// noBody refuses a body. One that is announced is not waited for.
func noBody(r *http.Request) error {
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

var errEmptyQuery = &admission.RequestError{Field: "query",
	Reason: "is empty; a question mark in a key is written %3F"}

// parameters reads a query, and refuses any parameter that is not known or is given twice: it is
// most likely misspelt, or the rest of a key with a question mark in it.
func parameters(r *http.Request, known ...string) (url.Values, error) {
	if r.URL.ForceQuery {
		return nil, errEmptyQuery
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

// number is a parameter of the query: unset unless it is given.
func (at place) number(name string, unset, least, most uint64) (uint64, error) {
	if !at.query.Has(name) {
		return unset, nil
	}
	n, err := strconv.ParseUint(at.query.Get(name), 10, 64)
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
		return nil, fmt.Errorf("%w: a policy or an override is at most %d bytes",
			admission.ErrTooLarge,
			maxDocument)
	}
	if err != nil {
		return nil, unread(err)
	}
	return document, nil
}
