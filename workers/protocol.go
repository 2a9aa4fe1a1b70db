package workers

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue"
)

// The protocol between a valve and the workers of other processes: see docs/workers-protocol.md. remote.go is the valve's
// side of it, lend.go the worker's.

// claimWindow is how long a claim counts: for the valve from its offer, for the worker from its claim, each on its own clock.
const claimWindow = 50 * time.Millisecond

const (
	headerV          = "Penstock-V"
	headerOffer      = "Penstock-Offer"
	headerStatus     = "Penstock-Status"
	headerJob        = "Penstock-Job"
	headerPolicy     = "Penstock-Policy"
	headerKey        = "Penstock-Key"
	headerAttempt    = "Penstock-Attempt"
	headerTimeout    = "Penstock-Timeout"
	headerAccepted   = "Penstock-Accepted"
	headerIdempotent = "Idempotency-Key"
	headerError      = "Penstock-Error"
	headerRetryAfter = "Penstock-Retry-After"
	// headerUnavailable says of a failed job that the target is down. Valves that do not know it count an attempt.
	headerUnavailable = "Penstock-Unavailable"
)

// What Penstock-Status can say.
const (
	// A worker's answer to an offer.
	statusClaim   = "claim"
	statusBusy    = "busy"
	statusCrowded = "crowded" // there is room, but not for this bucket; to older valves it is busy
	// The valve's to a claim, and later to the worker that runs the job.
	statusGo   = "go"
	statusNo   = "no"
	statusStop = "stop"
	// The worker's on the job: any number of progress, then one of the others.
	statusProgress   = "progress"
	statusDone       = "done"
	statusFail       = "fail"
	statusPermanent  = "permanent"
	statusRetryAfter = "retry-after"
	statusLate       = "late"
	statusReturned   = "returned"
	// The valve's to each of those but progress.
	statusOK    = "ok"
	statusGone  = "gone"
	statusError = "error"
)

// protocolVersion is what the headers of offers and jobs say. A worker that does not know it is busy.
const protocolVersion = "1"

func message(to, status string) *nats.Msg {
	m := nats.NewMsg(to)
	m.Header[headerStatus] = []string{status}
	return m
}

func offerMessage(to, policy string, next queue.Key, reply string) *nats.Msg {
	m := nats.NewMsg(to)
	m.Reply = reply
	m.Header[headerV] = []string{protocolVersion}
	m.Header[headerOffer] = []string{policy}
	m.Header[headerKey] = []string{string(next)}
	return m
}

// protocolHeaders are those that the valve sets on a job. Of the job's own headers only others are sent.
var protocolHeaders = []string{
	headerV, headerStatus, headerJob, headerPolicy, headerKey, headerAttempt, headerTimeout, headerAccepted, headerIdempotent,
}

func isProtocolHeader(name string) bool {
	for _, ours := range protocolHeaders {
		if strings.EqualFold(name, ours) {
			return true
		}
	}
	return false
}

// jobMessage sends a job to the worker that claimed it; outcomes come back on reply.
func jobMessage(to, reply string, job Job, timeout time.Duration) *nats.Msg {
	m := message(to, statusGo)
	m.Reply, m.Data = reply, job.Body
	for name, values := range job.Header {
		if !isProtocolHeader(name) {
			m.Header[name] = values
		}
	}
	m.Header[headerV] = []string{protocolVersion}
	m.Header[headerJob] = []string{job.ID}
	m.Header[headerPolicy] = []string{job.Policy}
	m.Header[headerKey] = []string{string(job.Key)}
	m.Header[headerAttempt] = []string{strconv.Itoa(job.Attempt)}
	m.Header[headerTimeout] = []string{strconv.FormatInt(timeout.Milliseconds(), 10)}
	m.Header[headerAccepted] = []string{job.Accepted.UTC().Format(time.RFC3339Nano)}
	m.Header[headerIdempotent] = []string{job.Idempotency}
	return m
}

