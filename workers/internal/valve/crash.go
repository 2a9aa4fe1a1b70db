package valve

import (
	"maps"

	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// inheritTogether restores the usage of all buckets.
func (l *startLimits) inheritTogether(in inheritance.State, now pace.Instant) {
	t, h := l.together, in.Handover
	if t == nil {
		return
	}
	var since quota.Units
	if in.Crashed || h.Partial && h.AllLimits == "" {
		since = in.Since(t.Limits, true)
	}
	t.first, t.passed = nil, nil
	t.used = in.Restore(t.Limits, h.Together, h.AllLimits, since, l.wall.reading, now)
	l.countLate(t, now)
}

func (p *Part) tellLimits(h *record.Handover, now pace.Instant) {
	if p.v.quota == nil && p.v.together == nil {
		return
	}
	slots, open, ago := p.legacy.Slots(p.v.quota, now)
	h.ByCost = p.Checkpoints.ByCost(slots)
	if p.v.quota != nil {
		h.Limits, h.Sizes = p.v.quota.Names(), p.v.quota.Sizes()
		h.Open, h.Crashed = open, max(h.Crashed, ago)
	}
	if t := p.v.together; t != nil {
		h.AllLimits, h.Together = t.Names(), t.Encode(t.used, p.v.wall.reading(now))
		if h.Sizes == nil {
			h.Sizes = map[string]int64{}
		}
		maps.Copy(h.Sizes, t.Sizes())
	}
}
