package queue

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// What callers tell apart with [errors.Is]. Every error of this package that stands for one of
// these wraps it.
var (
	// ErrFull says that a bucket holds as many jobs as its policy's capacity allows.
	ErrFull = jsapi.ErrFull
	// ErrStreamFull says that the policy's stream holds as many jobs or bytes, over all its
	// buckets, as it may.
	ErrStreamFull = jsapi.ErrStreamFull
	// ErrMostJobs is an ErrStreamFull that is about the number of jobs.
	ErrMostJobs = jsapi.ErrMostJobs
	// ErrStorage says that JetStream as a whole has no room. It is an ErrUnavailable whose outcome
	// is known: nothing was stored.
	ErrStorage = jsapi.ErrStorage
	// ErrTooLarge says that a job's body and headers are larger than the server or the stream
	// takes.
	ErrTooLarge = jsapi.ErrTooLarge
	// ErrNoStream says that a policy has no stream, or that its stream takes no jobs any more
	// because it retires.
	ErrNoStream = jsapi.ErrNoStream
	// ErrConflict says that a compare-and-set found another revision than the expected one, or that
	// a newer epoch owns the partition.
	ErrConflict = jsapi.ErrConflict
	// ErrNotFound says that a record or message does not exist.
	ErrNotFound = jsapi.ErrNotFound
	// ErrUnavailable says that no answer came in time, or that NATS could not be reached. What was
	// asked for may have happened all the same.
	ErrUnavailable = jsapi.ErrUnavailable
	// ErrNotSent is in the chain of an ErrUnavailable when NATS was known not to answer, so that
	// nothing was sent: what was asked for has not happened.
	ErrNotSent = errors.New("not sent")
	// ErrOtherPayload says that the Idempotency-Key of a job is that of an earlier one with another
	// payload.
	ErrOtherPayload = errors.New("another job with this Idempotency-Key has another payload")
	// ErrClosed says that a backlog was closed.
	ErrClosed = errors.New("backlog closed")
	// ErrShape says that nothing is lost, but a backlog must be opened again to suit what is stored
	// now.
	ErrShape = errors.New("backlog must be opened in another way")
)

// CapacityInUseError refuses to lower a capacity below what a bucket holds now: JetStream would
// delete the oldest jobs.
type CapacityInUseError struct {
	Policy   string
	Key      job.Key // the deepest bucket
	Depth    uint64  // jobs in it
	Capacity int64   // the capacity asked for
}

// Error says which bucket is in the way.
func (e *CapacityInUseError) Error() string {
	return fmt.Sprintf("policy %s: capacity %d refused: bucket %s holds %d jobs", e.Policy,
		e.Capacity, e.Key, e.Depth)
}

// EndedError refuses the repeat of a job that is gone without success, and says what became of it.
type EndedError struct {
	Policy string
	Seq    uint64 // of the job in its policy's stream
	job.Ended
}

// Error says what became of which job.
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

// Error says what cannot change.
func (e *ImmutableError) Error() string {
	return fmt.Sprintf("policy %s: %s is %s and cannot become %s: use a new name", e.Policy,
		e.Field, e.Have, e.Want)
}

// firstErrCode is the smallest err_code that JetStream's API uses.
const firstErrCode = 10000

// PublishRefusal reads what came in reply to a message whose subject a stream may have captured. It
// returns why JetStream did not store the message, as [Producer.Publish] does ([ErrFull],
// [ErrStreamFull], [ErrTooLarge], …), and nil for anything else: an acknowledgement, or the reply
// of a service.
func PublishRefusal(reply []byte) error {
	var a jsapi.PubAck
	if json.Unmarshal(reply, &a) != nil || a.Error == nil || a.Error.ErrCode < firstErrCode {
		return nil
	}
	return jsapi.Translate(a.Error)
}