// readJob undoes jobMessage.
func readJob(m *nats.Msg) (Job, time.Duration, error) {
	job := Job{
		ID: header(m.Header, headerJob), Idempotency: header(m.Header, headerIdempotent),
		Policy: header(m.Header, headerPolicy), Key: queue.Key(header(m.Header, headerKey)), Body: m.Data,
	}
	if v := header(m.Header, headerV); v != protocolVersion {
		return job, 0, fmt.Errorf("%s %q: want %s", headerV, v, protocolVersion)
	}
	var err error
	if job.Attempt, err = strconv.Atoi(header(m.Header, headerAttempt)); err != nil {
		return job, 0, fmt.Errorf("%s: %w", headerAttempt, err)
	}
	if job.Accepted, err = time.Parse(time.RFC3339Nano, header(m.Header, headerAccepted)); err != nil {
		return job, 0, fmt.Errorf("%s: %w", headerAccepted, err)
	}
	timeout, err := strconv.ParseInt(header(m.Header, headerTimeout), 10, 64)
	if err != nil || timeout <= 0 {
		return job, 0, fmt.Errorf("%s %q: want milliseconds", headerTimeout, header(m.Header, headerTimeout))
	}
	for name, values := range m.Header {
		if !isProtocolHeader(name) || strings.EqualFold(name, headerIdempotent) {
			if job.Header == nil {
				job.Header = nats.Header{}
			}
			job.Header[name] = values
		}
	}
	return job, time.Duration(timeout) * time.Millisecond, nil
}

// outcomeMessage tells the valve how a run ended.
func outcomeMessage(to string, o outcome) *nats.Msg {
	status := map[outcomeKind]string{
		outcomeDone: statusDone, outcomeFailed: statusFail, outcomePermanent: statusPermanent,
		outcomeThrottled: statusRetryAfter, outcomeUncounted: statusReturned,
	}[o.Kind]
	m := message(to, status)
	if o.Error != "" {
		m.Header[headerError] = []string{oneLine(o.Error)}
	}
	if o.Unavailable {
		m.Header[headerUnavailable] = []string{"true"}
	}
	if o.RetryAfter > 0 {
		m.Header[headerRetryAfter] = []string{strconv.FormatInt((o.RetryAfter + time.Millisecond - 1).Milliseconds(), 10)}
	}
	return m
}

// readOutcome undoes outcomeMessage, and is lenient with what other workers send: no text, no time.
func readOutcome(seq uint64, m *nats.Msg) (outcome, error) {
	o := outcome{Seq: seq, Error: clip(header(m.Header, headerError), mostError)}
	switch status := header(m.Header, headerStatus); status {
	case statusDone:
		o.Kind, o.Error = outcomeDone, ""
	case statusFail:
		o.Kind, o.Unavailable = outcomeFailed, header(m.Header, headerUnavailable) == "true"
	case statusPermanent:
		o.Kind = outcomePermanent
	case statusRetryAfter:
		o.Kind = outcomeThrottled
		if text := header(m.Header, headerRetryAfter); text != "" {
			ms, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return o, fmt.Errorf("%s %q: want milliseconds", headerRetryAfter, text)
			}
			o.RetryAfter = time.Duration(min(max(ms, 0), mostRetryAfter.Milliseconds())) * time.Millisecond
		}
	case statusLate, statusReturned:
		o.Kind = outcomeUncounted
	default:
		return o, fmt.Errorf("%s %q is not known", headerStatus, status)
	}
	if o.Error == "" && (o.Kind == outcomeFailed || o.Kind == outcomePermanent) {
		o.Error = "the worker gave no reason"
	}
	return o, nil
}

// mostRetryAfter bounds what a worker can ask for, so that it fits a time.Duration; policies allow less.
const mostRetryAfter = 366 * 24 * time.Hour

// oneLine fits a text into a header.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
