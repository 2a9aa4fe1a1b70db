package jsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue/job"
)

// Documented in package queue.
var (
	ErrFull        = errors.New("queue full")
	ErrStreamFull  = errors.New("stream full")
	ErrMostJobs    = fmt.Errorf("%w: it holds as many jobs as it may", ErrStreamFull)
	ErrStorage     = fmt.Errorf("%w: no room in JetStream's store", ErrUnavailable)
	ErrTooLarge    = errors.New("message too large")
	ErrNoStream    = errors.New("policy has no queue")
	ErrConflict    = errors.New("revision conflict")
	ErrNotFound    = errors.New("not found")
	ErrUnavailable = errors.New("unavailable")
)

// Error codes of JetStream's API that nats.go does not name.
const (
	CodeNotAvailable          = 10008 // the servers have no leader
	CodeStreamNotFound        = 10059
	CodeConsumerNotFound      = 10014
	CodeMessageNotFound       = 10037
	CodeNameInUse             = 10058
	CodeNotCreated            = 10049
	CodeMessageTooLarge       = 10054
	CodeWrongLastSequence     = 10071
	CodeWrongLastSequenceR3   = 10164
	CodeStoreFailed           = 10077
	CodeDuplicateInFlight     = 10158
	CodeInsufficientResources = 10023
	CodeAccountResources      = 10002
	CodeStorageResources      = 10047
	CodeMemoryResources       = 10028
	CodeWorkQueueUnfiltered   = 10099
	CodeWorkQueueFilter       = 10100

	codeMaxBytesRequired = 10113
)

// Refusal is JetStream's answer to a request that it does not carry out.
type Refusal = jetstream.APIError

var kinds = map[jetstream.ErrorCode]error{
	CodeMessageTooLarge: ErrTooLarge, CodeWrongLastSequence: ErrConflict,
	CodeWrongLastSequenceR3: ErrConflict, CodeStreamNotFound: ErrNoStream,
	CodeConsumerNotFound: ErrNotFound, CodeMessageNotFound: ErrNotFound,
	CodeInsufficientResources: ErrStorage, CodeAccountResources: ErrStorage,
	CodeStorageResources: ErrStorage, CodeDuplicateInFlight: ErrUnavailable,
	CodeStoreFailed: ErrUnavailable,
}

// Only the description has the reason of a [CodeStoreFailed].
var storeFailures = map[string]error{
	"maximum messages per subject exceeded": ErrFull,
	"maximum messages exceeded":             ErrMostJobs,
	"maximum bytes exceeded":                ErrStreamFull,
}

func kindOf(e *Refusal) error {
	kind := kinds[e.ErrorCode]
	if why := storeFailures[e.Description]; e.ErrorCode == CodeStoreFailed && why != nil {
		kind = why
	}
	if kind == nil && (e.Code == 503 || e.Code == 500) {
		kind = ErrUnavailable
	}
	return kind
}

// late gives an exceeded deadline a text for users.
type late struct{ error }

func (l late) Unwrap() error { return l.error }

func (l late) Error() string {
	return strings.ReplaceAll(l.error.Error(), context.DeadlineExceeded.Error(),
		"no answer from NATS in time")
}

// Translate wraps an error of NATS, JetStream or a deadline in one of these kinds.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{ErrFull, ErrStreamFull, ErrStorage, ErrTooLarge, ErrNoStream,
		ErrConflict, ErrNotFound,
		job.ErrInvalidKey, ErrUnavailable, job.ErrVersion} {
		if errors.Is(err, known) {
			return err
		}
	}
	var answer *Refusal
	switch {
	case errors.As(err, &answer):
		if kind := kindOf(answer); kind != nil {
			return fmt.Errorf("%w: %w", kind, err)
		}
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, context.DeadlineExceeded):
		err = late{err}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// IsRefusal reports whether JetStream answered with err.
func IsRefusal(err error) bool {
	_, ok := errors.AsType[*Refusal](err)
	return ok
}

func HasCode(err error, codes ...jetstream.ErrorCode) bool {
	answer, is := errors.AsType[*Refusal](err)
	return is && slices.Contains(codes, answer.ErrorCode)
}

type PubAck struct {
	Error     *Refusal `json:"error"`
	Stream    string   `json:"stream"`
	Seq       uint64   `json:"seq"`
	Duplicate bool     `json:"duplicate"`
}

// ParsePubAck decodes the answer to a publish; a refusal is a [*Refusal].
func ParsePubAck(data []byte) (PubAck, error) {
	if a, plain := plainAck(data); plain {
		return a, nil
	}
	var a PubAck
	if err := json.Unmarshal(data, &a); err != nil {
		return PubAck{}, fmt.Errorf("read a publish's answer: %w: %w", ErrUnavailable, err)
	}
	if a.Error != nil {
		return PubAck{}, a.Error
	}
	if a.Stream == "" {
		return PubAck{}, fmt.Errorf("read a publish's answer: %w: no stream in it", ErrUnavailable)
	}
	return a, nil
}

// plainAck parses {"stream":"S","seq":17}, the usual answer, ten times faster than encoding/json.
func plainAck(data []byte) (a PubAck, plain bool) {
	rest, begins := bytes.CutPrefix(data, []byte(`{"stream":"`))
	stream, rest, named := bytes.Cut(rest, []byte(`","seq":`))
	digits, ends := bytes.CutSuffix(rest, []byte("}"))
	if !begins || !named || !ends || len(stream) == 0 || bytes.ContainsAny(stream, `"\`) {
		return PubAck{}, false
	}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return PubAck{Stream: string(stream), Seq: seq}, err == nil
}
