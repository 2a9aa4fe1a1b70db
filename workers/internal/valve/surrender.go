package valve

import (
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Drop ends a partition that another process took.
func (p *Part) Drop() { p.leave(partitionLost) }

// Surrender ends a partition in order: it returns the next owner's record, and reports unrecorded
// outcomes.
func (p *Part) Surrender(now pace.Instant) record.Handover {
	h, before := p.Handover(now), len(p.v.out.Reports)
	for _, j := range p.jobs {
		o := record.Outcome{Seq: j.Seq, Error: j.LastError, Attempts: j.Attempts, Ended: true}
		switch {
		case j.stage == stageRunning && j.holder == "":
			p.Unreported++
			continue
		case j.stage == stageSaving && j.snoozed:
			o = record.Outcome{Seq: j.Seq, Kind: record.OutcomeUncounted, Again: j.backoff,
				Ended: true}
		case j.stage == stageSaving:
			o.Kind = record.OutcomeFailed
		case j.stage == stageBurying && j.ran():
			o.Kind, o.Reason = record.OutcomePermanent, j.reason
		default:
			continue
		}
		p.passOn(o, p.v.Self)
	}
	for _, o := range p.legacy.Outcomes() {
		p.passOn(o, p.v.Self)
	}
	p.Unreported += len(p.v.out.Reports) - before
	p.holder = p.v.Self
	p.leave(partitionSurrendered)
	return h
}

func (p *Part) Undecided() bool { return p.undecided.any() || p.noting > 0 }

func (p *Part) Quiet() bool {
	if p.v.Crew.Busy+p.v.Crew.Claimants.Working > 0 {
		return false
	}
	for _, j := range p.jobs {
		if j.stage >= stageSaving || j.stage == stageRunning && j.holder == "" {
			return false
		}
	}
	return true
}

func (p *Part) Quiesce() {
	if !p.Quiesced {
		p.leave(partitionOpening)
		p.v.parts[p.Number], p.Quiesced = p, true
	}
}

func (p *Part) passOn(o record.Outcome, holder string) {
	o.Holder, o.Stream = holder, p.Stream()
	p.v.out.Reports = append(p.v.out.Reports,
		record.Report{Policy: p.Policy, Partition: p.Number, Outcome: o})
}

// leave takes a partition out of all decisions. A quiesced one keeps its clocks.
func (p *Part) leave(state partitionState) {
	p.leaveCalls()
	p.state = state
	delete(p.v.parts, p.Number)
	if state != partitionOpening {
		p.v.texts.forget(p)
		for _, b := range p.buckets {
			if b.Target.Down() {
				p.v.health.Forget(b.Target)
				b.Target = nil
			}
			p.v.learning.remember(b, nil)
		}
	}
	for _, b := range p.buckets {
		if b.Late.Limit != "" {
			p.v.Losses.Wait(&b.Late, "")
		}
	}
	p.v.agenda.leave(p)
}
