package envoyapi

import (
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/penstock-mq/penstock/admission/envoy"
)

func descriptors(from []*common.RateLimitDescriptor) []envoy.Descriptor {
	all := make([]envoy.Descriptor, len(from))
	for i, f := range from {
		d := &all[i]
		d.Refund = f.GetIsNegativeHits()
		for _, e := range f.GetEntries() {
			d.Entries = append(d.Entries, envoy.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		if l := f.GetLimit(); l != nil {
			d.Limit = &envoy.Rate{Requests: l.GetRequestsPerUnit(), Unit: envoy.Unit(l.GetUnit())}
			if units := l.GetUnitMultiplier(); units != nil {
				d.Limit.Units = &units.Value
			}
		}
		if hits := f.GetHitsAddend(); hits != nil {
			d.Hits = &hits.Value
		}
	}
	return all
}

// Headers are of the tightest limit.
func response(a envoy.Answer, headers bool) *ratelimit.RateLimitResponse {
	to := &ratelimit.RateLimitResponse{OverallCode: code(a.Over)}
	for _, s := range a.Statuses {
		status := &ratelimit.RateLimitResponse_DescriptorStatus{Code: code(s.Over),
			LimitRemaining: s.Remaining}
		if l := s.Limit; l != nil {
			status.CurrentLimit = &ratelimit.RateLimitResponse_RateLimit{Name: l.Name,
				RequestsPerUnit: l.Requests,
				Unit:            ratelimit.RateLimitResponse_RateLimit_Unit(l.Unit)}
			if l.Units != nil {
				status.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(*l.Units)
			}
			status.DurationUntilReset = &durationpb.Duration{Seconds: seconds(s.Reset)}
		}
		to.Statuses = append(to.Statuses, status)
	}
	if tightest := a.Tightest(); headers && tightest != nil {
		add := func(name string, value int64) {
			to.ResponseHeadersToAdd = append(to.ResponseHeadersToAdd,
				&core.HeaderValue{Key: name, Value: strconv.FormatInt(value, 10)})
		}
		add("RateLimit-Limit", int64(tightest.Limit.Requests))
		add("RateLimit-Remaining", int64(tightest.Remaining))
		add("RateLimit-Reset", seconds(tightest.Reset))
	}
	return to
}

func code(over bool) ratelimit.RateLimitResponse_Code {
	if over {
		return ratelimit.RateLimitResponse_OVER_LIMIT
	}
	return ratelimit.RateLimitResponse_OK
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
