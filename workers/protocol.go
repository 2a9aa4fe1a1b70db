package workers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// The protocol between valves (remote.go) and workers elsewhere (lender.go): see
// docs/workers-protocol.md.

const (
	headerV          = job.HeaderVersion
	headerOffer      = "Penstock-Offer"
	headerStatus     = job.HeaderStatus
	headerJob        = job.HeaderJob
	headerPolicy     = job.HeaderPolicy
	headerKey        = job.HeaderKey
	headerAttempt    = job.HeaderAttempt
	headerTimeout    = job.HeaderTimeout // milliseconds; of a stored job: a duration
	headerAccepted   = "Penstock-Accepted"
	headerIdempotent = job.HeaderIdempotencyKey
	headerError      = "Penstock-Error"
	headerRetryAfter = "Penstock-Retry-After"
	// headerUnavailable marks a job whose target is down.
	headerUnavailable = "Penstock-Unavailable"
	// headerDoubtful marks a pause that may be the job's own fault.
	headerDoubtful = "Penstock-Doubtful"
	headerKept     = "Penstock-Kept"
	// headerReply has an outcome's [job.Reply], without its body.
	headerReply = "Penstock-Reply"
)

// Values of Penstock-Status.
const (
	// from a worker, to an offer
	statusClaim   = "claim"
	statusBusy    = "busy"
	statusCrowded = "crowded"
	// from the valve, to a claim or a running worker
	statusGo   = "go"
	statusNo   = "no"
	statusStop = "stop"
	// from a running worker: any number of progress, then one of the others
	statusProgress   = "progress"
	statusDone       = "done"
	statusFail       = "fail"
	statusPermanent  = "permanent"
	statusRetryAfter = "retry-after"
	statusLate       = "late"
	statusReturned   = "returned"
	// from the valve, to all but progress
	statusOK    = "ok"
	statusGone  = "gone"
	statusError = "error"
)

// protocolVersion is in offers and jobs. Workers answer busy to an unknown one.
const protocolVersion = "1"

func (c *calls) say(to, status string, text ...byte) {
	if to == "" {
		return
	}
	m := message(to, status)
	m.Data = text
	if err := c.nc.PublishMsg(m); err != nil {
		c.log.Debug("not told a worker", "status", status, "error", err)
	}
}

func (c *calls) unsubscribe(sub *nats.Subscription) {
	if err := sub.Unsubscribe(); err != nil {
		c.log.Debug("not unsubscribed", "subject", sub.Subject, "error", err)
	}
}

func message(to, status string) *nats.Msg {
	m := nats.NewMsg(to)
	m.Header[headerStatus] = []string{status}
	return m
}

func offerMessage(to, policy string, next job.Key, reply string) *nats.Msg {
	m := nats.NewMsg(to)
	m.Reply = reply
	m.Header[headerV] = []string{protocolVersion}
	m.Header[headerOffer] = []string{policy}
	m.Header[headerKey] = []string{string(next)}
	return m
}

var protocolHeaders = []string{
	headerV, headerStatus, headerJob, headerPolicy, headerKey, headerAttempt, headerTimeout,
	headerAccepted, headerIdempotent, headerKept,
}

func isProtocolHeader(name string) bool {
	return slices.ContainsFunc(protocolHeaders,
		func(ours string) bool { return strings.EqualFold(name, ours) })
}

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
	m.Header[headerIdempotent] = []string{job.IdempotencyKey}
	if job.Kept() {
		m.Header[headerKept] = []string{"true"}
	}
	return m
}

func readJob(m *nats.Msg) (Job, time.Duration, error) {
	j := Job{ID: job.HeaderValue(m.Header, headerJob), Body: m.Data,
		IdempotencyKey: job.HeaderValue(m.Header, headerIdempotent),
		Policy:         job.HeaderValue(m.Header, headerPolicy),
		Key:            job.Key(job.HeaderValue(m.Header, headerKey)),
		settled:        &settled{kept: job.HeaderValue(m.Header, headerKept) == "true"}}
	if v := job.HeaderValue(m.Header, headerV); v != protocolVersion {
		return j, 0, fmt.Errorf("%s %q: want %s", headerV, v, protocolVersion)
	}
	var err error
	if j.Attempt, err = strconv.Atoi(job.HeaderValue(m.Header, headerAttempt)); err != nil {
		return j, 0, fmt.Errorf("%s: %w", headerAttempt, err)
	}
	if j.Accepted, err = time.Parse(time.RFC3339Nano,
		job.HeaderValue(m.Header, headerAccepted)); err != nil {
		return j, 0, fmt.Errorf("%s: %w", headerAccepted, err)
	}
	timeout, err := strconv.ParseInt(job.HeaderValue(m.Header, headerTimeout), 10, 64)
	if err != nil || timeout <= 0 {
		return j, 0, fmt.Errorf("%s %q: want milliseconds", headerTimeout,
			job.HeaderValue(m.Header, headerTimeout))
	}
	for name, values := range m.Header {
		if !isProtocolHeader(name) || strings.EqualFold(name, headerIdempotent) {
			if j.Header == nil {
				j.Header = nats.Header{}
			}
			j.Header[name] = values
		}
	}
	return j, time.Duration(timeout) * time.Millisecond, nil
}

