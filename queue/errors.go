package queue

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// Errors to test with [errors.Is].
var (
	// ErrFull: a bucket holds as many jobs as its policy's capacity allows.
	ErrFull = jsapi.ErrFull
	// ErrStreamFull: the policy's stream holds as many jobs or bytes, over all buckets, as it may.
	ErrStreamFull = jsapi.ErrStreamFull
	// ErrMostJobs is an ErrStreamFull caused by the number of jobs.
	ErrMostJobs = jsapi.ErrMostJobs
	// ErrStorage: JetStream as a whole has no room. It is an ErrUnavailable with a known outcome:
	// nothing was stored.
	ErrStorage = jsapi.ErrStorage
	// ErrTooLarge: a job's body and headers exceed the limit of the server or the stream.
	ErrTooLarge = jsapi.ErrTooLarge
	// ErrNoStream: a policy has no stream, or its stream accepts no more jobs because it retires.
	ErrNoStream = jsapi.ErrNoStream
	// ErrConflict: a compare-and-set found an unexpected revision, or a newer epoch owns the
	// partition.
	ErrConflict = jsapi.ErrConflict
	ErrNotFound = jsapi.ErrNotFound
	// ErrUnavailable: no answer came in time, or NATS could not be reached. The request may have
	// been carried out all the same.
	ErrUnavailable = jsapi.ErrUnavailable
	// ErrNotSent is in the chain of an ErrUnavailable when nothing was sent, because NATS was known
	// not to answer: the request was not carried out.
	ErrNotSent = errors.New("not sent")
	// ErrOtherPayload: a job reuses the Idempotency-Key of an earlier job with a different
	// payload.
	ErrOtherPayload = errors.New("another job with this Idempotency-Key has another payload")
	// ErrClosed: a backlog was closed.
	ErrClosed = errors.New("backlog closed")
	// ErrShape: nothing is lost, but a backlog must be opened again to suit the stored jobs.
	ErrShape = errors.New("backlog must be opened in another way")
)

// CapacityInUseError refuses to lower a capacity below the depth of a bucket: JetStream would
// delete the oldest jobs.
type CapacityInUseError struct {
	Policy   string
	Key      job.Key // the deepest bucket
	Depth    uint64  // jobs in it
	Capacity int64   // the capacity asked for
}

// Error names the deepest bucket.
func (e *CapacityInUseError) Error() string {
	return fmt.Sprintf("policy %s: capacity %d refused: bucket %s holds %d jobs", e.Policy,
		e.Capacity, e.Key, e.Depth)
}

// EndedError refuses to repeat a job that ended without success, and gives its end.
type EndedError struct {
	Policy string
	Seq    uint64 // of the job in its policy's stream
	job.Ended
}

// Error names the job and its end.
func (e *EndedError) Error() string {
	return fmt.Sprintf("its Idempotency-Key is that of job %s, which is %s",
		job.ID(e.Policy, e.Seq), e.How)
}

// ImmutableError refuses a change that would split or mix up the buckets of an existing stream.
type ImmutableError struct {
	Policy     string
	Field      string // "partitions" or "algorithm"
	Have, Want string
}

// Error names the immutable field.
func (e *ImmutableError) Error() string {
	return fmt.Sprintf("policy %s: %s is %s and cannot become %s: use a new name", e.Policy,
		e.Field, e.Have, e.Want)
}

// annotate prefixes the error that a function returns, if any: defer it.
func annotate(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// firstErrCode is the smallest err_code of JetStream's API.
const firstErrCode = 10000

// PublishRefusal parses the reply to a message whose subject a stream may have captured. It returns
// why JetStream did not store the message, as [Producer.Publish] does, and nil for any other reply.
func PublishRefusal(reply []byte) error {
	var a jsapi.PubAck
	if json.Unmarshal(reply, &a) != nil || a.Error == nil || a.Error.ErrCode < firstErrCode {
		return nil
	}
	return jsapi.Translate(a.Error)
}
