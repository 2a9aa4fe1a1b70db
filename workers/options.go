package workers

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/internal/base/container"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// LeastMemory is the minimum of [Options.Memory], in bytes.
const LeastMemory = 1 << 20

// DefaultMemory returns the default of [Options.Memory].
func DefaultMemory() int64 { return container.Share(512<<20, 4) }

// Options are the settings of a [Drainer]. The zero value works.
type Options struct {
	// Prefix is nats.prefix of the configuration; default "penstock".
	Prefix string
	// Domain is nats.domain of the configuration: of JetStream; default: the server's own.
	Domain string
	// Replicas is the number of servers that store the drainers' shared records: 1 (the default), 3
	// or 5. With WorkerOnly they stay as they are.
	Replicas int
	// Lease is the time that this process counts as alive after a renewal, and roughly the pause of
	// its partitions after a crash: default 5 s, or 15 s with replicas; at least 1 s.
	Lease time.Duration
	// Memory bounds the approximate memory of waiting jobs in bytes: default 512 MiB, or a quarter
	// of the memory of the container, of GOMEMLIMIT or of the machine if that is less. Once jobs
	// take half of it, each further one takes only 64 bytes and is read again before it starts.
	Memory int64
	// Slots bounds the jobs of all policies that run at once in this process; 0: only each policy's
	// workers do. While slots are scarce, the policies whose valves this drainer owns take turns by
	// their weights; jobs of other drainers' valves come in the order of their offers.
	Slots int
	// Policies lists the policies whose valves this drainer may own. Empty means all with workers
	// here or, with OwnAll, all.
	Policies []string
	// OwnAll permits owning valves of policies without local workers, whose jobs run in remote
	// workers.
	OwnAll bool
	// WorkerOnly makes a process that owns no valves and only runs jobs of other drainers; see
	// docs/workers-protocol.md.
	WorkerOnly bool
	// Codec decodes the jobs of registered handlers, and encodes the replies to encoded jobs.
	Codec queue.Codec
	// Target returns the handler of a policy without a registered one, or a nil Handler. Nil: only
	// registered handlers run.
	Target func(Policy) (Handler, error)
	// Grace is the time for running jobs to finish when the drainer stops; default 30 s.
	Grace time.Duration
	// Ready is called once, when the drainer holds its lease and takes part.
	Ready func()
	// Sink takes the drainer's events, as for metrics; may be nil.
	Sink queue.Sink
	// Attempt is called before each attempt in this process, as for traces. The handler gets the
	// returned context and job, and the returned function gets the attempt's error. Job.Header is
	// the stored header: clone it before changes.
	Attempt func(context.Context, Job) (context.Context, Job, func(error))
	// Lister lists all streams periodically in this process, so that the drainer need not. Package
	// penstock has one; default none.
	Lister *Broker
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
}

// Policy is a policy as it applies in an installation.
//
//	Policy       policy.Policy // in force: as written, with overrides and defaults
//	Written      policy.Policy // by its master, a file or the API
//	Source       string        // the master: file or api
//	Set          string        // of a file
//	TargetSource string        // file or api: decides where the target may be
//	Draining     bool          // takes no new jobs, and is gone once its queue is empty
//	Paused       bool          // by an operator
type Policy = inforce.Entry

// Broker, Question and Answer are for the other packages of Penstock: the queues of an
// installation, and what valves are asked and answer.
type (
	Broker   = jet.Broker
	Question = job.Question
	Answer   = job.Answer
)
