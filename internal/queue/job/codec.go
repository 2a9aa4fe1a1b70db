package job

import (
	"fmt"
	"maps"

	"github.com/penstock-mq/penstock/queue"
)

const contentEncoding = "Content-Encoding"

// IsEncoded reports whether a job with the headers was encoded by a [queue.Codec].
func IsEncoded(h map[string][]string) bool {
	return HeaderValue(h, contentEncoding) == queue.Encoding
}

// Seal encodes a body, and returns headers that say so; without Encode it changes nothing.
func Seal(c queue.Codec, h map[string][]string, body []byte) (map[string][]string, []byte, error) {
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
	h[contentEncoding] = []string{queue.Encoding}
	return h, encoded, nil
}

// Open decodes a body if its headers say that it is encoded.
func Open(c queue.Codec, h map[string][]string, body []byte) ([]byte, error) {
	switch {
	case !IsEncoded(h):
		return body, nil
	case c.Decode == nil:
		return nil, queue.ErrNoCodec
	}
	decoded, err := c.Decode(body)
	if err != nil {
		return nil, fmt.Errorf("decode the payload: %w", err)
	}
	return decoded, nil
}
