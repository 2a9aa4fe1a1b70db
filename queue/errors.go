package queue

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What callers tell apart with [errors.Is]. Every error of this package that stands for one of these wraps it.
var (
	// ErrFull says that a bucket holds as many jobs as its policy's capacity allows.
	ErrFull = errors.New("queue full")
	// ErrStreamFull says that the policy's stream holds as many jobs or bytes, over all its buckets, as it may.
	ErrStreamFull = errors.New("stream full")
	// ErrStorage says that JetStream as a whole has no room. It is an ErrUnavailable whose outcome is known: nothing was
	// stored.
	ErrStorage = fmt.Errorf("%w: no room in JetStream's store", ErrUnavailable)
	// ErrTooLarge says that a job's body and headers are larger than the server or the stream takes.
	ErrTooLarge = errors.New("message too large")
	// ErrNoStream says that a policy has no stream, or that its stream takes no jobs any more because it retires.
	ErrNoStream = errors.New("policy has no queue")
	// ErrConflict says that a compare-and-set found another revision than the expected one, or that a newer epoch
	// owns the partition.
	ErrConflict = errors.New("revision conflict")
	// ErrNotFound says that a record or message does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInvalidKey says that a key is not one: not UTF-8, longer than [MaxKeyBytes], or a subject form that
	// [EncodeKey] does not produce.
	ErrInvalidKey = errors.New("invalid key")
	// ErrTooMany says that there are as many policies, or overrides of one policy, as there may be.
	ErrTooMany = errors.New("too many")
	// ErrUnavailable says that no answer came in time, or that NATS could not be reached. What was asked for may have
	// happened all the same.
	ErrUnavailable = errors.New("unavailable")
	// ErrNotSent is in the chain of an ErrUnavailable when NATS was known not to answer, so that nothing was sent: what was
	// asked for has not happened.
	ErrNotSent = errors.New("not sent")
	// ErrVersion says that something stored carries a format version this program does not know, or that the server
	// is older than [MinServerVersion].
	ErrVersion = errors.New("unsupported version")
	// ErrOtherPayload says that the Idempotency-Key of a job is that of an earlier one with another payload.
	ErrOtherPayload = errors.New("another job with this Idempotency-Key has another payload")
	// ErrShape says that nothing is lost, but a backlog must be opened again to suit what is stored now.
	ErrShape = errors.New("backlog must be opened in another way")
)

// CapacityInUseError refuses to lower a capacity below what a bucket holds now: JetStream would delete the oldest jobs.
type CapacityInUseError struct {
	Policy   string
	Key      Key    // the deepest bucket
	Depth    uint64 // jobs in it
	Capacity int64  // the capacity asked for
}

// Error says which bucket is in the way.
func (e *CapacityInUseError) Error() string {
	return fmt.Sprintf("policy %s: capacity %d refused: bucket %s holds %d jobs", e.Policy, e.Capacity, e.Key, e.Depth)
}

// EndedError refuses the repeat of a job that is gone without success, and says what became of it.
type EndedError struct {
	Policy string
	Seq    uint64 // of the job in its policy's stream
	Ended
}

// Error says what became of which job.
func (e *EndedError) Error() string {
	return fmt.Sprintf("its Idempotency-Key is that of job %s:%d, which is %s", e.Policy, e.Seq, e.How)
}

// ImmutableError refuses a change that would split or mix up the buckets of an existing stream.
type ImmutableError struct {
	Policy     string
	Field      string // "partitions" or "algorithm"
	Have, Want string
}

// Error says what cannot change.
func (e *ImmutableError) Error() string {
	return fmt.Sprintf("policy %s: %s is %s and cannot become %s: use a new name", e.Policy, e.Field, e.Have, e.Want)
}

// Error codes of JetStream's API that nats.go does not name, or names only in part.
const (
	codeStreamNotFound        = 10059
	codeConsumerNotFound      = 10014
	codeMessageNotFound       = 10037
	codeNameInUse             = 10058
	codeMessageTooLarge       = 10054
	codeWrongLastSequence     = 10071
	codeWrongLastSequenceR3   = 10164
	codeStoreFailed           = 10077
	codeDuplicateInFlight     = 10158
	codeInsufficientResources = 10023
	codeAccountResources      = 10002
	codeStorageResources      = 10047
	codeWorkQueueUnfiltered   = 10099
	codeWorkQueueFilter       = 10100
)

