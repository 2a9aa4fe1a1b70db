package httpapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/queue/job"
)

// Permits returns the client for permits of a policy, or why there are none.
type Permits func(policy string) (*permits.Client, error)

// acquire waits for the start of a call. A client that closes the connection gives its turn up.
func (h *handler) acquire(r *http.Request, at place) (answer.Answer, error) {
	client, err := h.permits(at.policy)
	if err != nil {
		return answer.Answer{}, err
	}
	query, err := parameters(r, "wait")
	if err != nil {
		return answer.Answer{}, err
	}
	c := permits.Request{Policy: at.policy, Key: at.key.Raw()}
	if query.Has("wait") {
		if c.Wait, err = admission.ParseWait("wait", query.Get("wait")); err != nil {
			return answer.Answer{}, err
		}
	}
	if c.Cost, c.Costs, c.Priority, err = admission.ReadCallHeader(r.Header); err != nil {
		return answer.Answer{}, err
	}
	p, err := client.Lend(r.Context(), c)
	if err != nil {
		return answer.Answer{}, err
	}
	a := answer.JSON(http.StatusOK, struct {
		Permit string `json:"permit"`
		Lease  int64  `json:"lease_ms"`
		Within int64  `json:"start_within_ms"`
	}{p.ID, p.Lease.Milliseconds(), time.Until(p.StartBy).Milliseconds()})
	a.Late = true
	return a, nil
}

// settle passes on how a call goes on or ended; DELETE: it did not begin.
func (h *handler) settle(r *http.Request, at place) (answer.Answer, error) {
	client, err := h.permits(at.policy)
	if err != nil {
		return answer.Answer{}, err
	}
	query, err := parameters(r, "permit")
	if err != nil {
		return answer.Answer{}, err
	}
	of := job.Call{Status: job.CallReturned}
	if r.Method == http.MethodPut {
		body, held, err := h.read(r, at, smallBody)
		defer h.options.Budget.Release(at.from, held)
		if err != nil {
			return answer.Answer{}, bodyLeft{err}
		}
		var settled struct {
			Status       string           `json:"status"`
			Error        string           `json:"error"`
			RetryAfterMS int64            `json:"retry_after_ms"`
			Used         map[string]int64 `json:"used"`
		}
		if err := json.Unmarshal(body, &settled); err != nil {
			return answer.Answer{}, bad("body", "%v", err)
		}
		of = job.Call{Status: settled.Status, Error: settled.Error, Used: settled.Used,
			RetryAfterMS: settled.RetryAfterMS}
	}
	switch of.Status {
	case job.CallProgress, job.CallDone, job.CallFailed, job.CallUnavailable, job.CallThrottled,
		job.CallReturned:
	default:
		return answer.Answer{}, bad("status",
			"want progress, done, fail, unavailable, retry-after or returned")
	}
	if of.ID = query.Get("permit"); of.ID == "" || len(of.ID) > mostPermit {
		return answer.Answer{}, bad("permit", "want the permit of the answer to POST")
	}
	if err := client.Tell(at.policy, at.key, of); err != nil {
		return answer.Answer{}, err
	}
	return answer.Answer{Status: http.StatusNoContent}, nil
}

// mostPermit bounds the id of a permit.
const mostPermit = 64

func (h *handler) permits(policy string) (*permits.Client, error) {
	if h.options.Permits == nil {
		return nil, admission.ErrNotFound
	}
	return h.options.Permits(policy)
}
