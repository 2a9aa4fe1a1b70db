package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/queue/job"
)

// Acquire waits for the start of a call, with the costs and the priority in the header.
func Acquire(ctx context.Context, ask Asker, of permits.Request, header http.Header) (
	*permits.Permit, error) {

	wait := cmp.Or(of.Wait, permits.DefaultWait)
	if by, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(by))
	}
	const ms = time.Millisecond
	at := Request{Endpoint: "acquire", Policy: of.Policy, Key: of.Key,
		Query:  "wait=" + min(max(wait, ms), admission.MaxWait).String(),
		Header: header}
	body, err := ask(ctx, at)
	if err != nil {
		return nil, cmp.Or(ctx.Err(), err)
	}
	var given struct {
		Permit string        `json:"permit"`
		Lease  time.Duration `json:"lease_ms"`
		Within time.Duration `json:"start_within_ms"`
	}
	if err := json.Unmarshal(body, &given); err != nil {
		return nil, fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	}
	at.Endpoint, at.Query = "settle", "permit="+url.QueryEscape(given.Permit)
	tell := func(how job.Call) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostSettling)
		defer cancel()
		r := at
		body, err := json.Marshal(map[string]any{"status": how.Status, "error": how.Error,
			"retry_after_ms": how.RetryAfterMS, "used": how.Used})
		if err == nil {
			r.Body = body
			_, err = ask(ctx, r)
		}
		return err
	}
	return permits.Lent(given.Permit, time.Now().Add(given.Within*ms), given.Lease*ms, tell), nil
}

const mostSettling = 10 * time.Second
