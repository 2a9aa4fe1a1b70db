package core

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

const (
	streamsAnew hazard = "streams-anew"
	// policies retire and come back, with their stream or with another
	retiring hazard = "retiring"
)

func newStream(created time.Time) *stream {
	return &stream{
		created: created, messages: map[uint64]*job.Arrived{}, consumers: map[int][]*consumer{},
		depth: map[queue.Key]int64{},
	}
}

func (w *world) makeStreamAnew() {
	name := w.policies[w.rng.IntN(len(w.policies))].Name
	if w.streams[name].missing {
		return
	}
	w.deleteStream(name)
	w.after(w.between(time.Millisecond, 2*time.Second), func() { w.createStream(name) })
}

// deleteStream deletes a stream. Delivered jobs may start until the owner notices.
func (w *world) deleteStream(name string) {
	old := w.streams[name]
	for _, seq := range slices.Sorted(maps.Keys(old.messages)) {
		w.remove(w.fateOf(name, old.messages[seq]))
	}
	for _, number := range slices.Sorted(maps.Keys(old.consumers)) {
		for _, c := range old.consumers[number] {
			clear(c.pending)
			w.to(c.owner, w.between(10*time.Millisecond, 6*time.Second), func() {
				c.closed = true
				c.owner.core.Handle(Broken{c.part.Partition, c.epoch}, c.owner.clock())
			})
		}
	}
	w.streams[name] = newStream(time.Time{})
	w.streams[name].missing = true
}

func (w *world) createStream(name string) {
	s := w.streams[name]
	if s.missing {
		s.created, s.missing = w.wall(), false
	}
}

func (w *world) remove(f *fate) {
	f.removed, f.forgiven, f.excepted = true, true, true
	f.stream.depth[f.key]--
	delete(f.stream.messages, f.seq)
	w.isRemoved(f)
	for s := range w.stints() {
		if s.fate == f {
			delete(w.active[f.bucket], s)
		}
	}
	for _, c := range w.contests {
		if c.part.Policy == f.policy {
			delete(c.keys[f.key].waiting, f.seq)
		}
	}
}

type retirement struct {
	gone bool
}

func (w *world) retire() {
	name := w.policies[w.rng.IntN(len(w.policies))].Name
	if w.set.retired[name] != nil || w.streams[name].missing {
		return
	}
	r, keeps := &retirement{}, w.chance(0.4)
	w.set.retired[name] = r
	w.tellAll()
	w.after(w.between(0, 3*time.Second), func() {
		if !keeps {
			if !w.streams[name].missing {
				w.deleteStream(name)
			}
			w.after(w.between(0, time.Second), func() {
				r.gone = true
				w.tellAll()
			})
		}
		w.after(w.between(0, 8*time.Second), func() {
			if !keeps {
				w.createStream(name)
			}
			delete(w.set.retired, name)
			w.tellAll()
		})
	})
}
