package core

import (
	"strings"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

type simulated struct{ *drainer }

func (d simulated) Close(p handle.Partition) { d.closeConsumers(p) }
func (d simulated) Open(o Opening)           { d.open(o) }
func (d simulated) Refuse(name string)       { d.promised(name).refuse(d.drainer) }
func (d simulated) Offer(policy string)      { d.propose(policy) }
func (d simulated) Ack(r handle.Ref)         { d.ack(r) }
func (d simulated) Write(p Put)              { d.put(p) }
func (d simulated) Read(p Put)               { d.read(p) }
func (d simulated) Fetch(refs []handle.Ref)  { each(refs, d.fetch) }
func (d simulated) Report(r record.Report)   { d.tell(r) }

func (d simulated) Start(r valve.Run) {
	if r.Worker != "" {
		d.start(r, d.promised(r.Worker))
	} else if r.Call != nil {
		d.grant(r)
	} else {
		d.start(r, nil)
	}
}

func (d simulated) Delete(p Put) {
	w := d.w
	w.after(w.latency(), func() {
		if r := w.records[p.Table][p.Key]; r != nil &&
			(p.Revision == 0 || p.Revision == r.Revision) && !w.down {
			w.revision++
			w.write(p.Table, p.Key, Record{Revision: w.revision})
			d.says("deletes %s", p.Key)
		}
	})
}

func (d simulated) Save(s valve.Save) {
	s.Record.At = d.core.Wall(d.clock()).UnixMicro()
	d.w.asksToRecord(d.drainer, s)
	d.save(&s)
}

func (d simulated) Bury(u valve.Burial) {
	w, asked := d.w, d.w.now
	w.settles(d.drainer, u.Ref)
	d.call(lettersName, func() { w.letter(d.drainer, u, asked) }, u.Part, func() {
		d.core.Handle(Buried{u.Ref}, d.clock())
	})
}

func (d simulated) Forget(f valve.Forgotten) {
	w := d.w
	w.after(w.latency(), func() { w.deleteAttempt(f) })
}

func (d simulated) TellVanished(int) {
	if w := d.w; !w.has(removals) && !w.has(streamsAnew) && !w.has(retiring) {
		w.fail("a job vanished")
	}
}

// Its jobs have no Idempotency-Key, and no questions are asked.

func (d simulated) NoteDone(e valve.Ending) { d.w.fail("job %d is noted as done", e.Seq) }
func (d simulated) NoteEnd(e valve.Ending)  { d.w.fail("it is noted how job %d ended", e.Seq) }

// Actions that only inform people are ignored.

func (d simulated) TellAccepted(valve.Seen)       {}
func (d simulated) TellCancelled(c valve.Seen)    { d.repeated(c) }
func (d simulated) TellBreaker(valve.Turned)      {}
func (d simulated) TellAdapted(valve.Adapted)     {}
func (d simulated) TellTakeover(handle.Partition) {}

// repeated is called when an owner dropped a job for another one of its name, which must exist
// unless a client removed it. Replaced owners drop jobs without effect, and crashed ones may not
// have.
func (d *drainer) repeated(c valve.Seen) {
	if c.Reason == "" {
		return
	}
	f := d.w.fateNamed(c.Ref)
	f.forgiven, f.excepted = true, true
	if !d.consumes(c.Part) {
		return
	}
	_, other, _ := job.ParseID(c.Reason[strings.LastIndexByte(c.Reason, ' ')+1:])
	m := f.stream.messages[other]
	if m == nil && d.w.has(removals) {
		d.w.cancelled(f, d.core.part(c.Part))
		return
	}
	if m == nil || m.Key != f.key || m.Header == nil || other == f.seq {
		d.w.fail("law 3: job %d is dropped: %s", f.seq, c.Reason)
	}
	d.w.cancelled(f, d.core.part(c.Part))
}

func (d simulated) TellLost() {
	if d.w.has(damages) {
		d.w.unplanned(d.drainer)
	}
}
