package envoyapi

import (
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/penstock-mq/penstock/admission/envoy"
)

// request is a RateLimitRequest of envoy.service.ratelimit.v3, and response a RateLimitResponse.
// The few fields that count are read and written here: so the program need not link the API of all
// of Envoy, and a decision takes less time than reflection does.
type (
	request struct {
		domain      string
		descriptors []envoy.Descriptor
		hits        uint32
	}
	response struct {
		envoy.Answer
		headers bool // of the tightest limit, for the client of the gateway
	}
)

// codec reads requests and writes responses, and leaves all else to the one for protobuf.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*response); ok {
		return mem.BufferSlice{mem.SliceBuffer(r.append(make([]byte, 0, 128)))}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	text := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer text.Free()
	return r.read(text.ReadOnlyData())
}

// field is one of a message.
type field struct {
	number protowire.Number
	n      uint64 // of a number
	text   []byte // of a text or a message
}

// fields calls each with the fields of a message, unknown ones too.
func fields(text []byte, each func(field) error) error {
	for len(text) > 0 {
		f := field{}
		number, kind, n := protowire.ConsumeTag(text)
		if n >= 0 {
			text, f.number = text[n:], number
			switch kind {
			case protowire.VarintType:
				f.n, n = protowire.ConsumeVarint(text)
			case protowire.BytesType:
				f.text, n = protowire.ConsumeBytes(text)
			default:
				n = protowire.ConsumeFieldValue(number, kind, text)
			}
		}
		if n < 0 {
			return fmt.Errorf("read a field: %w", protowire.ParseError(n))
		}
		text = text[n:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

func (r *request) read(text []byte) error {
	return fields(text, func(f field) (err error) {
		switch f.number {
		case 1:
			r.domain = string(f.text)
		case 2:
			var d envoy.Descriptor
			d, err = descriptor(f.text)
			r.descriptors = append(r.descriptors, d)
		case 3:
			r.hits = uint32(f.n)
		}
		return err
	})
}

func descriptor(text []byte) (d envoy.Descriptor, err error) {
	return d, fields(text, func(f field) error {
		switch f.number {
		case 1:
			var e envoy.Entry
			d.Entries = append(d.Entries, e)
			return fields(f.text, func(f field) error {
				switch last := &d.Entries[len(d.Entries)-1]; f.number {
				case 1:
					last.Key = string(f.text)
				case 2:
					last.Value = string(f.text)
				}
				return nil
			})
		case 2:
			d.Limit = &envoy.Rate{}
			return fields(f.text, func(f field) error {
				switch f.number {
				case 1:
					d.Limit.Requests = uint32(f.n)
				case 2:
					d.Limit.Unit = envoy.Unit(int32(f.n))
				case 3:
					n, err := wrapped(f.text)
					units := uint32(n)
					d.Limit.Units = &units
					return err
				}
				return nil
			})
		case 3:
			n, err := wrapped(f.text)
			d.Hits = &n
			return err
		case 4:
			d.Refund = f.n != 0
		}
		return nil
	})
}

// wrapped reads a number that has a message of its own, so that 0 is not nothing.
func wrapped(text []byte) (n uint64, err error) {
	err = fields(text, func(f field) error {
		if f.number == 1 {
			n = f.n
		}
		return nil
	})
	return n, err
}

// The codes of an answer.
const (
	codeOK   = 1
	codeOver = 2
)

func code(over bool) uint64 {
	if over {
		return codeOver
	}
	return codeOK
}

func (r *response) append(to []byte) []byte {
	to = appendNumber(to, 1, code(r.Over))
	for i := range r.Statuses {
		to = appendMessage(to, 2, func(to []byte) []byte { return appendStatus(to, r.Statuses[i]) })
	}
	if tightest := r.Tightest(); r.headers && tightest != nil {
		for _, h := range []struct {
			name  string
			value int64
		}{
			{"RateLimit-Limit", int64(tightest.Limit.Requests)},
			{"RateLimit-Remaining", int64(tightest.Remaining)},
			{"RateLimit-Reset", seconds(tightest.Reset)},
		} {
			to = appendMessage(to, 3, func(to []byte) []byte {
				to = appendText(to, 1, h.name)
				return appendText(to, 2, strconv.FormatInt(h.value, 10))
			})
		}
	}
	return to
}

func appendStatus(to []byte, s envoy.Status) []byte {
	to = appendNumber(to, 1, code(s.Over))
	if s.Limit != nil {
		to = appendMessage(to, 2, func(to []byte) []byte {
			to = appendNumber(to, 1, uint64(s.Limit.Requests))
			to = appendNumber(to, 2, uint64(s.Limit.Unit))
			if to = appendText(to, 3, s.Limit.Name); s.Limit.Units != nil {
				to = appendMessage(to, 4, func(to []byte) []byte {
					return appendNumber(to, 1, uint64(*s.Limit.Units))
				})
			}
			return to
		})
	}
	to = appendNumber(to, 3, uint64(s.Remaining))
	if s.Limit != nil {
		to = appendMessage(to, 4, func(to []byte) []byte {
			return appendNumber(to, 1, uint64(seconds(s.Reset)))
		})
	}
	return to
}

// seconds rounds up, because gateways pass whole seconds on.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func appendNumber(to []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return to
	}
	return protowire.AppendVarint(protowire.AppendTag(to, number, protowire.VarintType), n)
}

func appendText(to []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return to
	}
	return protowire.AppendString(protowire.AppendTag(to, number, protowire.BytesType), text)
}

// appendMessage appends what a function appends, behind its length.
func appendMessage(to []byte, number protowire.Number, text func([]byte) []byte) []byte {
	var room [96]byte
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType),
		text(room[:0]))
}
