package envoy

import (
	"math"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/penstock-mq/penstock/queue"
)

// conclude sets the overall code: over if one limit is, or all quota limits are. It returns the
// status for the headers, or nil: the last over its limit, else the first with the fewest units
// left.
func (s *Service) conclude(answer *ratelimit.RateLimitResponse, of []asked) (tightest *Status) {
	quotas, quotasOver := 0, 0
	answer.OverallCode = code(false)
	for i, status := range answer.Statuses {
		quota := of[i].limit != nil && !of[i].limit.Unlimited && of[i].limit.Quota
		over := status.Code == code(true)
		switch {
		case quota:
			quotas++
			quotasOver += int(queue.Whether(over))
		case over:
			answer.OverallCode = code(true)
			tightest = status
			continue
		}
		if status.CurrentLimit != nil && (tightest == nil ||
			status.LimitRemaining < tightest.LimitRemaining) {
			tightest = status
		}
	}
	if quotas > 0 && quotas == quotasOver {
		answer.OverallCode = code(true)
	}
	return tightest
}

func headers(of *Status) []*core.HeaderValue {
	if of == nil {
		return nil
	}
	header := func(name string, value int64) *core.HeaderValue {
		return &core.HeaderValue{Key: name, Value: strconv.FormatInt(value, 10)}
	}
	return []*core.HeaderValue{
		header("RateLimit-Limit", int64(of.CurrentLimit.RequestsPerUnit)),
		header("RateLimit-Remaining", int64(of.LimitRemaining)),
		header("RateLimit-Reset", of.DurationUntilReset.Seconds),
	}
}

// nearRatio is envoyproxy/ratelimit's default: hits above this part of a limit are near it.
const nearRatio float32 = 0.8

// tell counts hits as envoyproxy/ratelimit does; refunds are no hits. Only some of the hits of a
// request may be over the limit, or near it.
func (s *Service) tell(q asked, before uint64, allowed bool, err error) {
	if q.refund {
		return
	}
	tell := func(stat string, hits uint64) {
		if hits > 0 {
			s.options.Sink.Take(queue.Event{Type: queue.EventHits, Policy: q.limit.counter.name,
				Name: q.name, Reason: stat, Value: int64(hits)})
		}
	}
	limit := uint64(q.limit.Rate.RequestsPerUnit)
	hits := min(q.hits, math.MaxInt64/2)
	after, near := before+hits, max(before, uint64(float32(limit)*nearRatio))
	tell("total_hits", hits)
	switch {
	case err != nil:
	case allowed:
		tell("within_limit", hits)
		tell("near_limit", max(after, near)-near)
	default:
		over := hits
		if before < limit {
			over = after - limit
			tell("near_limit", limit-min(limit, near))
		}
		tell("over_limit", over)
		if q.limit.Shadow {
			tell("shadow_mode", over)
		}
	}
}

// nameHits bounds the names that requests make, because each takes memory: further hits count by
// the limit's own.
func (s *Service) nameHits(l *Limit, name string) string {
	if l == nil || l.Unlimited {
		return ""
	}
	if name == l.Path {
		return l.counter.name
	}
	name = Prefix + name
	s.naming.Lock()
	defer s.naming.Unlock()
	if _, known := s.named[name]; !known {
		if len(s.named) >= mostNames {
			return l.counter.name
		}
		s.named[name] = l.counter.name
	}
	return name
}
