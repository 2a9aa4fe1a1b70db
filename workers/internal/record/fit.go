package record

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

const (
	// MostBytes fits a message of a NATS server's default (1 MiB).
	MostBytes = 896 << 10
	// Approximate sizes of a clock without its key, of an edit, of a name, of a packed job.
	ClockBytes, editBytes, holderBytes, seqBytes = 118, 130, 60, 4
)

func Bytes(payload int64) int { return int(min(MostBytes, payload/8*7)) }

// packed is a list of sequences, encoded as ascending varint differences in base64: two or three
// bytes each.
type packed []uint64

// MarshalText implements [encoding.TextMarshaler].
func (p packed) MarshalText() ([]byte, error) {
	p = slices.Sorted(slices.Values(p))
	var data []byte
	last := uint64(0)
	for _, seq := range p {
		data = binary.AppendUvarint(data, seq-last)
		last = seq
	}
	return base64.RawStdEncoding.AppendEncode(nil, data), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *packed) UnmarshalText(text []byte) error {
	data, err := base64.RawStdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("packed sequences: %w", err)
	}
	last := uint64(0)
	*p = nil
	for len(data) > 0 {
		step, n := binary.Uvarint(data)
		if n <= 0 {
			return fmt.Errorf("packed sequences: %d bytes are left over", len(data))
		}
		last += step
		*p, data = append(*p, last), data[n:]
	}
	return nil
}

func (p packed) within(bytes int) (packed, int) {
	var buffer [binary.MaxVarintLen64]byte
	last, size := uint64(0), 0
	for i, seq := range p {
		n := binary.PutUvarint(buffer[:], seq-last)
		if base64.RawStdEncoding.EncodedLen(size+n) > bytes {
			return p[:i], base64.RawStdEncoding.EncodedLen(size)
		}
		last, size = seq, size+n
	}
	return p, base64.RawStdEncoding.EncodedLen(size)
}

type runs []Run

func (r runs) byHolder() map[string]packed {
	groups := map[string]packed{}
	for _, run := range r {
		groups[run.Holder] = append(groups[run.Holder], run.Seq)
	}
	return groups
}

// MarshalJSON returns an object with a packed list for each holder.
func (r runs) MarshalJSON() ([]byte, error) { return json.Marshal(r.byHolder()) }

// UnmarshalJSON reverses MarshalJSON.
func (r *runs) UnmarshalJSON(data []byte) error {
	var groups map[string]packed
	err := json.Unmarshal(data, &groups)
	*r = nil
	for holder, seqs := range groups {
		for _, seq := range seqs {
			*r = append(*r, Run{seq, holder})
		}
	}
	slices.SortFunc(*r, func(a, b Run) int { return cmp.Compare(a.Seq, b.Seq) })
	return err
}

// Fit reduces a handover to an estimate of most bytes. Jobs have precedence: an omitted job may run
// twice, while a bucket with an omitted clock only waits an interval, or as any omitted one does.
// Calls come last: the report of an omitted ended one counts twice if it is repeated, and an omitted
// running one holds its units for longer.
func (h *Handover) Fit(most int) {
	size, n, running := len(h.Edits)*editBytes, 0, h.Running.byHolder()
	h.Running = nil
	for _, holder := range slices.Sorted(maps.Keys(running)) {
		size += holderBytes
		seqs, n := running[holder].within(most - size)
		size += n
		for _, seq := range seqs {
			h.Running = append(h.Running, Run{seq, holder})
		}
	}
	done := h.Done[:min(len(h.Done), max(0, most-size)/seqBytes)]
	h.Done, n = packed(slices.Sorted(slices.Values(done))).within(most - size)
	size += n
	for i, c := range h.Clocks {
		size += ClockBytes + jsonLength(string(c.Key)) + len(c.Used) + len(c.Learnt)
		if size > most {
			for _, c := range h.Clocks[i:] {
				h.Rest, h.Open = max(h.Rest, c.Wait), h.Open || c.Open
				for cost, b := range h.ByCost {
					b.Unlisted = max(b.Unlisted, c.Units[cost], 1)
					h.ByCost[cost] = b
				}
			}
			h.Clocks, h.Partial = h.Clocks[:i], true
			break
		}
	}
	h.Ended, n = packed(slices.Sorted(slices.Values(h.Ended))).within(most - size)
	h.Calls, _ = packed(slices.Sorted(slices.Values(h.Calls))).within(most - size - n)
}

func jsonLength(s string) int {
	n := len(s)
	for i := range len(s) {
		if s[i] == '<' || s[i] == '>' || s[i] == '&' || s[i] == '"' || s[i] == '\\' {
			n += 5
		}
	}
	return n
}