// JetStream answers [codeStoreFailed] for every message its store did not take; only the description says why.
const (
	textMaxMsgsPerSubject = "maximum messages per subject exceeded"
	textMaxMsgs           = "maximum messages exceeded"
	textMaxBytes          = "maximum bytes exceeded"
)

// apiError is JetStream's own description of what went wrong.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// Error is the server's text with its code.
func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode) }

// kind finds which of the package's errors an API error stands for; nil when none.
func (e *apiError) kind() error {
	switch e.ErrCode {
	case codeStoreFailed:
		switch e.Description {
		case textMaxMsgsPerSubject:
			return ErrFull
		case textMaxMsgs, textMaxBytes:
			return ErrStreamFull
		}
		return ErrUnavailable
	case codeMessageTooLarge:
		return ErrTooLarge
	case codeWrongLastSequence, codeWrongLastSequenceR3:
		return ErrConflict
	case codeStreamNotFound:
		return ErrNoStream
	case codeConsumerNotFound, codeMessageNotFound:
		return ErrNotFound
	case codeInsufficientResources, codeAccountResources, codeStorageResources:
		return ErrStorage
	case codeDuplicateInFlight:
		return ErrUnavailable
	}
	if e.Code == 503 || e.Code == 500 {
		return ErrUnavailable
	}
	return nil
}

// translate turns an error of NATS, of JetStream or of a deadline into one that wraps a kind of this package, and keeps
// the cause. It is the only place that does.
func translate(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{ErrFull, ErrStreamFull, ErrStorage, ErrTooLarge, ErrNoStream, ErrConflict, ErrNotFound,
		ErrInvalidKey, ErrUnavailable, ErrVersion} {
		if errors.Is(err, known) {
			return err
		}
	}
	var answer *apiError
	var theirs *jetstream.APIError
	switch {
	case errors.As(err, &answer):
	case errors.As(err, &theirs):
		answer = &apiError{Code: theirs.Code, ErrCode: int(theirs.ErrorCode), Description: theirs.Description}
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if kind := answer.kind(); kind != nil {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

// isRefusal reports whether err is an answer of JetStream's.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*apiError](err)
	return ok
}

// hasCode reports whether err is JetStream's answer with one of these codes.
func hasCode(err error, codes ...int) bool {
	have := 0
	var ours *apiError
	var theirs *jetstream.APIError
	switch {
	case errors.As(err, &ours):
		have = ours.ErrCode
	case errors.As(err, &theirs):
		have = int(theirs.ErrorCode)
	}
	for _, code := range codes {
		if have == code {
			return true
		}
	}
	return false
}

// pubAck is JetStream's answer to a publish.
type pubAck struct {
	Error     *apiError `json:"error"`
	Stream    string    `json:"stream"`
	Seq       uint64    `json:"seq"`
	Duplicate bool      `json:"duplicate"`
}

// parsePubAck reads the answer to a publish; a refusal is an *apiError.
func parsePubAck(data []byte) (pubAck, error) {
	var a pubAck
	if err := json.Unmarshal(data, &a); err != nil {
		return pubAck{}, fmt.Errorf("read a publish's answer: %w: %w", ErrUnavailable, err)
	}
	if a.Error != nil {
		return pubAck{}, a.Error
	}
	if a.Stream == "" {
		return pubAck{}, fmt.Errorf("read a publish's answer: %w: no stream in it", ErrUnavailable)
	}
	return a, nil
}

// firstErrCode is the smallest err_code that JetStream's API uses.
const firstErrCode = 10000

// PublishRefusal reads what came in reply to a message whose subject a stream may have captured. It returns why JetStream did
// not store the message, as [Producer.Publish] does ([ErrFull], [ErrStreamFull], [ErrTooLarge], …), and nil for anything
// else: an acknowledgement, or the reply of a service.
func PublishRefusal(reply []byte) error {
	var a pubAck
	if json.Unmarshal(reply, &a) != nil || a.Error == nil || a.Error.ErrCode < firstErrCode {
		return nil
	}
	return translate(a.Error)
}
