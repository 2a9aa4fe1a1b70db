package outbound

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/base/clienttls"
	"github.com/penstock-mq/penstock/internal/base/files"
)

// ErrorHeader holds the code of an answer of the proxy itself.
const ErrorHeader = "Penstock-Error"

const mostRetryAfter = 120 * time.Second // openai-python gives up above it

const codeUpstream = "upstream"

type refusal struct {
	status int
	code   string
	detail string
	again  time.Duration // until the retry; 0: unknown
	retry  string        // true, false or empty
}

func (r *refusal) Error() string { return r.detail }

func refused(err error) *refusal {
	var own *refusal
	refusing, throttled := errors.AsType[*admission.RefusedError](err)
	_, bad := errors.AsType[*admission.RequestError](err)
	_, unread := errors.AsType[*clienttls.FileError](err)
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, admission.ErrTargetDown):
		return &refusal{http.StatusServiceUnavailable, "down", err.Error(), refusing.RetryAfter,
			"true"}
	case throttled:
		return &refusal{http.StatusTooManyRequests, "throttled", err.Error(),
			max(refusing.RetryAfter, time.Millisecond), "true"}
	case bad:
		return &refusal{http.StatusBadRequest, "invalid", err.Error(), 0, "false"}
	case errors.Is(err, access.ErrNobody), errors.Is(err, access.ErrUnknown):
		return &refusal{http.StatusUnauthorized, "unauthorized", "the token of a known client (" +
			"Penstock-Authorization: Bearer TOKEN) or its certificate is required", 0,
			"false"}
	case errors.Is(err, admit.ErrForbidden):
		return &refusal{http.StatusForbidden, "forbidden", err.Error(), 0, "false"}
	case errors.Is(err, admission.ErrUnknownPolicy), errors.Is(err, admission.ErrConflict):
		return &refusal{http.StatusBadGateway, "policy", err.Error(), 0, "false"}
	case errors.Is(err, admission.ErrNoDrainer):
		return &refusal{http.StatusServiceUnavailable, admit.ReasonDrainer,
			"no drainer answers for this policy; start drainer, or admitter --drain", time.Second,
			"true"}
	case errors.Is(err, admission.ErrUnavailable), errors.Is(err, access.ErrProvider):
		return &refusal{http.StatusServiceUnavailable, admit.Reason(err),
			"the request cannot be scheduled at the moment", time.Second, "true"}
	case files.Short(err):
		return &refusal{http.StatusServiceUnavailable, admit.ReasonBusy,
			"this admitter has no free file descriptor: " + files.Advice, time.Second, "true"}
	case unread: // the error has their paths
		return &refusal{http.StatusBadGateway, "tls",
			"the proxy cannot read the TLS files of this route; its log names them", 0, ""}
	}
	return &refusal{http.StatusBadGateway, codeUpstream,
		fmt.Sprintf("the upstream did not answer: %.1000v", err), 0, ""}
}

// kinds are SDKs' types of errors, by status.
var kinds = map[int]string{
	http.StatusBadRequest:      "invalid_request_error",
	http.StatusUnauthorized:    "authentication_error",
	http.StatusForbidden:       "permission_error",
	http.StatusNotFound:        "not_found_error",
	http.StatusTooManyRequests: "rate_limit_error",
}

// write answers in the form of the SDKs' own APIs. Stripe's SDKs repeat a 429 only with
// Stripe-Should-Retry, stripe-go only with the code lock_timeout.
func (r *refusal) write(w http.ResponseWriter, caller string) {
	h := w.Header()
	clear(h)
	h.Set(ErrorHeader, r.code)
	h.Set("Content-Type", "application/json")
	if r.again > 0 {
		again := min(r.again, mostRetryAfter)
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(again.Seconds()))))
		h.Set("Retry-After-Ms", strconv.FormatInt(max(1, again.Milliseconds()), 10))
	}
	if r.retry != "" {
		h.Set("X-Should-Retry", r.retry)
		h.Set("Stripe-Should-Retry", r.retry)
	}
	if r.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", access.Realm)
	}
	status, code := r.status, "penstock_"+r.code
	if strings.HasPrefix(caller, "Stripe/") && r.retry == "true" {
		status, code = http.StatusTooManyRequests, "lock_timeout"
	}
	kind := cmp.Or(kinds[status], "api_error")
	body, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{
		"message": "Penstock: " + r.detail, "type": kind, "code": code}})
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

const mostRefused = 1 << 14

var seed = maphash.MakeSeed()

// refusals stores the Idempotency-Keys of refused requests, to recognize retries of SDKs that do
// not count them.
type refusals struct {
	mu  sync.Mutex
	ids map[uint64]bool
}

func (r *refusals) add(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil || len(r.ids) >= mostRefused {
		r.ids = map[uint64]bool{}
	}
	r.ids[id] = id != 0
}

// take also removes the request.
func (r *refusals) take(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer delete(r.ids, id)
	return r.ids[id]
}
