package quota

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func (l *Limits) Names() string {
	if l == nil {
		return ""
	}
	return l.names
}

func places(among, names string) (found []int) {
	all := strings.Fields(among)
	for name := range strings.FieldsSeq(names) {
		found = append(found, slices.Index(all, name))
	}
	return found
}

// Encode returns a set for a successor, or "" if no usage counts. Instants are relative to now. All
// rules share one format: a successor can skip limits that it does not have.
func (l *Limits) Encode(s *Set, now Now) string {
	if l.FreshIn(s, now) == 0 {
		return ""
	}
	at := own(now.Own)
	data := binary.AppendVarint(nil, s.latest.Sub(at).Microseconds()+1)
	for i := range l.all {
		of, st := &l.all[i], s.states[i]
		from := int64(0)
		if !of.bound.Aligned {
			from = at.UnixMicro()
		}
		if of.resetAfter(&st, l.asked(now).of(of)) == 0 {
			st = state{State: algorithms.State{A: from}, owed: st.owed, out: st.out,
				loose: st.loose}
		}
		if of.arrivals {
			st.out = of.held(&st) << 1
			if st.loose > 0 {
				st.out++
			}
		}
		for _, n := range []int64{st.A - from, st.B, st.C, st.owed, st.out, int64(len(st.Log))} {
			data = binary.AppendVarint(data, n)
		}
		last := algorithms.LogEntry(0).Plus(from)
		for _, e := range st.Log {
			data = binary.AppendVarint(data, int64(e-last))
			last = e
		}
	}
	return base64.RawStdEncoding.EncodeToString(data)
}

// Decode reverses Encode. If the text is unreadable, all limits are used up. Held units wait for
// the reports of other processes.
func (l *Limits) Decode(text, names string, now Now) *Set {
	if text == "" {
		return nil
	}
	data, err := base64.RawStdEncoding.DecodeString(text)
	r := reader{data: data, bad: err != nil}
	at := own(now.Own)
	s := l.newSet()
	s.latest = at.Add(time.Duration(min(r.next(), int64(time.Hour/time.Microsecond))) *
		time.Microsecond)
	found := places(l.names, names)
	for _, to := range found {
		st, from := state{State: algorithms.State{A: r.next(), B: r.next(), C: r.next()},
			owed: r.next(), loose: r.next()}, int64(0)
		if to >= 0 && !l.all[to].bound.Aligned {
			from = at.UnixMicro()
		}
		st.A += from
		last := algorithms.LogEntry(0).Plus(from)
		for n := r.next(); n > 0 && !r.bad; n-- {
			last += algorithms.LogEntry(r.next())
			st.Log = append(st.Log, last)
		}
		if to < 0 {
			continue
		}
		if l.all[to].arrivals {
			s.awaited = s.awaited || st.loose&1 > 0
			st.loose >>= 1
		}
		s.states[to] = st
	}
	if r.bad || len(r.data) > 0 {
		return l.Crashed(nil, Crash{From: now, To: now}, nil)
	}
	awaited := s.awaited
	l.Await(s, now)
	s.awaited = awaited
	return s
}

type reader struct {
	data []byte
	bad  bool
}

func (r *reader) next() int64 {
	n, size := binary.Varint(r.data)
	if r.bad = r.bad || size <= 0; r.bad {
		return 0
	}
	r.data = r.data[size:]
	return n
}
