package job

// What holds a job or a bucket back.
const (
	BlockedByRate         = "rate"
	BlockedByLimit        = "limit:"      // its name follows
	BlockedByTotalRate    = "total_rate"  // of all buckets
	BlockedByConcurrency  = "concurrency" // of the bucket
	BlockedByPaused       = "paused"      // the bucket
	BlockedByPolicyPaused = "policy_paused"
	BlockedByQuiet        = "quiet" // a span of the policy's quiet time
	BlockedByThrottled    = "throttled_by_target"
	// except one probe at a time
	BlockedByBreaker   = "breaker"
	BlockedByBackoff   = "backoff" // after a failed attempt
	BlockedByNotBefore = "not_before"
	BlockedByNoWorker  = "no_worker"
	// or the bucket's share of them
	BlockedByWorkersBusy = "workers_busy"
	BlockedByNoDrainer   = "no_drainer" // of the partition; reported by admitters
	// a pending write (the lease, a job's end, a checkpoint), nothing can be stored, or the queue
	// is being read
	BlockedByStorage = "storage"
)

// LateByProcessor: the drainer had no processor time.
const LateByProcessor = "processor"

// LateByLimit: a limit on starts, while the outflow would allow them.
const LateByLimit = "limit"

// A Cause is what a reason to wait means to people. The reasons of valves are in package gates of
// workers/internal.
type Cause struct {
	// Why is the sentence of lists, whose braces package manage of admission fills.
	Why string
	// Meant: an operator wants it, so what waits is not late.
	Meant bool
	// Evident: no change of the policy explains it.
	Evident bool
}

// Causes is what holds a job or a bucket back, without limits, whose sentence depends on their
// usage.
var Causes = map[string]Cause{
	BlockedByRate:        {Why: "the bucket keeps to its rate{rate}"},
	BlockedByTotalRate:   {Why: "the policy keeps to its rate{total} for all keys together"},
	BlockedByConcurrency: {Why: "its bucket runs its maximum number of jobs{most}"},
	BlockedByPaused: {Why: "an operator paused the bucket", Meant: true,
		Evident: true},
	BlockedByPolicyPaused: {Why: "an operator paused the policy", Meant: true, Evident: true},
	BlockedByQuiet:        {Why: "the policy is in its quiet time, which ends{in}", Meant: true},
	BlockedByThrottled:    {Why: "the target asked for a pause, which ends{in}{because}"},
	BlockedByBreaker: {Why: "{down}; one job at a time probes it, without counting attempts, " +
		"the next{in}{because}"},
	BlockedByBackoff:   {Why: "its jobs have failed and will be retried{in}{because}"},
	BlockedByNotBefore: {Why: "no job is due yet; the first starts{in}"},
	BlockedByNoWorker:  {Why: "policy {policy} has neither a target nor a running worker"},
	BlockedByWorkersBusy: {
		Why: "all workers are busy, or the bucket has its maximum number of them"},
	BlockedByNoDrainer: {Why: "no drainer answers for its partition; " +
		"start drainer, or admitter --drain", Evident: true},
	BlockedByStorage: {Why: "its drainer cannot write to JetStream, or is reading the queue",
		Evident: true},
}
