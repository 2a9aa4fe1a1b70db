package record

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
)

const (
	// MostBytes is the maximum size of a record, which fits a message of a NATS server with
	// default settings (1 MiB).
	MostBytes = 896 << 10
	// MostListed bounds the running, and the finished jobs that a record lists one by one, the
	// form that versions before the packed lists read.
	MostListed = 8192
	// ClockBytes, runBytes and doneBytes are approximate sizes of a clock without its key, of a
	// running and of a finished job.
	ClockBytes, runBytes, doneBytes = 118, 60, 21
	editBytes                       = 130 // these are few
)

// Bytes returns the maximum size of a record under a server's maximum payload. The rest is for
// headers, and for errors in estimated sizes.
func Bytes(payload int64) int { return int(min(MostBytes, payload/8*7)) }

// packed is a list of ascending sequences, encoded as varint differences in base64.
//
// A partition may run and finish tens of thousands of jobs within the half minute that is
// recorded. Listed one by one they would fill the record; packed they take two or three bytes
// each.
type packed []uint64

// MarshalText returns the text for a JSON string.
func (p packed) MarshalText() ([]byte, error) {
	var data []byte
	last := uint64(0)
	for _, seq := range p {
		data = binary.AppendUvarint(data, seq-last)
		last = seq
	}
	return base64.RawStdEncoding.AppendEncode(nil, data), nil
}

// UnmarshalText reads the result of MarshalText.
func (p *packed) UnmarshalText(text []byte) error {
	data, err := base64.RawStdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("packed sequences: %w", err)
	}
	last := uint64(0)
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

// within returns the first sequences that fit into a number of bytes, and their size.
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

// Fit reduces a handover to a record of most bytes. Jobs have precedence: an omitted job may
// run twice, while a bucket with an omitted clock counts as having started a job at the
// takeover, or waits as long as any omitted one. Jobs beyond the lists that older versions read
// are packed.
//
// Its shares are fixed: five ninths for running jobs, a fifth for finished ones, the rest and
// unused space for clocks. Estimated sizes suffice, since a message has an eighth more room
// (see Bytes); encoding until it fits would delay starts in the loop, which writes releases and
// takings.
// from starts.
func (h *Handover) Fit(most int) {
	running := min(len(h.Running), MostListed, most/9*5/runBytes)
	done := min(len(h.Done), MostListed, most/5/doneBytes)
	size := running*runBytes + done*doneBytes + len(h.Edits)*editBytes
	h.Running, h.MoreRunning = h.Running[:running], byHolder(h.Running[running:])
	h.Done, h.MoreDone = h.Done[:done], slices.Sorted(slices.Values(h.Done[done:]))
	n := 0
	for i := range h.MoreRunning {
		more := &h.MoreRunning[i]
		size += runBytes
		more.Seqs, n = more.Seqs.within(most - size)
		size += n
	}
	h.MoreDone, n = h.MoreDone.within(most - size)
	size += n
	for i, c := range h.Clocks {
		size += ClockBytes + jsonLength(string(c.Key)) + len(c.Used) + len(c.Learnt)
		if size > most {
			for _, c := range h.Clocks[i:] {
				h.Rest = max(h.Rest, c.Wait)
			}
			h.Clocks, h.Partial = h.Clocks[:i], true
			break
		}
	}
}

// jsonLength returns the approximate length of a text in JSON, without quotes.
func jsonLength(s string) int {
	n := len(s)
	for i := range len(s) {
		if s[i] == '<' || s[i] == '>' || s[i] == '&' || s[i] == '"' || s[i] == '\\' {
			n += 5
		}
	}
	return n
}

// byHolder groups running jobs by holder.
func byHolder(running []Run) (groups []Runs) {
	slices.SortStableFunc(running, func(a, b Run) int {
		return cmp.Compare(a.Holder, b.Holder)
	})
	for _, r := range running {
		if n := len(groups); n == 0 || groups[n-1].Holder != r.Holder {
			groups = append(groups, Runs{Holder: r.Holder})
		}
		last := &groups[len(groups)-1]
		last.Seqs = append(last.Seqs, r.Seq)
	}
	return groups
}

// unpack appends the packed jobs to the lists.
func (h *Handover) unpack() {
	if len(h.MoreRunning)+len(h.MoreDone) == 0 {
		return
	}
	for _, more := range h.MoreRunning {
		for _, seq := range more.Seqs {
			h.Running = append(h.Running, Run{seq, more.Holder})
		}
	}
	slices.SortFunc(h.Running, func(a, b Run) int { return cmp.Compare(a.Seq, b.Seq) })
	h.Done = append(h.Done, h.MoreDone...)
	h.MoreRunning, h.MoreDone = nil, nil
}
