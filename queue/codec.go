package queue

import "errors"

// Codec encodes payloads of jobs and results, for example to encrypt them. Its functions are called
// concurrently. A nil Encode changes nothing.
type Codec struct {
	Encode, Decode func([]byte) ([]byte, error)
}

// Encoding is the Content-Encoding of an encoded payload.
const Encoding = "penstock-codec"

// ErrNoCodec: this process cannot read the payload.
var ErrNoCodec = errors.New("the payload is encoded, and no Codec.Decode is set")
