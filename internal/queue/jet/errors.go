package jet

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

// Errors to test with [errors.Is].
var (
	// ErrFull: a bucket holds as many jobs as its capacity allows.
	ErrFull = jsapi.ErrFull
	// ErrStreamFull: the policy's stream holds as many jobs or bytes as it may.
	ErrStreamFull = jsapi.ErrStreamFull
	// ErrMostJobs is an ErrStreamFull because of the number of jobs.
	ErrMostJobs = jsapi.ErrMostJobs
	// ErrStorage: JetStream has no room. It is an ErrUnavailable without a stored job.
	ErrStorage = jsapi.ErrStorage
	// ErrTooLarge: a job exceeds the limit of the server or the stream.
	ErrTooLarge = jsapi.ErrTooLarge
	// ErrNoStream: a policy has no stream, or its stream retires.
	ErrNoStream = jsapi.ErrNoStream
	// ErrConflict: unexpected revision, or a newer epoch owns the partition.
	ErrConflict = jsapi.ErrConflict
	ErrNotFound = jsapi.ErrNotFound
	// ErrUnavailable: no answer in time. The request may have been carried out.
	ErrUnavailable = jsapi.ErrUnavailable
	// ErrNotSent is wrapped by an ErrUnavailable if the request was not sent.
	ErrNotSent = errors.New("not sent")
	// ErrOtherPayload: the Idempotency-Key was used with a different payload.
	ErrOtherPayload = errors.New("the Idempotency-Key was reused with a different payload")
	ErrClosed       = errors.New("backlog closed")
)

// CapacityInUseError refuses a capacity below a bucket's depth: JetStream would delete the oldest
// jobs.
type CapacityInUseError struct {
	Policy   string
	Key      queue.Key
	Depth    uint64
	Capacity int64 // the requested one
}

func (e *CapacityInUseError) Error() string {
	return fmt.Sprintf("policy %s: capacity %d refused: bucket %s holds %d jobs", e.Policy,
		e.Capacity, e.Key, e.Depth)
}

// EndedError: the message id belongs to a job that ended without success.
type EndedError struct {
	Policy string
	Seq    uint64
	job.Ended
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("its Idempotency-Key belongs to job %s, which is %s",
		job.ID(e.Policy, e.Seq), e.How)
}

// ImmutableError: a policy's field cannot change while its stream exists.
type ImmutableError struct {
	Policy     string
	Field      string // "partitions" or "algorithm"
	Have, Want string
}

func (e *ImmutableError) Error() string {
	return fmt.Sprintf("policy %s: %s is %s and cannot become %s: use a new name", e.Policy,
		e.Field, e.Have, e.Want)
}

const firstErrCode = 10000

// PublishRefusal returns why JetStream did not store a message, according to a reply; nil for any
// other reply.
func PublishRefusal(reply []byte) error {
	var a jsapi.PubAck
	if json.Unmarshal(reply, &a) != nil || a.Error == nil || a.Error.ErrorCode < firstErrCode {
		return nil
	}
	return jsapi.Translate(a.Error)
}
