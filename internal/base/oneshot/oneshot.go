// Package oneshot makes HTTP requests that net/http sends at most once, and tells when targets have
// ended their work on those that were aborted.
package oneshot

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// SetBody gives a request a body that net/http cannot resend, as it does on other kept connections
// if requests have an Idempotency-Key or a method such as GET.
func SetBody(request *http.Request, body []byte) {
	// net/http recognizes this in-memory type, and sends it in one packet with the header.
	request.Body = io.NopCloser(bytes.NewReader(body))
	request.ContentLength = int64(len(body))
	if len(body) > 0 {
		return
	}
	// net/http treats length 0 with a body as unknown and would send chunks.
	request.TransferEncoding = []string{"identity"}
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch: // servers may require a length
		// HTTP/1 omits the canonical spelling, HTTP/2 any
		request.Header["content-length"] = []string{"0"}
	}
}

// Cause returns a request's error without net/http's advice to let it resend HTTP/2 requests.
func Cause(err error) error {
	_, cause, advised := strings.Cut(err.Error(), "cannot retry err [")
	if cause, _, _ = strings.Cut(cause, "] after Request.Body was written"); advised {
		return errors.New(cause)
	}
	return err
}

// Leaving reports whether an HTTP/2 server did not take a request because it ends its connection,
// as servers do after some thousand requests.
func Leaving(err error) bool {
	return err != nil && strings.Contains(err.Error(), "graceful shutdown GOAWAY")
}
