package admission

import "github.com/penstock-mq/penstock/queue"

// MaxBody is the largest body of a job, in bytes: what fits into the embedded server's messages with room for headers.
const MaxBody = 1 << 20

// SubmitRequest asks to take a job.
type SubmitRequest struct {
	// Policy names the rule and Key the bucket, in its subject form (see [queue.EncodeKey]).
	Policy string
	Key    queue.Key
	// Header holds the request's headers, in any case. What belongs to a stored job is kept, other names are left
	// behind; a Penstock-… header that means nothing is an error, because it is most likely a misspelt one.
	Header map[string][]string
	// Body is the job's payload, at most [MaxBody]. The service does not change it and does not keep it.
	Body []byte
}

// CheckRequest asks whether a request may go ahead.
type CheckRequest struct {
	// Policy names the rule and Key the bucket, in its subject form (see [queue.EncodeKey]).
	Policy string
	Key    queue.Key
	// Cost is how many units the request takes, at least 1.
	Cost int64
}