func outcomeMessage(to string, o record.Outcome) *nats.Msg {
	status := map[record.OutcomeKind]string{
		record.OutcomeDone: statusDone, record.OutcomeFailed: statusFail,
		record.OutcomePermanent: statusPermanent,
		record.OutcomeThrottled: statusRetryAfter, record.OutcomeUncounted: statusReturned,
	}[o.Kind]
	m := message(to, status)
	if o.Error != "" {
		m.Header[headerError] = []string{oneLine(o.Error)}
	}
	if o.Unavailable {
		m.Header[headerUnavailable] = []string{"true"}
	}
	if o.Doubtful {
		m.Header[headerDoubtful] = []string{"true"}
	}
	for cost, n := range o.Used {
		m.Header[job.HeaderUsedPrefix+cost] = []string{strconv.FormatInt(n, 10)}
	}
	if o.Again > 0 {
		m.Header[job.HeaderAgain] = []string{o.Again.String()}
	}
	if o.RetryAfter > 0 {
		m.Header[headerRetryAfter] = []string{
			strconv.FormatInt((o.RetryAfter + time.Millisecond - 1).Milliseconds(), 10)}
	}
	return m
}

func (c *calls) addReply(m *nats.Msg, r *job.Reply) *nats.Msg {
	if r != nil {
		reply := r.Within(c.nc.MaxPayload())
		text, _ := json.Marshal(reply)
		m.Data, m.Header[headerReply] = reply.Body, []string{string(text)}
	}
	return m
}

// readReply reverses addReply. Workers in other languages may omit the header.
func readReply(m *nats.Msg) *job.Reply {
	text := job.HeaderValue(m.Header, headerReply)
	r := &job.Reply{}
	if text == "" && len(m.Data) == 0 || text != "" && json.Unmarshal([]byte(text), r) != nil {
		return nil
	}
	r.Body = m.Data
	return r
}

// readOutcome reverses outcomeMessage. Texts and times may be missing.
func readOutcome(seq uint64, m *nats.Msg) (record.Outcome, error) {
	o := record.Outcome{Seq: seq, Used: job.ReadUsed(m.Header),
		Error: valve.Clip(job.HeaderValue(m.Header, headerError), mostError)}
	switch status := job.HeaderValue(m.Header, headerStatus); status {
	case statusDone:
		o.Kind, o.Error = record.OutcomeDone, ""
	case statusFail:
		o.Kind, o.Unavailable = record.OutcomeFailed,
			job.HeaderValue(m.Header, headerUnavailable) == "true"
		o.Again, _ = IsAgain(ReadAgain(m.Header, time.Now()))
	case statusPermanent:
		o.Kind = record.OutcomePermanent
	case statusRetryAfter:
		o.Kind = record.OutcomeThrottled
		o.Doubtful = job.HeaderValue(m.Header, headerDoubtful) == "true"
	case statusLate, statusReturned:
		o.Kind = record.OutcomeUncounted
		if err := ReadAgain(m.Header, time.Now()); err != nil {
			after, snoozed := IsAgain(err)
			if o.Again = after; !snoozed {
				return o, err
			}
		}
	default:
		return o, fmt.Errorf("%s %q is not known", headerStatus, status)
	}
	if text := job.HeaderValue(m.Header, headerRetryAfter); text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return o, fmt.Errorf("%s %q: want milliseconds", headerRetryAfter, text)
		}
		o.RetryAfter = time.Duration(min(max(ms, 0),
			mostRetryAfter.Milliseconds())) * time.Millisecond
	}
	if o.Error == "" && (o.Kind == record.OutcomeFailed || o.Kind == record.OutcomePermanent) {
		o.Error = "the worker gave no reason"
	}
	return o, nil
}

// mostRetryAfter keeps a worker's pause within a time.Duration.
const mostRetryAfter = 366 * 24 * time.Hour

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
