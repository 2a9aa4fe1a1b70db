package workers

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// callbacks queues jobs' outcomes for their callback URLs, as jobs of another policy, before the
// acknowledgement. One queued again is a repeat, by its Idempotency-Key.
type callbacks struct {
	*calls
	producer *jet.Producer
}

type callback struct {
	*callbacks
	through string // its policy, or empty
	to      string // the URL, or empty
	policy  string
	key     queue.Key
	id      string
	tags    []string
}

func (c *callbacks) of(through, policy string, key queue.Key, header map[string][]string,
	created time.Time, seq uint64) callback {
	to := job.HeaderValue(header, job.HeaderCallback)
	if to == "" {
		return callback{}
	}
	// Invalid tags would make the outcome malformed.
	tags := slices.DeleteFunc(job.Tags(header),
		func(t string) bool { return job.CheckTag(t) != nil })
	return callback{c, through, to, policy, key,
		job.IdempotencyKey(nil, policy, created, seq), tags[:min(len(tags), job.MaxTags)]}
}

// settle queues an outcome without a time limit. It returns false if the context has ended, because
// then the run must not count.
func (c callback) settle(ctx context.Context, t queue.Result) bool {
	return c.to == "" || c.retry(ctx, "queue a callback", func() error { return c.queue(ctx, t) })
}

// queue tries once, and returns an error if the result is unknown. It reports an impossible
// callback.
func (c callback) queue(ctx context.Context, t queue.Result) error {
	if c.to == "" {
		return nil
	}
	to, err := job.ParseCallback(c.to)
	if err == nil && c.through == "" {
		err = errors.New("the policy has no callbacks")
	}
	if err != nil {
		c.lose(t, "refused", err)
		return nil
	}
	err = c.publish(ctx, to, t)
	if errors.Is(err, jet.ErrTooLarge) && t.Reply != nil {
		reply := *t.Reply
		reply.Body, reply.Cut = nil, true
		t.Reply = &reply
		err = c.publish(ctx, to, t)
	}
	var ended *jet.EndedError
	switch {
	case err == nil, errors.Is(err, jet.ErrOtherPayload), errors.As(err, &ended):
	case errors.Is(err, jet.ErrFull), errors.Is(err, jet.ErrStreamFull):
		c.lose(t, "full", err)
	case errors.Is(err, jet.ErrUnavailable):
		return err
	default:
		c.lose(t, "refused", err)
	}
	return nil
}

func receiver(to *url.URL) (queue.Key, error) {
	host := strings.TrimSuffix(strings.ToLower(to.Hostname()), ".")
	if address, err := netip.ParseAddr(host); err == nil {
		host = address.Unmap().String()
	}
	switch port := to.Port(); {
	case port == "", to.Scheme == "http" && port == "80", to.Scheme == "https" && port == "443":
		return queue.EncodeKey(host)
	default:
		return queue.EncodeKey(net.JoinHostPort(host, port))
	}
}

func (c callback) publish(ctx context.Context, to *url.URL, t queue.Result) error {
	key, err := receiver(to)
	if err != nil {
		return err
	}
	header := nats.Header{job.HeaderCallbackTo: {c.to}, "Content-Type": {"application/json"}}
	if len(c.tags) > 0 {
		header[job.HeaderTag] = c.tags
	}
	_, err = c.producer.Publish(ctx, jet.Submission{Policy: c.through, Key: key, Header: header,
		Body: job.Document(t), IdempotencyKey: c.id})
	return err
}

func (c callback) lose(t queue.Result, reason string, err error) {
	c.seldom.Log("callback "+c.policy, slog.LevelWarn, "callback not queued",
		"policy", c.policy, "job", t.Job, "through", c.through, "reason", reason, "error", err)
	c.sink.Take(queue.Event{Type: queue.EventCallbackLost, Policy: c.policy, Job: t.Job,
		Key: c.key, Tags: c.tags, Name: reason, Reason: reason, Error: err.Error()})
}
