package job

import (
	"errors"
	"fmt"
	"maps"
)

// Codec encodes payloads of jobs and results, for example to encrypt them. Its functions are called
// concurrently. A nil Encode changes nothing.
type Codec struct {
	Encode, Decode func([]byte) ([]byte, error)
}

// Encoding is the Content-Encoding of an encoded payload.
const Encoding = "penstock-codec"

const contentEncoding = "Content-Encoding"

// ErrNoCodec: this process cannot read the payload.
var ErrNoCodec = errors.New("the payload is encoded, and no Codec.Decode is set")

// IsEncoded reports whether a job with the headers was encoded by a [Codec].
func IsEncoded(h map[string][]string) bool { return HeaderValue(h, contentEncoding) == Encoding }

// Seal encodes a body, and returns headers that say so; without Encode it changes nothing.
func (c Codec) Seal(h map[string][]string, body []byte) (map[string][]string, []byte, error) {
	if c.Encode == nil {
		return h, body, nil
	}
	if already := HeaderValue(h, contentEncoding); already != "" {
		return nil, nil, fmt.Errorf("encode a payload that has Content-Encoding %q", already)
	}
	encoded, err := c.Encode(body)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the payload: %w", err)
	}
	if h = maps.Clone(h); h == nil {
		h = map[string][]string{}
	}
	h[contentEncoding] = []string{Encoding}
	return h, encoded, nil
}

// Open decodes a body if its headers say that it is encoded.
func (c Codec) Open(h map[string][]string, body []byte) ([]byte, error) {
	switch {
	case !IsEncoded(h):
		return body, nil
	case c.Decode == nil:
		return nil, ErrNoCodec
	}
	decoded, err := c.Decode(body)
	if err != nil {
		return nil, fmt.Errorf("decode the payload: %w", err)
	}
	return decoded, nil
}
