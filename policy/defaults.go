package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

const day = Duration(24 * time.Hour)

// DefaultPeak is the peak as a multiple of the outflow. In a second it leaves 1.5 % for catching
// up, with the 2 ms of law 2.
const DefaultPeak = 1.0125

// PeakRatio returns the peak as a multiple of the outflow.
func (p Policy) PeakRatio() float64 { return peakRatio(p.Peak, p.Outflow) }

// PeakTotalRatio is the peak of all keys together, relative to their outflow.
func (p Policy) PeakTotalRatio() float64 { return peakRatio(p.PeakTotal, p.OutflowTotal) }

func peakRatio(peak, outflow algorithms.Rate) float64 {
	if peak.IsZero() || outflow.IsZero() {
		return DefaultPeak
	}
	return max(1, peak.PerSecond()/outflow.PerSecond())
}

// WithDefaults returns the policy with all defaults, without a door policy's redundant queue:
// false. It is idempotent, and accepts invalid policies.
func (p Policy) WithDefaults() Policy {
	p.Rule = p.Rule.withDefaults(false)
	if len(p.Limits) > 0 {
		p.Limits = slices.Clone(p.Limits)
		for i, l := range p.Limits {
			l = l.withDefaults()
			if p.Paced() {
				l.Key = cmp.Or(l.Key, PlaceholderKey)
				if l.CountFrom == CountFromStart {
					l.CountFrom = ""
				}
			}
			p.Limits[i] = l
		}
		if p.CountsArrivals() {
			p.MaxDelay = cmp.Or(p.MaxDelay, Duration(time.Second))
		}
		if p.Paced() && p.WindowMargin == 0 && p.leastMargin() > 0 {
			p.WindowMargin = Duration(50 * time.Millisecond)
			if w := p.shortestWindow(); w > 0 {
				p.WindowMargin = max(leastWindowMargin, min(p.WindowMargin, w/8))
			}
		}
		if len(p.Limits) == 1 {
			p.Limits[0].Name = cmp.Or(p.Limits[0].Name, p.Name)
		}
	}
	if !p.Paced() {
		p.OnStoreError = cmp.Or(p.OnStoreError, Closed)
	}
	if p.Door() && p.Queue != nil && p.Queue.Off {
		p.Queue = nil
	}
	if !p.HasQueue() {
		return p
	}
	p.Workers = cmp.Or(p.Workers, 64)
	p.Partitions = cmp.Or(p.Partitions, 1)
	p.Timeout = cmp.Or(p.Timeout, Duration(30*time.Second))
	p.MaxAge = cmp.Or(p.MaxAge, 14*day)
	p.DuplicateWindow = cmp.Or(p.DuplicateWindow, Duration(10*time.Minute))
	p.Retry.MaxAttempts = cmp.Or(p.Retry.MaxAttempts, 25)
	p.Retry.Backoff = cmp.Or(p.Retry.Backoff, Duration(time.Second))
	p.Retry.MaxBackoff = cmp.Or(p.Retry.MaxBackoff, Duration(time.Hour))
	p.Retry.MaxCooldown = cmp.Or(p.Retry.MaxCooldown, Duration(time.Hour))
	return p
}
